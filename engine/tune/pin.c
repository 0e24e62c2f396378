/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/pin.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/names.h"
#include "engine/tune/internal.h"

#define BIT(i) (UINT64_C(1) << (i))

static_assert(TUNE_PINS_MAX <= 64, "a set of pins is 64 bits");

/* After a failure behind a *, that * takes one letter more. */
bool tune_pattern(const char *pattern, const char *text, size_t length)
{
    const char *star = NULL, *from = text, *end = text + length;
    while (text < end) {
        if (*pattern == '*') {
            star = ++pattern;
            from = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* --- names --- */

static const char between[] = " + "; /* the names of layers that became one */

/* The name at *at, whose length is returned, and *at: the next; NULL: there is none. */
static size_t next_part(const char **at)
{
    const char *end = strstr(*at, between);
    size_t length = end ? (size_t)(end - *at) : strlen(*at);
    *at = end ? end + strlen(between) : NULL;
    return length;
}

static bool names_layer(const struct tune_pin *pin, const char *layer)
{
    if (tune_pattern(pin->layer, layer, strlen(layer)))
        return true;
    for (const char *at = layer, *part = at; at; part = at)
        if (tune_pattern(pin->layer, part, next_part(&at)))
            return true;
    return false;
}

static bool names_any(const struct tune_pin *pin, const struct ir_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (ir_node(graph, i)->op != IR_OP_NONE && names_layer(pin, ir_node(graph, i)->name))
            return true;
    return false;
}

static void add_parts(struct names *names, const char *layer)
{
    char name[NAMES_LONGEST + 2]; /* of a longer one the beginning is told */
    for (const char *at = layer, *part = at; at; part = at) {
        size_t whole = next_part(&at), length = MIN(whole, sizeof(name) - 1);
        memcpy(name, part, length);
        name[length] = '\0';
        names_add(names, name);
    }
}

enum status tune_pins_check(const struct tune_pins *pins, const struct ir_graph *graph,
                            struct error *err)
{
    for (uint32_t p = 0; pins && p < pins->n; p++) {
        const struct tune_pin *pin = &pins->list[p];
        struct names names;
        if (names_any(pin, graph))
            continue;
        names_init(&names, pin->layer, strlen(pin->layer));
        for (uint32_t i = 0; i < graph->n_nodes; i++)
            if (ir_node(graph, i)->op != IR_OP_NONE)
                add_parts(&names, ir_node(graph, i)->name);
        return error_set(
            err, STATUS_NOT_FOUND,
            "--%.128s: no layer has this name once layers are fused and folded; there are %s",
            pin->said, names_text(&names));
    }
    return STATUS_OK;
}

uint64_t tune_pins_of(const struct tune_pins *pins, const char *layer)
{
    uint64_t set = 0, of_kind[3] = {0};
    for (uint32_t i = 0; pins && i < pins->n; i++)
        of_kind[pins->list[i].kind] |= BIT(i);
    for (uint32_t i = 0; pins && i < pins->n; i++) {
        const struct tune_pin *pin = &pins->list[i];
        if (!names_layer(pin, layer))
            continue;
        if (!pin->excludes)
            set &= ~of_kind[pin->kind];
        set |= BIT(i);
    }
    return set;
}

uint64_t tune_pins_wishes(const struct tune_pins *pins, uint64_t set)
{
    uint64_t wishes = 0;
    for (uint32_t i = 0; set && i < pins->n; i++)
        if (pins->list[i].wishes)
            wishes |= set & BIT(i);
    return wishes;
}

/* --- what they allow --- */

/* The types of which one stands for FP32 in this precision, as bits. */
static uint32_t types_of(enum precision precision)
{
    uint32_t bytes = 0;
    for (int i = DTYPE_NONE + 1; i < DTYPE_COUNT_ && precision_is_8bit(precision); i++)
        bytes |= (uint32_t)(dtype_size((enum dtype)i) == 1) << i;
    return precision == PRECISION_F16    ? 1U << DTYPE_F16
           : precision == PRECISION_BF16 ? 1U << DTYPE_BF16
                                         : bytes;
}

static bool has_f32(const struct ir_graph *sample)
{
    for (uint32_t i = 0; i < sample->n_tensors; i++)
        if (ir_tensor_type(ir_tensor(sample, i)) == DTYPE_F32)
            return true;
    return false;
}

/* A layer without FP32 tensors is in every precision. */
static bool is_in(const struct tune_pin *pin, const struct ir_graph *sample,
                  const struct tactic *tactic)
{
    uint32_t types = tune_types(sample, tactic), wanted = types_of(pin->precision);
    return wanted ? (types & wanted) || !has_f32(sample) : types == 0;
}

/* What a pin of a backend or of a tactic says. */
static bool allows_kernel(const struct tune_pin *pin, const struct tactic *tactic)
{
    if (pin->kind == TUNE_PIN_BACKEND)
        return !strcmp(pin->what, tactic->backend) != pin->excludes;
    return tune_pattern(pin->what, tactic->name, strlen(tactic->name)) != pin->excludes;
}

static bool allows(const struct tune_pin *pin, const struct ir_graph *sample,
                   const struct tactic *tactic)
{
    if (pin->kind != TUNE_PIN_PRECISION)
        return allows_kernel(pin, tactic);
    return pin->excludes ? !has_f32(sample) || !is_in(pin, sample, tactic)
                         : is_in(pin, sample, tactic);
}

bool tune_pins_allow(const struct tune_pins *pins, uint64_t set, const struct ir_graph *sample,
                     const struct tactic *tactic)
{
    for (uint32_t i = 0; set && i < pins->n; i++)
        if (set & BIT(i) && !pins->list[i].wishes && !allows(&pins->list[i], sample, tactic))
            return false;
    return true;
}

bool tune_pins_may(const struct tune_pins *pins, uint64_t set, const struct tactic *tactic)
{
    for (uint32_t i = 0; set && i < pins->n; i++) {
        const struct tune_pin *pin = &pins->list[i];
        bool may = pin->kind == TUNE_PIN_PRECISION ? !pin->excludes : allows_kernel(pin, tactic);
        if (set & BIT(i) && !pin->wishes && !may)
            return false;
    }
    return true;
}

bool tune_pins_wished(const struct tune_pins *pins, uint64_t set, const struct ir_graph *sample,
                      const struct tactic *tactic)
{
    for (uint32_t i = 0; set && i < pins->n; i++)
        if (set & BIT(i) && pins->list[i].wishes && !allows(&pins->list[i], sample, tactic))
            return false;
    return true;
}

bool tune_pins_backend(const struct tune_pins *pins, uint64_t set, const char *backend)
{
    for (uint32_t i = 0; set && i < pins->n; i++)
        if (set & BIT(i) && pins->list[i].kind == TUNE_PIN_BACKEND && !pins->list[i].wishes &&
            !strcmp(pins->list[i].what, backend) == pins->list[i].excludes)
            return false;
    return true;
}

enum precision tune_pins_precision(const struct tune_pins *pins, uint64_t set,
                                   enum precision precision)
{
    for (uint32_t i = 0; set && i < pins->n; i++)
        if (set & BIT(i) && pins->list[i].kind == TUNE_PIN_PRECISION && !pins->list[i].excludes &&
            !pins->list[i].wishes)
            return pins->list[i].precision;
    return precision;
}

/* --- errors --- */

static enum status note(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    if (!names_has(user, tactic->name))
        names_add(user, tactic->name);
    return STATUS_OK;
}

/* Lists what the layer has without pins. */
static void list(const struct ir_graph *sample, struct device *device, enum precision precision,
                 struct names *names)
{
    const struct backend *backend = device->backend;
    backend->candidates(device, sample, ir_node(sample, 0), precision_floats(precision, backend),
                        note, names, NULL);
}

/* The last of them, and all as they were said, cut off where there are many. */
static const struct tune_pin *say(const struct tune_pins *pins, uint64_t set, char *out,
                                  size_t size)
{
    const struct tune_pin *last = &pins->list[0];
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < pins->n; i++) {
        if (!(set & BIT(i)))
            continue;
        last = &pins->list[i];
        if (len < size)
            len += (size_t)snprintf(out + len, size - len, "%s--%s", len ? " " : "", last->said);
    }
    return last;
}

enum status tune_pins_refuse(const struct tune_pins *pins, uint64_t set,
                             const struct ir_graph *sample, struct device *device,
                             struct device *host, enum precision precision, struct error *err)
{
    const struct ir_node *node = ir_node(sample, 0);
    char said[192];
    const struct tune_pin *pin = say(pins, set, said, sizeof(said));
    struct names names;
    names_init(&names, pin->what, strlen(pin->what));
    list(sample, device, precision, &names);
    if (host)
        list(sample, host, PRECISION_F32, &names);
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "%s: layer '%.64s' (%s) has no such kernel; there are %s", said, node->name,
                     ir_op_name(node->op), names_text(&names));
}
