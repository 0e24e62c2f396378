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
ld -r -o "$object" --whole-archive "$@"
objcopy --wildcard --keep-global-symbol='inferd_async_*' --keep-global-symbol='inferd_client_*' \
    --keep-global-symbol='inferd_dtype_*' --keep-global-symbol='inferd_histogram_*' \
    --keep-global-symbol='inferd_prepared_*' --keep-global-symbol='inferd_status_*' "$object"
ar rcs "$output" "$object"
rm -f "$object"
