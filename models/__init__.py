"""Models: one file each, shapes in the comments."""
