/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds a fuzz target each file of its arguments with one byte changed, for every byte in turn, and
 * also cut off behind that byte. A fuzzer's 20 seconds find such changes by chance only. From one
 * byte to the next, the change goes through small steps, single bits and ends of the range, and is
 * the same in each run.
 *
 *     bend_NAME [--every=N] PATH...
 *
 * With --every, each Nth byte is changed, and from one file to the next they are other bytes: for
 * many files of one form.
 */
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/files.h"

enum { MAX_BENT = 4096 }; /* longer files are data for the most part: their first bytes only */

static uint32_t n_inputs, n_files, every = 1;

static uint8_t bent(uint8_t byte, uint32_t how)
{
    const uint8_t to[] = {(uint8_t)(byte + 1), (uint8_t)(byte - 1),  0,    0xff,
                          byte ^ 0x80,         (uint8_t)(byte ^ 16), 0x7f, (uint8_t)(byte * 2 + 3)};
    return to[how % sizeof(to)];
}

static void each(uint8_t *data, size_t size)
{
    for (size_t i = n_files++ % every; i < size && i < MAX_BENT; i += every) {
        for (uint32_t k = 0; k < 2; k++) {
            uint8_t was = data[i];
            data[i] = bent(was, n_inputs + 3 * k);
            files_try(data, size);
            data[i] = was;
        }
        files_try(data, i);
        n_inputs += 3;
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && sscanf(argv[1], "--every=%u", &every) == 1) {
        argc--;
        argv++;
    }
    if (every == 0)
        return 2;
    uint32_t n = files_walk(argc, argv, each);
    printf("%u inputs from %u files\n", n_inputs, n);
    return n_inputs ? 0 : 1;
}
