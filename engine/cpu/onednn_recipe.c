/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors, arguments and implementations: what every oneDNN op needs. Memory descriptors are
 * always derived from the node; none comes from a file.
 */
#include "engine/cpu/onednn_recipe.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/stored.h"

/* oneDNN's tags by rank (3..5), for the layouts that it knows. */
static const dnnl_format_tag_t tags[IR_LAYOUT_COUNT_][3] = {
    [IR_LAYOUT_CHANNELS_LAST] = {dnnl_acb, dnnl_acdb, dnnl_acdeb},
    [IR_LAYOUT_BLOCKED_8] = {dnnl_aBc8b, dnnl_aBcd8b, dnnl_aBcde8b},
    [IR_LAYOUT_BLOCKED_16] = {dnnl_aBc16b, dnnl_aBcd16b, dnnl_aBcde16b},
};

const struct ir_tensor *subject_in(const struct subject *s, uint32_t i)
{
    if (i >= s->node->n_inputs || s->node->inputs[i] == IR_NONE)
        return NULL;
    return ir_tensor(s->graph, s->node->inputs[i]);
}

const struct ir_tensor *subject_out(const struct subject *s, uint32_t i)
{
    return ir_tensor(s->graph, s->node->outputs[i]);
}

uint32_t choice_threads(const struct onednn *dnn, struct choice c)
{
    return c.serial ? 1 : dnn->threads;
}

double subject_work(const struct subject *s)
{
    const struct shape *y = &subject_out(s, 0)->shape, *w = NULL;
    double work = 1;
    for (uint32_t i = 0; i < y->rank; i++)
        work *= (double)y->dim[i];
    if (s->node->op == IR_OP_CONV || s->node->op == IR_OP_DECONV) {
        w = &subject_in(s, 1)->shape;
        for (uint32_t i = 1; i < w->rank; i++)
            work *= (double)w->dim[i];
    } else if (s->node->op == IR_OP_MATMUL) {
        w = &subject_in(s, 0)->shape;
        work *= (double)w->dim[w->rank - (ir_attr_int(s->node, IR_ATTR_TRANS_A) ? 2 : 1)];
    }
    return w ? 2 * work : work;
}

static bool has_elements(const struct ir_tensor *tensor)
{
    size_t n;
    return shape_elements(&tensor->shape, &n) && n > 0;
}

static bool usable(const struct ir_tensor *tensor)
{
    return tensor->dtype == DTYPE_F32 && has_elements(tensor);
}

/* oneDNN takes no weights of UINT8. */
bool subject_is_bytes(const struct subject *s)
{
    const struct ir_tensor *x = subject_in(s, 0), *w = subject_in(s, 1), *y = subject_out(s, 0);
    bool whole = x->dtype == DTYPE_U8 || x->dtype == DTYPE_I8;
    if (stored_moves(s->graph, s->node))
        return has_elements(x) && has_elements(y);
    if (x->scale != IR_NO_SCALE || y->scale != IR_NO_SCALE)
        return false;
    if (s->node->op == IR_OP_REFORMAT)
        return x->dtype == y->dtype && has_elements(x) && (whole || x->dtype == DTYPE_I32);
    return s->dnn->vnni && ir_op_has(s->node->op, IR_TRAIT_BYTES) && !s->node->n_epilogue &&
           whole && w->dtype == DTYPE_I8 && has_elements(x) && has_elements(w) && has_elements(y) &&
           (s->node->op != IR_OP_MATMUL || ir_attr_float(s->node, IR_ATTR_ALPHA) == 1);
}

bool subject_fits(const struct subject *s)
{
    return subject_all_f32(s) || subject_is_bytes(s) || subject_is_scaled(s) || subject_is_half(s);
}

void desc_type(dnnl_memory_desc_t *md, const struct ir_tensor *tensor)
{
    static const dnnl_data_type_t types[DTYPE_COUNT_] = {[DTYPE_F32] = dnnl_f32,
                                                         [DTYPE_BF16] = dnnl_bf16,
                                                         [DTYPE_U8] = dnnl_u8,
                                                         [DTYPE_I8] = dnnl_s8,
                                                         [DTYPE_I32] = dnnl_s32};
    md->data_type = types[tensor->dtype];
}

void desc_weights(const struct subject *s, dnnl_memory_desc_t *md)
{
    desc_plain(s, md);
    if (subject_is_half(s))
        md->data_type = dnnl_bf16;
}

void desc_plain(const struct subject *s, dnnl_memory_desc_t *md)
{
    desc_type(md, subject_in(s, 1));
    if (subject_is_scaled(s))
        md->data_type = dnnl_s8;
    else if (subject_is_half(s)) /* whatever it is once it is packed */
        md->data_type = dnnl_f32;
}

void desc_bias(const struct subject *s, dnnl_memory_desc_t *md)
{
    desc_type(md, subject_out(s, 0));
    if (subject_is_scaled(s) || subject_is_half(s))
        md->data_type = dnnl_f32;
}

bool subject_biased(const struct subject *s)
{
    return subject_is_scaled(s) || (ir_node_own_inputs(s->node) > 2 && subject_in(s, 2));
}

bool subject_all_f32(const struct subject *s)
{
    for (uint32_t i = 0; i < s->node->n_inputs; i++) {
        const struct ir_tensor *t = subject_in(s, i);
        if (t && !usable(t))
            return false;
    }
    for (uint32_t i = 0; i < s->node->n_outputs; i++)
        if (!usable(subject_out(s, i)))
            return false;
    return s->node->n_outputs > 0;
}

bool desc_strides(dnnl_memory_desc_t *md, uint32_t rank, const int64_t *dims,
                  const int64_t *strides)
{
    return rank > 0 && rank <= DNNL_MAX_NDIMS &&
           dnnl_memory_desc_init_by_strides(md, (int)rank, dims, dnnl_f32, strides) == dnnl_success;
}

bool desc_layout(dnnl_memory_desc_t *md, uint32_t rank, const int64_t *dims, enum ir_layout layout)
{
    if (layout == IR_LAYOUT_PLAIN) {
        int64_t strides[SHAPE_MAX_RANK] = {0}, one = 1;
        if (rank == 0) /* oneDNN has no scalars */
            return desc_strides(md, 1, &one, &one);
        int64_t step = 1;
        for (uint32_t i = rank; i-- > 0;) {
            strides[i] = step;
            step *= dims[i];
        }
        return desc_strides(md, rank, dims, strides);
    }
    if (rank < 3 || rank > 5 || (uint32_t)layout >= IR_LAYOUT_COUNT_)
        return false;
    dnnl_format_tag_t tag = tags[layout][rank - 3];
    return tag && dnnl_memory_desc_init_by_tag(md, (int)rank, dims, dnnl_f32, tag) == dnnl_success;
}

bool desc_tensor(dnnl_memory_desc_t *md, const struct ir_tensor *tensor, enum ir_layout layout)
{
    if (!desc_layout(md, tensor->shape.rank, tensor->shape.dim, layout))
        return false;
    desc_type(md, tensor);
    return true;
}

bool desc_any(dnnl_memory_desc_t *md, uint32_t rank, const int64_t *dims)
{
    return dnnl_memory_desc_init_by_tag(md, (int)rank, dims, dnnl_f32, dnnl_format_tag_any) ==
           dnnl_success;
}

bool desc_part(dnnl_memory_desc_t *md, const dnnl_memory_desc_t *whole, const struct shape *shape,
               const int64_t *starts)
{
    dnnl_dims_t dims = {0}, offsets = {0};
    for (uint32_t i = 0; i < shape->rank; i++) {
        dims[i] = shape->dim[i];
        offsets[i] = starts[i];
    }
    return dnnl_memory_desc_init_submemory(md, whole, dims, offsets) == dnnl_success;
}

bool desc_bytes(dnnl_memory_desc_t *md, size_t size)
{
    dnnl_dims_t dims = {(dnnl_dim_t)size};
    return dnnl_memory_desc_init_by_tag(md, 1, dims, dnnl_u8, dnnl_a) == dnnl_success;
}

enum ir_layout layout_canonical(const struct shape *shape, enum ir_layout layout)
{
    bool same = shape->rank >= 3 && ir_layouts_agree(shape, IR_LAYOUT_PLAIN, layout);
    return same ? IR_LAYOUT_PLAIN : layout;
}

bool dims_padded(const struct shape *shape, uint32_t rank, int64_t *dims)
{
    if (shape->rank > rank)
        return false;
    uint32_t lead = rank - shape->rank;
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = i < lead ? 1 : shape->dim[i - lead];
    return true;
}

uint32_t dims_seen(enum seen seen, uint32_t rank, const int64_t *dims, int64_t *out)
{
    memcpy(out, dims, rank * sizeof(*dims));
    if (seen == SEEN_TURNED) {
        out[rank - 2] = dims[rank - 1];
        out[rank - 1] = dims[rank - 2];
    } else if (seen == SEEN_LIFTED) {
        out[rank - 1] = 1;
        out[rank] = dims[rank - 1];
        rank++;
    }
    return rank;
}

void recipe_init(struct recipe *r, const char *want)
{
    r->want = want;
    r->n_impls = 0;
    r->pd = NULL;
    r->n_args = 0;
    r->packed_arg = UINT32_MAX;
    memset(r->in, 0, sizeof(r->in));
    memset(r->out, 0, sizeof(r->out));
}

struct recipe *recipe_new(void)
{
    struct recipe *r = malloc(sizeof(*r));
    if (r)
        recipe_init(r, NULL);
    return r;
}

void recipe_cleanup(struct recipe **at)
{
    if (*at)
        recipe_deinit(*at);
    free(*at);
}

void attr_cleanup(dnnl_primitive_attr_t *at)
{
    if (*at)
        dnnl_primitive_attr_destroy(*at);
}

void recipe_deinit(struct recipe *r)
{
    if (r->pd)
        dnnl_primitive_desc_destroy(r->pd);
    r->pd = NULL;
}

static void add(struct recipe *r, int arg, bool output, uint32_t index,
                const dnnl_memory_desc_t *md)
{
    r->args[r->n_args++] =
        (struct recipe_arg){.arg = arg, .output = output, .index = index, .md = *md};
}

void recipe_in(const struct subject *s, struct recipe *r, int arg, uint32_t input,
               const dnnl_memory_desc_t *md, enum ir_layout layout)
{
    add(r, arg, false, input, md);
    if (input < TACTIC_PORTS_MAX)
        r->in[input].format.layout = layout_canonical(&subject_in(s, input)->shape, layout);
}

void recipe_out(const struct subject *s, struct recipe *r, int arg, uint32_t output,
                const dnnl_memory_desc_t *md, enum ir_layout layout)
{
    add(r, arg, true, output, md);
    r->out[output].format.layout = layout_canonical(&subject_out(s, output)->shape, layout);
}

void recipe_packed(const struct subject *s, struct recipe *r, int arg, uint32_t input,
                   const dnnl_memory_desc_t *want, const dnnl_memory_desc_t *plain)
{
    recipe_in(s, r, arg, input, want, IR_LAYOUT_PLAIN);
    if (dnnl_memory_desc_equal(want, plain))
        return;
    r->in[input].format.layout = IR_LAYOUT_OPAQUE;
    r->in[input].packed_bytes = dnnl_memory_desc_get_size(want);
    r->packed_arg = r->n_args - 1;
    r->plain = *plain;
}

enum status recipe_finish(const struct subject *s, struct choice c, const struct output_view *view,
                          const_dnnl_op_desc_t desc, const dnnl_memory_desc_t *plain,
                          const dnnl_memory_desc_t *bias, struct recipe *r)
{
    dnnl_primitive_attr_t attr;
    bool scaled = subject_is_scaled(s);
    TRY(scaled ? scaled_attr(s, view, c, r, &attr) : epilogue_attr(s, view, r, &attr));
    TRY(recipe_pick(s, r, desc, attr));
    const dnnl_memory_desc_t *weights = recipe_md(r, dnnl_query_weights_md, 0);
    if (scaled) {
        scaled_packed(s, r, weights, plain, bias);
        return STATUS_OK;
    }
    if (subject_biased(s))
        recipe_in(s, r, DNNL_ARG_BIAS, 2, bias, IR_LAYOUT_PLAIN);
    recipe_packed(s, r, DNNL_ARG_WEIGHTS, 1, weights, plain);
    return STATUS_OK;
}

uint32_t list_zeros(const struct subject *s, struct choice out[CHOICES_MAX], uint32_t n,
                    enum zero_point first)
{
    if (!scaled_has_zero(s) || 2 * n > CHOICES_MAX)
        return n;
    for (uint32_t i = 0; i < n; i++) {
        out[n + i] = out[i];
        out[n + i].zero = first == ZERO_IN_BIAS ? ZERO_OF_ONEDNN : ZERO_IN_BIAS;
        out[i].zero = (uint8_t)first;
    }
    return 2 * n;
}

uint32_t list_layouts(const struct subject *s, struct choice out[CHOICES_MAX])
{
    const enum ir_layout layouts[] = {s->dnn->avx512 ? IR_LAYOUT_BLOCKED_16 : IR_LAYOUT_BLOCKED_8,
                                      IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_PLAIN};
    const struct shape *shape = &subject_out(s, 0)->shape;
    uint32_t n = 0;
    for (uint32_t i = shape->rank < 3 || shape->rank > 5 ? 2 : 0; i < ARRAY_LEN(layouts); i++)
        out[n++] = (struct choice){.src = (uint8_t)layouts[i], .dst = (uint8_t)layouts[i]};
    return n;
}

static const char *name_of(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) != dnnl_success ||
        !name)
        return "?";
    return name;
}

/* Puts a name at the end of the list; a name that is in the list already moves to the end. oneDNN's
 * iterator begins with the implementation that its cache of primitives holds for the operation, and
 * later offers it again in its proper place. Only this later place does not depend on what ran
 * before. */
static void note_impl(struct recipe *r, const char *name)
{
    uint32_t at = 0;
    while (at < r->n_impls && strncmp(r->impls[at], name, IMPL_NAME_MAX - 1) != 0)
        at++;
    if (at == IMPL_MAX)
        return;
    if (at == r->n_impls)
        r->n_impls++;
    for (; at + 1 < r->n_impls; at++)
        memcpy(r->impls[at], r->impls[at + 1], IMPL_NAME_MAX);
    strncpy(r->impls[at], name, IMPL_NAME_MAX - 1);
    r->impls[at][IMPL_NAME_MAX - 1] = '\0';
}

/* Two of oneDNN 2.6's convolutions on AMX. "brgconv:" reads one element past the end of its list of
 * masked rows while it generates code, which ends the process where the list ends with a page; and
 * up to 3.13 it gives wrong results where a stride is larger than the kernel (oneDNN's pull request
 * 5494). "jit_1x1:" writes behind an output whose channels do not fill its tiles. The others on AMX
 * ("brgconv_1x1:", "jit:", "brg:", "brgemm:") pass device_ops, which looks behind each output. */
static bool is_unsafe(const char *impl)
{
    return strstr(impl, "amx") &&
           (strncmp(impl, "brgconv:", 8) == 0 || strncmp(impl, "jit_1x1:", 8) == 0);
}

enum status recipe_take(struct recipe *r, dnnl_primitive_desc_t pd)
{
    const char *name = name_of(pd);
    if (is_unsafe(name) || (r->want && strncmp(r->want, name, IMPL_NAME_MAX - 1) != 0)) {
        dnnl_primitive_desc_destroy(pd);
        return STATUS_UNIMPLEMENTED;
    }
    if (!r->want)
        note_impl(r, name);
    if (r->pd)
        dnnl_primitive_desc_destroy(pd);
    else
        r->pd = pd;
    return STATUS_OK;
}

enum status recipe_pick(const struct subject *s, struct recipe *r, const_dnnl_op_desc_t desc,
                        dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_iterator_t it = NULL;
    dnnl_status_t more = dnnl_primitive_desc_iterator_create(&it, desc, attr, s->dnn->engine, NULL);
    dnnl_primitive_attr_destroy(attr);
    while (more == dnnl_success) {
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(it);
        if (pd && !recipe_take(r, pd) && r->want)
            break;
        more = dnnl_primitive_desc_iterator_next(it);
    }
    if (it)
        dnnl_primitive_desc_iterator_destroy(it);
    if (more == dnnl_out_of_memory)
        return STATUS_RESOURCE_EXHAUSTED;
    return r->pd ? STATUS_OK : STATUS_UNIMPLEMENTED;
}

const dnnl_memory_desc_t *recipe_md(const struct recipe *r, dnnl_query_t what, int index)
{
    return dnnl_primitive_desc_query_md(r->pd, what, index);
}

const char *recipe_impl(const struct recipe *r)
{
    return name_of(r->pd);
}

enum status status_of_dnnl(dnnl_status_t dnnl)
{
    switch (dnnl) {
    case dnnl_success:
        return STATUS_OK;
    case dnnl_out_of_memory:
        return STATUS_RESOURCE_EXHAUSTED;
    case dnnl_unimplemented:
        return STATUS_UNIMPLEMENTED;
    default:
        return STATUS_INTERNAL;
    }
}
