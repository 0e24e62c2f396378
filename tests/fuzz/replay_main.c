/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds files to a fuzz target, one by one: arguments are files, or folders of files. It stands in
 * for libFuzzer's main where there is no libFuzzer, so that every build replays the seed corpus.
 */
#include <stdio.h>

#include "tests/fuzz/files.h"

static void each(uint8_t *data, size_t size)
{
    files_try(data, size);
}

int main(int argc, char **argv)
{
    uint32_t n = files_walk(argc, argv, each);
    printf("%u inputs replayed\n", n);
    return n ? 0 : 1;
}
