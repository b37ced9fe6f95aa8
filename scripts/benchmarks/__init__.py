"""What scripts/bench.py times: rows on NumPy, and rows on a Vulkan device."""
