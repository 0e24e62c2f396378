/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/pins.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/build/build.h"

/* Copies of what is said are made one behind the other. */
struct parser {
    struct pins *pins;
    enum precision precision;
    char *at; /* room for the texts to come */
};

static const char *copy(struct parser *p, const char *option, const char *text, size_t length)
{
    char *made = p->at;
    size_t before = strlen(option);
    memcpy(p->at, option, before);
    memcpy(p->at + before, text, length);
    p->at += before + length;
    *p->at++ = '\0';
    return made;
}

static enum status pin_new(const char *option, struct parser *p, struct tune_pin **out,
                           struct error *err)
{
    struct tune_pins *pins = &p->pins->made;
    if (pins->n == TUNE_PINS_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--%s: at most %d pins: use * and ?", option,
                         TUNE_PINS_MAX);
    *out = &pins->list[pins->n++];
    return STATUS_OK;
}

static bool find_precision(const char *name, enum precision *out)
{
    const char *known;
    for (int i = 0; (known = precision_name((enum precision)i)); i++)
        if (!strcmp(known, name)) {
            *out = (enum precision)i;
            return true;
        }
    return false;
}

static bool is_backend(const char *name)
{
    return !strcmp(name, backend_cpu.name) || !strcmp(name, "cuda");
}

static enum status set_what(struct parser *p, struct tune_pin *pin, struct error *err)
{
    pin->excludes = pin->what[0] == '!';
    pin->wishes = pin->what[0] == '~';
    pin->what += pin->excludes || pin->wishes;
    pin->kind = find_precision(pin->what, &pin->precision) ? TUNE_PIN_PRECISION
                : is_backend(pin->what)                    ? TUNE_PIN_BACKEND
                                                           : TUNE_PIN_TACTIC;
    if (pin->kind == TUNE_PIN_PRECISION && !pin->excludes && precision_is_8bit(pin->precision) &&
        pin->precision != p->precision)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--%.128s: tensors have ranges only with --precision %s", pin->said,
                         pin->what);
    if (pin->kind == TUNE_PIN_PRECISION && pin->wishes && pin->precision != PRECISION_F32 &&
        pin->precision != p->precision)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "--%.128s: there are such kernels only with --precision %s", pin->said,
                         pin->what);
    return STATUS_OK;
}

static enum status parse_pin(struct parser *p, const char *text, struct error *err)
{
    struct tune_pin *pin = NULL;
    const char *equals = strchr(text, '=');
    const char *what = equals ? equals + 1 + (equals[1] == '!' || equals[1] == '~') : NULL;
    if (!equals || equals == text || !*what)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--pin '%.128s': the form is LAYER=WHAT",
                         text);
    TRY(pin_new("pin", p, &pin, err));
    pin->said = copy(p, "pin ", text, strlen(text));
    pin->layer = copy(p, "", text, (size_t)(equals - text));
    pin->what = copy(p, "", equals + 1, strlen(equals + 1));
    return set_what(p, pin, err);
}

static enum status parse_keep(struct parser *p, const char *text, struct error *err)
{
    for (const char *at = text;; at++) {
        struct tune_pin *pin = NULL;
        size_t length = strcspn(at, ",");
        if (!length)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "--keep '%.128s': the form is LAYER,LAYER,..", text);
        TRY(pin_new("keep", p, &pin, err));
        *pin = (struct tune_pin){.what = "fp32", .kind = TUNE_PIN_PRECISION};
        pin->said = copy(p, "keep ", at, length);
        pin->layer = copy(p, "", at, length);
        at += length;
        if (!*at)
            return STATUS_OK;
    }
}

static size_t room_for(const struct arg_texts *texts)
{
    size_t room = 0;
    for (uint32_t i = 0; i < texts->n; i++) /* each letter twice, and of --keep's each a name */
        room += 8 * strlen(texts->list[i]) + 16;
    return room;
}

enum status pins_parse(const struct arg_texts *pin, const struct arg_texts *keep,
                       enum precision precision, struct pins *out, struct error *err)
{
    struct parser p = {.pins = out, .precision = precision};
    out->texts = p.at = calloc(1, room_for(pin) + room_for(keep) + 1);
    if (!out->texts)
        return error_no_memory(err, "the pins");
    for (uint32_t i = 0; i < pin->n; i++)
        TRY(parse_pin(&p, pin->list[i], err));
    for (uint32_t i = 0; i < keep->n; i++)
        TRY(parse_keep(&p, keep->list[i], err));
    return STATUS_OK;
}

void pins_deinit(struct pins *pins)
{
    free(pins->texts);
    pins->texts = NULL;
}
