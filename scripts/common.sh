# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What scripts/demo, scripts/test and scripts/gpu-check share: messages, Debian packages that are
# missing, and building.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# what compiling inferd needs; gcc and the C library's headers come with each other's version
build_packages="gcc libc6-dev pkg-config meson ninja-build protobuf-compiler nanopb libnanopb-dev
    libuv1-dev libdnnl-dev libcyaml-dev libyaml-dev libxxhash-dev libssl-dev uthash-dev
    libyajl-dev node-llhttp libnghttp2-dev zlib1g-dev libjs-chart.js python3"

say() {
    printf '\n== %s\n' "$*"
}

die() {
    printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
    exit 1
}

installed() {
    [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" = "install ok installed" ]
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "packages are missing and this is neither root nor has it sudo; as root: $*"
    fi
}

# install_packages NAME...: installs those that are missing; fetches lists only if they are too old.
install_packages() {
    missing=
    for package in "$@"; do
        installed "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || die "not a Debian system; please install:$missing"
    say "installing$missing"
    apt="env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0"
    # shellcheck disable=SC2086
    as_root $apt install --no-install-recommends $missing >/dev/null 2>&1 || {
        as_root $apt update >/dev/null || die "apt-get update failed"
        as_root $apt install --no-install-recommends $missing >/dev/null ||
            die "apt-get could not install:$missing"
    }
}

# configure_in FOLDER MESON-OPTION...: configures a build folder, for the first time or anew.
configure_in() {
    folder=$1
    shift
    if [ -f "$folder/build.ninja" ]; then
        meson configure "$folder" "$@"
    else
        meson setup "$folder" "$root" "$@"
    fi
}

# build_in FOLDER MESON-OPTION...: configures and compiles.
build_in() {
    configure_in "$@" && ninja -C "$1"
}
