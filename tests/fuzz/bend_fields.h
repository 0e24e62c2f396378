/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a protobuf message at one field and keeps all the lengths around the field right. */
#ifndef INFERD_TESTS_FUZZ_BEND_FIELDS_H
#define INFERD_TESTS_FUZZ_BEND_FIELDS_H

#include <stddef.h>
#include <stdint.h>

/* Changes a number, drops, doubles or exchanges a field, somewhere within the message. Returns the
 * new size, at most `max`; 0 if it found no change that fits. */
size_t bend_fields(uint8_t *message, size_t size, size_t max, unsigned seed);

#endif
