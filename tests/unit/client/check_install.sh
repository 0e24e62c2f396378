#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the client library into a folder of its own and builds an example against that alone,
# by pkg-config, shared and static; then checks that nothing but the public names is exported.
#
#   check_install.sh SOURCE_ROOT BUILD_ROOT FAKE_SERVER CC [CFLAGS...]
set -eu
source=$1 build=$2 fake=$3
shift 3
unset LD_LIBRARY_PATH
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 - "$build" "$dir" <<'PY'
import json, os, shutil, sys
build, to = sys.argv[1:]
plan = json.load(open(os.path.join(build, "meson-info", "intro-installed.json")))
for built, installed in plan.items():
    ours = "inferd-client" in installed or installed.endswith("inferd/client.h")
    if ours and os.path.isabs(built):  # the links are made below
        target = to + installed
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(built, target)
PY
pc=$(find "$dir" -name inferd-client.pc)
lib=$(dirname "$(dirname "$pc")")
so=$(find "$lib" -name 'libinferd-client.so.*.*.*')
ln -sf "$(basename "$so")" "$lib/libinferd-client.so.0"
ln -sf libinferd-client.so.0 "$lib/libinferd-client.so"
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$dir"
flags=$(pkg-config --cflags --libs inferd-client)
static=$(pkg-config --cflags --libs --static inferd-client |
    sed 's/-linferd-client/-l:libinferd-client.a/')

"$@" "$source/client/examples/blocking.c" -o "$dir/shared" $flags "-Wl,-rpath,$lib"
"$@" "$source/client/examples/blocking.c" -o "$dir/static" $static
for program in shared static; do
    "$fake" "$dir/$program" ADDRESS echo >"$dir/out"
    grep -q '^x FP32: 0 1 2 3' "$dir/out" || { cat "$dir/out"; exit 1; }
done
if ldd "$dir/static" | grep -q inferd; then
    echo "the static example needs the shared library"
    exit 1
fi

foreign=$( (nm -D --defined-only "$so"; nm -g --defined-only "$lib/libinferd-client.a") |
    awk 'NF == 3 && $2 != "A" { print $3 }' |
    grep -vE '^inferd_(async|client|dtype|histogram|prepared|status)_|^_|^\.|@' || true)
if [ -n "$foreign" ]; then
    echo "exported:" $foreign
    exit 1
fi
