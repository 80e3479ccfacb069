#!/bin/sh
# Make the virtual environment and see to it that a Vulkan driver can be found.
# Usage: sh scripts/setup.sh VENV_FOLDER
set -eu
venv=$1

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo "$@"
    else
        return 1
    fi
}

debian_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

find_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            command -v "$name"
            return
        fi
    done
    return 1
}

if ! python=$(find_python); then
    debian_install python3 python3-venv || true
    python=$(find_python) || {
        echo "meganeura needs Python 3.11 or newer, and none was found on PATH." >&2
        exit 1
    }
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "installing python$version-venv"
    debian_install "python$version-venv" || debian_install python3-venv || {
        echo "Python's venv module is missing: install the package python$version-venv." >&2
        exit 1
    }
fi

# The Vulkan loader, and Mesa's software driver where the machine has no GPU driver. macOS has Metal.
if [ "$(uname -s)" = Linux ]; then
    loader=no
    driver=no
    for folder in /usr/lib /usr/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /lib64; do
        [ -e "$folder/libvulkan.so.1" ] && loader=yes
    done
    { command -v ldconfig >/dev/null 2>&1 || [ -x /sbin/ldconfig ]; } &&
        PATH="$PATH:/sbin" ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1' && loader=yes
    for folder in /usr/share/vulkan/icd.d /etc/vulkan/icd.d /usr/local/share/vulkan/icd.d; do
        ls "$folder"/*.json >/dev/null 2>&1 && driver=yes
    done
    [ -n "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] && driver=yes
    missing=
    [ $loader = no ] && missing="libvulkan1"
    [ $driver = no ] && missing="$missing mesa-vulkan-drivers"
    if [ -n "$missing" ]; then
        echo "installing$( [ $loader = no ] && echo ' the Vulkan loader' )$( [ $driver = no ] && echo ' Mesa software Vulkan (lavapipe)' ):" $missing
        # shellcheck disable=SC2086
        debian_install $missing || {
            echo "Could not install:" $missing >&2
            echo "Install these with the system's package manager (Fedora: vulkan-loader mesa-vulkan-drivers;" >&2
            echo "Arch: vulkan-icd-loader vulkan-swrast). Until then meganeura computes with NumPy." >&2
        }
    fi
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "installing meganeura and its packages into $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[examples,test,dev]'
