/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON requests, see decode.h. A request is a tree of a known form, so a place in it is a number:
 * `rows` says which keys each place knows, and where their values lead.
 */
#include "http/decode.h"

#include "base/base64.h"
#include "http/json.h"
#include "http/load_text.h"

enum { TEXTS = 16 * 1024, COPY_STEP = 256 * 1024, LOAD_SEGMENTS = 64 };

enum place {
    AT_START,
    AT_INFER,
    AT_INFER_PARAMETERS,
    AT_INPUTS,
    AT_INPUT,
    AT_INPUT_PARAMETERS,
    AT_SHAPE,
    AT_DATA,
    AT_OUTPUTS,
    AT_OUTPUT,
    AT_OUTPUT_PARAMETERS,
    AT_INDEX,
    AT_ORDER, /* load and unload */
    AT_ORDER_PARAMETERS,
    AT_SETTINGS,
    AT_SETTING_LIST,
    AT_REGION,
    AT_HANDLE, /* of a GPU's */
};

/* An input, beside its struct message_tensor. */
struct input {
    size_t begin, end; /* its data as JSON, brackets included */
    uint64_t binary;   /* bytes of binary data */
    bool has_binary;
};

struct http_decode {
    struct request request;
    struct http_wanted wanted;
    struct message_text json, binary;
    struct input inputs[MESSAGE_MAX_TENSORS];
    /* The first reading. */
    enum place place;
    const struct row *row;   /* of the key whose value comes next; NULL: none that is known */
    struct message_text key; /* of a parameter or a setting, kept */
    uint64_t seen;           /* rows that came, in the present objects */
    uint32_t skip;           /* depth within a value that is read over, */
    uint32_t nested;         /* or within the arrays of data */
    bool asked_binary;       /* the output in hand said whether it goes as binary data */
    size_t read;             /* bytes of the JSON, or of the data, that were fed */
    struct load_text load;   /* of an order that may bring files */
    /* The second. */
    bool placing;
    size_t needs;
    uint8_t *to;    /* where the next element goes, */
    size_t left;    /* and how many are missing */
    uint32_t input; /* the input in hand */
    bool begun;
    size_t copied; /* of its binary data */
    size_t binary_at;
    uint8_t *memory;
    struct json_reader *reader;
    size_t reader_size;
    size_t n_texts;
    char texts[TEXTS];
};

/* --- texts --- */

static enum status text_keep(struct http_decode *d, struct message_text text,
                             struct message_text *out, struct error *err)
{
    if (text.len > TEXTS - d->n_texts)
        return error_set(err, STATUS_INVALID_ARGUMENT, "more than %d bytes of names and texts",
                         TEXTS);
    char *to = d->texts + d->n_texts;
    if (text.len)
        memcpy(to, text.data, text.len);
    d->n_texts += text.len;
    *out = (struct message_text){to, text.len};
    return STATUS_OK;
}

static bool is(struct message_text text, const char *wanted)
{
    return message_text_equal(text, message_text_of(wanted));
}

static enum status number_read(const struct json_event *e, struct message_text key, uint64_t *out,
                               struct error *err)
{
    return json_element_read(e->kind, e->text, DTYPE_U64, out, key, err);
}

static enum status bool_read(const struct json_event *e, struct message_text key, bool *out,
                             struct error *err)
{
    if (e->kind != JSON_TRUE && e->kind != JSON_FALSE)
        return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': expected true or false",
                         MESSAGE_TEXT(key));
    *out = e->kind == JSON_TRUE;
    return STATUS_OK;
}

/* --- values of known keys --- */

static struct message_tensor *tensor(struct http_decode *d)
{
    return &d->request.inputs[d->request.n_inputs - 1];
}

static enum status id_set(struct http_decode *d, const struct json_event *e, struct error *err)
{
    if (e->text.len > MESSAGE_MAX_ID)
        return error_set(err, STATUS_INVALID_ARGUMENT, "an id of %zu bytes; at most %d",
                         e->text.len, MESSAGE_MAX_ID);
    return text_keep(d, e->text, &d->request.infer_id, err);
}

static enum status input_name_set(struct http_decode *d, const struct json_event *e,
                                  struct error *err)
{
    return text_keep(d, e->text, &tensor(d)->name, err);
}

static enum status datatype_set(struct http_decode *d, const struct json_event *e,
                                struct error *err)
{
    return text_keep(d, e->text, &tensor(d)->datatype, err);
}

static enum status output_name_set(struct http_decode *d, const struct json_event *e,
                                   struct error *err)
{
    return text_keep(d, e->text, &d->request.outputs[d->request.n_outputs - 1], err);
}

static enum status ready_set(struct http_decode *d, const struct json_event *e, struct error *err)
{
    return bool_read(e, message_text_of("ready"), &d->request.ready_only, err);
}

static enum status key_set(struct http_decode *d, const struct json_event *e, struct error *err)
{
    return text_keep(d, e->text, &d->request.region.key, err);
}

static enum status handle_set(struct http_decode *d, const struct json_event *e, struct error *err)
{
    struct message_text *key = &d->request.region.key;
    TRY(text_keep(d, e->text, key, err));
    if (base64_decode(key->data, key->len, (char *)(uintptr_t)key->data, &key->len))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT, "'b64': this is no base64");
}

static enum status offset_set(struct http_decode *d, const struct json_event *e, struct error *err)
{
    return number_read(e, message_text_of("offset"), &d->request.region.offset, err);
}

static enum status size_set(struct http_decode *d, const struct json_event *e, struct error *err)
{
    return number_read(e, message_text_of("byte_size"), &d->request.region.size, err);
}

static enum status device_set(struct http_decode *d, const struct json_event *e, struct error *err)
{
    return number_read(e, message_text_of("device_id"), &d->request.region.device, err);
}

/* --- parameters --- */

/* A parameter's value, as all protocols of this kind see it. False: it is null. */
static bool parameter_read(struct http_decode *d, const struct json_event *e,
                           struct request_parameter *out)
{
    *out = (struct request_parameter){.key = d->key, .text = e->text};
    switch (e->kind) {
    case JSON_TRUE:
    case JSON_FALSE:
        out->kind = REQUEST_VALUE_BOOL;
        out->number = e->kind == JSON_TRUE;
        return true;
    case JSON_NUMBER:
        out->kind = REQUEST_VALUE_INT;
        if (!json_element_read(e->kind, e->text, DTYPE_I64, &out->number, d->key, NULL))
            return true;
        out->number = INT64_MAX; /* if it is an integer at all */
        if (strspn(e->text.data, "0123456789") < e->text.len)
            out->kind = REQUEST_VALUE_DOUBLE;
        return true;
    case JSON_STRING:
        out->kind = REQUEST_VALUE_TEXT;
        return true;
    default:
        return false;
    }
}

static enum status infer_parameter(struct http_decode *d, const struct json_event *e,
                                   struct error *err)
{
    struct request_parameter parameter;
    uint64_t bit = d->request.n_outputs ? UINT64_C(1) << (d->request.n_outputs - 1) : 0;
    if (d->place == AT_INFER_PARAMETERS && is(d->key, "binary_data_output"))
        return bool_read(e, d->key, &d->wanted.binary, err);
    if (d->place == AT_INPUT_PARAMETERS && is(d->key, "binary_data_size")) {
        struct input *input = &d->inputs[d->request.n_inputs - 1];
        input->has_binary = true;
        return number_read(e, d->key, &input->binary, err);
    }
    if (d->place == AT_OUTPUT_PARAMETERS && is(d->key, "binary_data")) {
        bool binary = false;
        TRY(bool_read(e, d->key, &binary, err));
        d->asked_binary = true;
        d->wanted.outputs = (d->wanted.outputs & ~bit) | (binary ? bit : 0);
        return STATUS_OK;
    }
    enum request_place place = d->place == AT_INFER_PARAMETERS   ? REQUEST_PLACE_REQUEST
                               : d->place == AT_INPUT_PARAMETERS ? REQUEST_PLACE_INPUT
                                                                 : REQUEST_PLACE_OUTPUT;
    if (!parameter_read(d, e, &parameter))
        return STATUS_OK;
    if (is(d->key, "shared_memory_region") && e->text.len <= REQUEST_MAX_REGION)
        TRY(text_keep(d, e->text, &parameter.text, err));
    return request_parameter(&d->request, place, &parameter, true, err);
}

static enum status setting_add(struct http_decode *d, const struct json_event *e, struct error *err)
{
    struct request *r = &d->request;
    if (r->n_settings == REQUEST_MAX_SETTINGS)
        return error_set(err, STATUS_INVALID_ARGUMENT, "more than %d settings",
                         REQUEST_MAX_SETTINGS);
    struct request_setting *setting = &r->settings[r->n_settings++];
    *setting = (struct request_setting){.key = d->key};
    switch (e->kind) {
    case JSON_NULL:
        setting->kind = REQUEST_SETTING_CLEAR;
        return STATUS_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        setting->kind = REQUEST_SETTING_BOOL;
        setting->number = e->kind == JSON_TRUE;
        return STATUS_OK;
    case JSON_NUMBER:
        setting->kind = REQUEST_SETTING_NUMBER;
        return number_read(e, d->key, &setting->number, err);
    default:
        setting->kind = REQUEST_SETTING_TEXT;
        if (load_text_begin(&d->load, setting))
            return STATUS_OK;
        return text_keep(d, e->text, &setting->text, err);
    }
}

static enum status order_parameter(struct http_decode *d, const struct json_event *e,
                                   struct error *err)
{
    if (is(d->key, "unload_dependents"))
        return bool_read(e, d->key, &d->request.dependents, err);
    return setting_add(d, e, err);
}

/* The places whose keys are the peer's own, and what takes their values. */
static enum status parameter_take(struct http_decode *d, const struct json_event *e,
                                  struct error *err)
{
    switch (d->place) {
    case AT_INFER_PARAMETERS:
    case AT_INPUT_PARAMETERS:
    case AT_OUTPUT_PARAMETERS:
        return infer_parameter(d, e, err);
    case AT_ORDER_PARAMETERS:
        return order_parameter(d, e, err);
    default:
        return setting_add(d, e, err);
    }
}

static bool is_open(enum place place)
{
    return place == AT_INFER_PARAMETERS || place == AT_INPUT_PARAMETERS ||
           place == AT_OUTPUT_PARAMETERS || place == AT_ORDER_PARAMETERS || place == AT_SETTINGS ||
           place == AT_SETTING_LIST;
}

/* --- the first reading --- */

typedef enum status set_fn(struct http_decode *d, const struct json_event *e, struct error *err);

struct row {
    enum place place;
    const char *key;
    enum json_kind kind; /* of its value; JSON_NULL: `set` looks itself */
    enum place next;     /* of an object or an array: where it leads */
    set_fn *set;
};

static const struct row rows[] = {
    {AT_INFER, "id", JSON_STRING, AT_INFER, id_set},
    {AT_INFER, "parameters", JSON_OBJECT, AT_INFER_PARAMETERS, NULL},
    {AT_INFER, "inputs", JSON_ARRAY, AT_INPUTS, NULL},
    {AT_INFER, "outputs", JSON_ARRAY, AT_OUTPUTS, NULL},
    {AT_INPUT, "name", JSON_STRING, AT_INPUT, input_name_set},
    {AT_INPUT, "datatype", JSON_STRING, AT_INPUT, datatype_set},
    {AT_INPUT, "shape", JSON_ARRAY, AT_SHAPE, NULL},
    {AT_INPUT, "data", JSON_ARRAY, AT_DATA, NULL},
    {AT_INPUT, "parameters", JSON_OBJECT, AT_INPUT_PARAMETERS, NULL},
    {AT_OUTPUT, "name", JSON_STRING, AT_OUTPUT, output_name_set},
    {AT_OUTPUT, "parameters", JSON_OBJECT, AT_OUTPUT_PARAMETERS, NULL},
    {AT_INDEX, "ready", JSON_NULL, AT_INDEX, ready_set},
    {AT_ORDER, "parameters", JSON_OBJECT, AT_ORDER_PARAMETERS, NULL},
    {AT_REGION, "key", JSON_STRING, AT_REGION, key_set},
    {AT_REGION, "raw_handle", JSON_OBJECT, AT_HANDLE, NULL},
    {AT_REGION, "offset", JSON_NUMBER, AT_REGION, offset_set},
    {AT_REGION, "byte_size", JSON_NUMBER, AT_REGION, size_set},
    {AT_REGION, "device_id", JSON_NUMBER, AT_REGION, device_set},
    {AT_HANDLE, "b64", JSON_STRING, AT_HANDLE, handle_set},
};

/* Where the end of each place leads. */
static enum place outside(enum place place)
{
    switch (place) {
    case AT_INFER_PARAMETERS:
    case AT_INPUTS:
    case AT_OUTPUTS:
        return AT_INFER;
    case AT_INPUT:
        return AT_INPUTS;
    case AT_INPUT_PARAMETERS:
    case AT_SHAPE:
    case AT_DATA:
        return AT_INPUT;
    case AT_OUTPUT:
        return AT_OUTPUTS;
    case AT_OUTPUT_PARAMETERS:
        return AT_OUTPUT;
    case AT_ORDER_PARAMETERS:
        return AT_ORDER;
    case AT_SETTING_LIST:
        return AT_SETTINGS;
    case AT_HANDLE:
        return AT_REGION;
    default:
        return AT_START;
    }
}

static enum place first_place(enum request_kind kind)
{
    switch (kind) {
    case REQUEST_INFER:
        return AT_INFER;
    case REQUEST_REPOSITORY_INDEX:
        return AT_INDEX;
    case REQUEST_MODEL_LOAD:
    case REQUEST_MODEL_UNLOAD:
        return AT_ORDER;
    case REQUEST_TRACE_SETTING:
    case REQUEST_LOG_SETTING:
        return AT_SETTINGS;
    default: /* to register, and to unregister, which has nothing to say */
        return AT_REGION;
    }
}

static bool begins(enum json_kind kind)
{
    return kind == JSON_OBJECT || kind == JSON_ARRAY;
}

static bool ends(enum json_kind kind)
{
    return kind == JSON_OBJECT_END || kind == JSON_ARRAY_END;
}

static enum status key_take(struct http_decode *d, const struct json_event *e, struct error *err)
{
    d->row = NULL;
    if (is_open(d->place))
        return text_keep(d, e->text, &d->key, err);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].place == d->place && is(e->text, rows[i].key))
            d->row = &rows[i];
    if (!d->row)
        return STATUS_OK;
    uint64_t bit = UINT64_C(1) << (d->row - rows);
    if (d->seen & bit)
        return error_set(err, STATUS_INVALID_ARGUMENT, "'%s' is there twice", d->row->key);
    d->seen |= bit;
    return STATUS_OK;
}

/* A new input or output begins: none of its keys has been seen. */
static void seen_forget(struct http_decode *d, enum place place)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].place == place)
            d->seen &= ~(UINT64_C(1) << i);
}

static enum status item_begin(struct http_decode *d, uint32_t *n, enum place place,
                              const char *what, struct error *err)
{
    if (*n == MESSAGE_MAX_TENSORS)
        return error_set(err, STATUS_INVALID_ARGUMENT, "more than %d %s", MESSAGE_MAX_TENSORS,
                         what);
    ++*n;
    d->place = place;
    seen_forget(d, place);
    return STATUS_OK;
}

static enum status input_begin(struct http_decode *d, struct error *err)
{
    TRY(item_begin(d, &d->request.n_inputs, AT_INPUT, "inputs", err));
    *tensor(d) = (struct message_tensor){0};
    d->inputs[d->request.n_inputs - 1] = (struct input){0};
    return STATUS_OK;
}

static enum status output_begin(struct http_decode *d, struct error *err)
{
    TRY(item_begin(d, &d->request.n_outputs, AT_OUTPUT, "outputs", err));
    d->request.outputs[d->request.n_outputs - 1] = (struct message_text){0};
    d->request.classes[d->request.n_outputs - 1] = 0;
    d->request.regions[d->request.n_outputs - 1] = (struct message_region){0};
    d->asked_binary = false;
    return STATUS_OK;
}

/* An output that says nothing of binary data goes as the request says; which may stand behind
 * it. */
static void output_end(struct http_decode *d)
{
    uint64_t bit = UINT64_C(1) << (d->request.n_outputs - 1);
    if (!d->asked_binary)
        d->wanted.undecided |= bit;
}

static enum status dimension_take(struct http_decode *d, const struct json_event *e,
                                  struct error *err)
{
    struct shape *shape = &tensor(d)->shape;
    if (shape->rank == SHAPE_MAX_RANK)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a shape has more than %d dimensions",
                         SHAPE_MAX_RANK);
    return json_element_read(e->kind, e->text, DTYPE_I64, &shape->dim[shape->rank++],
                             message_text_of("shape"), err);
}

/* The data of an input: only where it stands. Arrays may be nested, as the shape is. */
static void data_take(struct http_decode *d, const struct json_event *e)
{
    if (begins(e->kind))
        d->nested++;
    if (!ends(e->kind) || d->nested--)
        return;
    d->nested = 0;
    d->inputs[d->request.n_inputs - 1].end = e->end;
    d->place = AT_INPUT;
}

static enum status wrong_kind(const char *key, struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "'%s' has a value of the wrong kind", key);
}

/* The value of a key that is known. */
static enum status value_take(struct http_decode *d, const struct json_event *e, struct error *err)
{
    const struct row *row = d->row;
    d->row = NULL;
    if (row->kind != JSON_NULL && row->kind != e->kind)
        return wrong_kind(row->key, err);
    if (row->set)
        return row->set(d, e, err);
    d->place = row->next;
    if (d->place == AT_DATA) {
        d->inputs[d->request.n_inputs - 1].begin = e->end - 1;
        tensor(d)->typed = true;
    }
    return STATUS_OK;
}

static enum status list_take(struct http_decode *d, const struct json_event *e, struct error *err)
{
    bool inputs = d->place == AT_INPUTS;
    if (e->kind != JSON_OBJECT)
        return wrong_kind(inputs ? "inputs" : "outputs", err);
    return inputs ? input_begin(d, err) : output_begin(d, err);
}

/* A value whose key is the peer's own. */
static enum status open_take(struct http_decode *d, const struct json_event *e, struct error *err)
{
    if (d->place == AT_SETTINGS && e->kind == JSON_ARRAY) {
        d->place = AT_SETTING_LIST;
        return STATUS_OK;
    }
    if (!begins(e->kind))
        return parameter_take(d, e, err);
    if (d->place == AT_SETTINGS || d->place == AT_SETTING_LIST)
        return wrong_kind("a setting", err);
    d->skip = 1;
    return STATUS_OK;
}

static enum status place_end(struct http_decode *d)
{
    if (d->place == AT_OUTPUT)
        output_end(d);
    d->place = outside(d->place);
    return STATUS_OK;
}

static enum status first_take(void *user, const struct json_event *e, struct error *err)
{
    struct http_decode *d = user;
    if (d->skip) {
        d->skip += begins(e->kind) ? 1 : 0;
        d->skip -= ends(e->kind) ? 1 : 0;
        return STATUS_OK;
    }
    if (d->place == AT_START) {
        d->place = first_place(d->request.kind);
        return e->kind == JSON_OBJECT ? STATUS_OK : wrong_kind("the request", err);
    }
    if (d->place == AT_DATA) {
        data_take(d, e);
        return STATUS_OK;
    }
    if (ends(e->kind))
        return place_end(d);
    if (e->kind == JSON_KEY)
        return key_take(d, e, err);
    if (d->place == AT_SHAPE)
        return dimension_take(d, e, err);
    if (d->place == AT_INPUTS || d->place == AT_OUTPUTS)
        return list_take(d, e, err);
    if (is_open(d->place))
        return open_take(d, e, err);
    if (d->row)
        return value_take(d, e, err);
    d->skip = begins(e->kind) ? 1 : 0;
    return STATUS_OK;
}

/* --- between the readings --- */

static enum status input_check(struct http_decode *d, uint32_t k, size_t *binary, struct error *err)
{
    struct message_tensor *t = &d->request.inputs[k];
    const struct input *input = &d->inputs[k];
    if (t->region.sized && (t->typed || input->has_binary))
        return error_set(err, STATUS_INVALID_ARGUMENT, "input '%.*s' has data and a region",
                         MESSAGE_TEXT(t->name));
    if (t->region.sized) {
        t->size = t->region.size;
        return STATUS_OK;
    }
    if (t->typed && input->has_binary)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%.*s' has both data and binary_data_size", MESSAGE_TEXT(t->name));
    if (!t->typed && !input->has_binary)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%.*s' has neither data nor binary_data_size",
                         MESSAGE_TEXT(t->name));
    if (t->typed) {
        t->contents = (struct message_text){d->json.data + input->begin, input->end - input->begin};
        return STATUS_OK;
    }
    if (input->binary > d->binary.len - *binary)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%.*s' has %llu bytes of binary data, of which %zu came",
                         MESSAGE_TEXT(t->name), (unsigned long long)input->binary,
                         d->binary.len - *binary);
    t->data = d->binary.data + *binary;
    t->size = input->binary;
    *binary += input->binary;
    return STATUS_OK;
}

/* The sizes of all inputs have been checked, so there is one. */
static size_t bytes_of(const struct message_tensor *t)
{
    size_t size = 0;
    return shape_bytes(&t->shape, t->dtype, &size) ? size : 0;
}

/* Bytes for all inputs, each aligned. No sum overflows: JSON has a byte for each element. */
static size_t needs(const struct http_decode *d)
{
    size_t sum = 0, typed = 0;
    for (uint32_t k = 0; k < d->request.n_inputs; k++) {
        size_t size = d->request.inputs[k].region.sized ? 0 : bytes_of(&d->request.inputs[k]);
        sum += (size + HTTP_DECODE_ALIGN - 1) & ~(size_t)(HTTP_DECODE_ALIGN - 1);
        typed += d->request.inputs[k].typed;
    }
    return typed ? MAX(sum, (size_t)1) : 0;
}

static enum status infer_check(struct http_decode *d, struct error *err)
{
    size_t binary = 0;
    for (uint32_t k = 0; k < d->request.n_inputs; k++)
        TRY(input_check(d, k, &binary, err));
    if (binary < d->binary.len)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%zu bytes of binary data came, %zu of them for no input", d->binary.len,
                         d->binary.len - binary);
    TRY(message_tensors_check(d->request.inputs, d->request.n_inputs, "input", err));
    TRY(request_outputs_check(&d->request, err));
    d->wanted.named = d->request.n_outputs > 0;
    if (d->wanted.binary)
        d->wanted.outputs |= d->wanted.undecided;
    d->needs = needs(d);
    return STATUS_OK;
}

/* --- the second reading --- */

static enum status second_take(void *user, const struct json_event *e, struct error *err)
{
    struct http_decode *d = user;
    const struct message_tensor *t = &d->request.inputs[d->input];
    if (begins(e->kind) || ends(e->kind))
        return STATUS_OK;
    if (!d->left)
        return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': more elements than its shape has",
                         MESSAGE_TEXT(t->name));
    TRY(json_element_read(e->kind, e->text, t->dtype, d->to, t->name, err));
    d->to += dtype_size(t->dtype);
    d->left--;
    return STATUS_OK;
}

/* Feeds the next bytes of a text. *done: it is over, and was whole. */
static enum status text_feed(struct http_decode *d, struct message_text text, bool *done,
                             struct error *err)
{
    size_t n = MIN(text.len - d->read, (size_t)JSON_STEP);
    TRY(json_reader_feed(d->reader, text.data + d->read, n, err));
    d->read += n;
    *done = d->read == text.len;
    return *done ? json_reader_end(d->reader, err) : STATUS_OK;
}

static void reader_begin(struct http_decode *d, json_take_fn *take)
{
    d->read = 0;
    d->reader = json_reader_init(d->reader, d->reader_size, take, d);
}

static enum status elements_step(struct http_decode *d, struct message_tensor *t, size_t size,
                                 bool *done, struct error *err)
{
    if (!d->begun) {
        d->left = size / dtype_size(t->dtype);
        reader_begin(d, second_take);
        d->begun = true;
    }
    TRY(text_feed(d, t->contents, done, err));
    if (*done && d->left)
        return error_set(err, STATUS_INVALID_ARGUMENT, "'%.*s': %zu elements are missing",
                         MESSAGE_TEXT(t->name), d->left);
    return STATUS_OK;
}

static void copy_step(struct http_decode *d, const struct message_tensor *t, bool *done)
{
    size_t n = MIN(t->size - d->copied, (size_t)COPY_STEP);
    if (n)
        memcpy(d->to, (const uint8_t *)t->data + d->copied, n);
    d->to += n;
    d->copied += n;
    *done = d->copied == t->size;
}

/* Puts one step's worth of the input in hand into the caller's memory. */
static enum status place_step(struct http_decode *d, struct error *err)
{
    struct message_tensor *t = &d->request.inputs[d->input];
    bool done = false;
    if (t->region.sized) { /* its bytes are read when the request is admitted */
        d->input++;
        return STATUS_OK;
    }
    size_t size = bytes_of(t);
    if (t->typed)
        TRY(elements_step(d, t, size, &done, err));
    else
        copy_step(d, t, &done);
    if (!done)
        return STATUS_OK;
    t->data = d->to - size;
    t->size = size;
    t->typed = false;
    d->to = d->memory + (((size_t)(d->to - d->memory) + HTTP_DECODE_ALIGN - 1) &
                         ~(size_t)(HTTP_DECODE_ALIGN - 1));
    d->begun = false;
    d->copied = 0;
    d->input++;
    return STATUS_OK;
}

/* --- the whole --- */

/* The decoder's own part of its memory, so that the reader behind it is aligned. */
static size_t own_size(void)
{
    return (sizeof(struct http_decode) + 63) & ~(size_t)63;
}

size_t http_decode_size(size_t json)
{
    return own_size() + json_reader_size(json);
}

struct http_decode *http_decode_init(void *memory, size_t memory_size,
                                     const struct request *request, struct message_text json,
                                     struct message_text binary)
{
    struct http_decode *d = memory;
    memset(d, 0, offsetof(struct http_decode, texts));
    struct request *r = &d->request;
    r->kind = request->kind;
    r->id = request->id;
    r->token = request->token;
    r->traceparent = request->traceparent;
    r->model = request->model;
    r->version = request->version;
    r->region.name = request->region.name;
    d->json = json;
    d->binary = binary;
    d->load.json = json;
    d->load.key = &d->key;
    d->reader = (struct json_reader *)(void *)((char *)memory + own_size());
    d->reader_size = memory_size - own_size();
    reader_begin(d, first_take);
    return d;
}

static enum status first_step(struct http_decode *d, enum http_decode_state *state,
                              struct error *err)
{
    bool done = false;
    if (d->request.kind == REQUEST_MODEL_LOAD)
        TRY(load_text_step(&d->load, d->reader, &done, err));
    else
        TRY(text_feed(d, d->json, &done, err));
    *state = done ? HTTP_DECODE_DONE : HTTP_DECODE_GOES_ON;
    if (!done || d->request.kind != REQUEST_INFER)
        return STATUS_OK;
    TRY(infer_check(d, err));
    if (d->needs)
        *state = HTTP_DECODE_NEEDS;
    return STATUS_OK;
}

enum status http_decode_step(struct http_decode *d, enum http_decode_state *state,
                             struct error *err)
{
    if (!d->placing)
        return first_step(d, state, err);
    if (d->input < d->request.n_inputs)
        TRY(place_step(d, err));
    *state = d->input < d->request.n_inputs ? HTTP_DECODE_GOES_ON : HTTP_DECODE_DONE;
    return STATUS_OK;
}

size_t http_decode_needs(const struct http_decode *d)
{
    return d->needs;
}

void http_decode_place(struct http_decode *d, void *memory)
{
    d->placing = true;
    d->memory = d->to = memory;
}

const struct request *http_decode_request(const struct http_decode *d)
{
    return &d->request;
}

const struct http_wanted *http_decode_wanted(const struct http_decode *d)
{
    return &d->wanted;
}
