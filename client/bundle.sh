#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes one static library of several and hides all but the public names, as client.map does for
# the shared one: an archive that is only put together would give its users our error_set().
#
#   bundle.sh OUTPUT.a ARCHIVE...
set -eu
output=$1
shift
object=${output%.a}.o
rm -f "$output"
public=$(nm -g --defined-only "$@" | awk 'NF == 3 { print $3 }' |
    grep -E '^inferd_(async|client|dtype|histogram|prepared|status)_' | sort -u)
keep=
roots=
for name in $public; do
    keep="$keep --keep-global-symbol=$name"
    roots="$roots -u $name"
done
# what no public function needs is left out
# shellcheck disable=SC2086
ld -r --gc-sections $roots -o "$object" --whole-archive "$@"
# shellcheck disable=SC2086
objcopy $keep "$object"
ar rcs "$output" "$object"
rm -f "$object"
