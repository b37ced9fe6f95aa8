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
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -qq -y "$package"
}

make_venv() {
    local python
    if ! python=$(find_python "import ensurepip, venv"); then
        python=$(find_python "pass") || fail "Python 3.11 or newer is needed, and this is none:" \
            "${PYTHON:-python3.13, python3.12, python3.11, python3}; install one, or name it: PYTHON=/path/to/python $0"
        install_venv_module "$python"
    fi
    "$python" -m venv --clear .venv
}

# What an installation depends on. File names belong to it, because a strict editable install links file by file.
state() {
    pwd
    .venv/bin/python --version
    cat pyproject.toml
    find tinyadept backends glsl models -type f ! -name '*.py[co]' | LC_ALL=C sort
}

# install EXTRA: make .venv hold this checkout and the packages of one extra. Nothing is done, and no network is used,
# where that is so already. pip is told of other package sources as always, say by PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS.
install() {
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
