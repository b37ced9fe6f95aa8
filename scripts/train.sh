#!/usr/bin/env bash
# Set up .venv if need be, then train: ./scripts/train.sh [arguments of train.py]

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
require train
exec .venv/bin/python train.py "$@"
