# Sourced by train.sh and test.sh, never run: makes .venv and installs this checkout into it.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    printf 'set-up: %s\n' "$*" >&2
    exit 1
}

# Of the candidates the first Python that is new enough and fulfils the condition, an import say.
find_python() {
    local name
    for name in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        if "$name" -c "import sys; assert sys.version_info >= (3, 11); $1" 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    return 1
}

# Debian and Ubuntu keep ensurepip, without which venv makes no pip, in a package of its own.
install_venv_module() {
    local package as_root=()
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" != 0 ]; then as_root=(sudo -n); fi
    if ! command -v apt-get >/dev/null || { [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; }; then
        fail "$1 lacks the module ensurepip; as root, run: apt-get install $package"
    fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$package"
}

make_venv() {
    local python
    if ! python=$(find_python "import ensurepip, venv"); then
        python=$(find_python "pass") || fail "found no Python 3.11 or newer, looking for" \
            "${PYTHON:-python3.13, python3.12, python3.11 and python3}: install one, as in" \
            "apt-get install python3.11 python3.11-venv, or name one, as in PYTHON=/path/to/python $0"
        install_venv_module "$python"
    fi
    "$python" -m venv --clear .venv
}

# What an installation depends on, with the names of all files: a strict editable install links them one by one.
state() {
    pwd
    .venv/bin/python --version
    cat pyproject.toml
    find tinyadept backends glsl models -type f ! -name '*.py[co]' ! -name '*.spv' | LC_ALL=C sort
    ls -d build/__editable__* 2>/dev/null || true # the links
}

# require EXTRA: make .venv hold this checkout and the packages of one extra. Where that is so already, nothing is
# done and no network used. pip hears of other package sources as always: PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS.
require() {
    local stamp
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then make_venv; fi
    for stamp in ".venv/installed-$1" .venv/installed-dev; do # dev holds all the others
        if [ -e "$stamp" ] && [ "$(state)" = "$(cat "$stamp")" ]; then return; fi
    done
    echo "set-up: installing what '$1' needs into .venv; the first time this takes minutes" >&2
    export PIP_DISABLE_PIP_VERSION_CHECK=1
    .venv/bin/python -m pip install --quiet 'setuptools>=70.1'
    .venv/bin/python -m pip install --quiet --no-build-isolation --config-settings editable_mode=strict -e ".[$1]"
    state >".venv/installed-$1"
}
