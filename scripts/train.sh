#!/usr/bin/env bash
# Set up .venv if need be, then train: ./scripts/train.sh [arguments of train.py]

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
if [[ " ${TINYADEPT_DEVICE:-} $*" == *[\ =]vulkan* ]]; then
    require train,vulkan
    ./scripts/vulkan.sh .venv
else
    require train
fi
exec .venv/bin/python train.py "$@"
