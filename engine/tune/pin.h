/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins: what an operator says of layers by their names, which are those of the tuner's graph. A
 * layer that was made of several, "conv1 + relu1", has their names too. A layer's candidates are
 * only those that its pins allow; it is an error if none is left. Of several pins of one kind the
 * last that names the layer counts, with the exclusions behind it. A wish leaves no candidate out:
 * what it names is taken before all else, however slow, by layers that have it.
 */
#ifndef INFERD_ENGINE_TUNE_PIN_H
#define INFERD_ENGINE_TUNE_PIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/ir/ir.h"

enum tune_pin_kind {
    TUNE_PIN_PRECISION, /* the types in which the layer stores its FP32 tensors */
    TUNE_PIN_BACKEND,   /* where it runs */
    TUNE_PIN_TACTIC,    /* the kernel, by a pattern of its name */
};

struct tune_pin {
    const char *layer; /* a pattern: * stands for any letters, ? for one */
    const char *what;  /* of the three: "fp16", "cuda", "onednn*" */
    const char *said;  /* the option as it was given, for errors */
    enum tune_pin_kind kind;
    enum precision precision; /* of its kind alone */
    bool excludes;            /* the layer has anything but that */
    bool wishes;              /* that if there is such a candidate */
};

enum { TUNE_PINS_MAX = 64 };

struct tune_pins {
    uint32_t n;
    struct tune_pin list[TUNE_PINS_MAX];
};

/* Whether the `length` bytes of text are like the pattern. */
bool tune_pattern(const char *pattern, const char *text, size_t length);

/* NOT_FOUND: a pin names no layer of the graph; the error has the nearest name. */
enum status tune_pins_check(const struct tune_pins *pins, const struct ir_graph *graph,
                            struct error *err);

/* The pins that count for a layer of this name, as a set of bits. `pins` may be NULL: none. */
uint64_t tune_pins_of(const struct tune_pins *pins, const char *layer);
/* Those of the set that are wishes. */
uint64_t tune_pins_wishes(const struct tune_pins *pins, uint64_t set);
/* The precision in which the layer's candidates are asked for, if all layers' is `precision`. */
enum precision tune_pins_precision(const struct tune_pins *pins, uint64_t set,
                                   enum precision precision);
/* Whether the layer of the sample may run on the backend, */
bool tune_pins_backend(const struct tune_pins *pins, uint64_t set, const char *backend);
/* and have the tactic. */
bool tune_pins_allow(const struct tune_pins *pins, uint64_t set, const struct ir_graph *sample,
                     const struct tactic *tactic);
/* The same for who has no sample of the layer: if a pin excludes a precision, the answer is no. */
bool tune_pins_may(const struct tune_pins *pins, uint64_t set, const struct tactic *tactic);
/* Whether the tactic is what wishes ask for; true without any. */
bool tune_pins_wished(const struct tune_pins *pins, uint64_t set, const struct ir_graph *sample,
                      const struct tactic *tactic);
/* Says that no candidate of the layer is allowed, and which ones there are on the devices (host may
 * be NULL): UNIMPLEMENTED. */
enum status tune_pins_refuse(const struct tune_pins *pins, uint64_t set,
                             const struct ir_graph *sample, struct device *device,
                             struct device *host, enum precision precision, struct error *err);

#endif
