/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files for a fuzz target where there is no libFuzzer to do so. */
#ifndef INFERD_TESTS_FUZZ_FILES_H
#define INFERD_TESTS_FUZZ_FILES_H

#include <stddef.h>
#include <stdint.h>

/* The target, which libFuzzer calls too. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Calls `each` with every file of the arguments, which are files, or folders with those below them.
 * After an argument --suffix=TEXT only files whose names end so count in folders. `each` may change
 * the data. Returns the number of files; exits with 1 if there is no such path. */
uint32_t files_walk(int argc, char **argv, void (*each)(uint8_t *data, size_t size));

/* Runs the target on a block of exactly this size, so that a read beyond the block is seen. */
void files_try(const uint8_t *data, size_t size);

#endif
