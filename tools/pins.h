/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --pin LAYER=WHAT and --keep LAYER,..: what layers may run on (engine/tune/pin.h). WHAT is a
 * precision's name, a backend's, or else a pattern of kernels' names; with a ! before it, all but
 * that, and with a ~ that wherever there is such a kernel. --keep LAYER is --pin LAYER=fp32.
 */
#ifndef INFERD_TOOLS_PINS_H
#define INFERD_TOOLS_PINS_H

#include "base/error.h"
#include "engine/tune/pin.h"
#include "tools/args.h"

struct pins {
    struct tune_pins made;
    char *texts; /* what `made` points to */
};

/* `precision` is that of the other layers: 8 bits can be pinned only where there are ranges. */
enum status pins_parse(const struct arg_texts *pin, const struct arg_texts *keep,
                       enum precision precision, struct pins *out, struct error *err);
void pins_deinit(struct pins *pins); /* {0} is fine */

#endif
