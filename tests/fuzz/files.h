/* SPDX-License-Identifier: Apache-2.0 */
/* Files for a fuzz target where libFuzzer is not there to hand them over. */
#ifndef INFERD_TESTS_FUZZ_FILES_H
#define INFERD_TESTS_FUZZ_FILES_H

#include <stddef.h>
#include <stdint.h>

/* The target; what libFuzzer calls too. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Calls `each` with every file of the arguments, which are files, or folders with those below them.
 * After an argument --suffix=TEXT only files whose names end so count in folders. The data may be
 * changed. Returns how many they were; exits 1 if there is no such path. */
uint32_t files_walk(int argc, char **argv, void (*each)(uint8_t *data, size_t size));

/* The target on a block of exactly this size, so that a read beyond it is seen. */
void files_try(const uint8_t *data, size_t size);

#endif
