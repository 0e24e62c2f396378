/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products through cuBLASLt, as far as no device is needed: how ops are read as products (a plain
 * loop computes each product over the strides that cuBLASLt would get), descriptors, epilogues,
 * packing, names, stored tactics.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/lt.h"
#include "kernels/cpu/ref.h"
#include "tests/test.h"

enum { MOST = 4096 };

static uint32_t seed = 1;

static float next(void)
{
    seed = seed * 1664525U + 1013904223U;
    return (float)(seed >> 8) / (float)(1 << 23) - 1;
}

static const float *noise(struct ir_graph *graph, size_t n)
{
    float *data = arena_array(graph->arena, n, sizeof(*data));
    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        data[i] = next();
    return data;
}

#define SHAPE(...)                                                                                 \
    {                                                                                              \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = { __VA_ARGS__ }         \
    }

static uint32_t constant(struct ir_graph *graph, const struct shape *shape)
{
    size_t n;
    assert_true(shape_elements(shape, &n));
    return ir_constant_add(graph, "", DTYPE_F32, shape, noise(graph, n));
}

struct fixture {
    struct ir_graph *graph;
    uint32_t node;
};

/* A product of tensors of these shapes; b and bias are constants if asked for. */
static struct fixture matmul(const struct shape *a, const struct shape *b, bool ta, bool tb,
                             bool b_constant, bool biased)
{
    struct fixture f = {.graph = ir_graph_new()};
    uint32_t inputs[3];
    struct shape bias = SHAPE(b->dim[b->rank - (tb ? 2 : 1)]);
    inputs[0] = ir_tensor_add(f.graph, "a", DTYPE_F32, a);
    inputs[1] = b_constant ? constant(f.graph, b) : ir_tensor_add(f.graph, "b", DTYPE_F32, b);
    if (biased)
        inputs[2] = constant(f.graph, &bias);
    f.node = ir_node_add(f.graph, IR_OP_MATMUL, "product", biased ? 3 : 2, inputs);
    assert_true(ir_attr_set_int(f.graph, f.node, IR_ATTR_TRANS_A, ta));
    assert_true(ir_attr_set_int(f.graph, f.node, IR_ATTR_TRANS_B, tb));
    assert_int_equal(ir_infer_apply(f.graph, f.node, NULL, 0, NULL), STATUS_OK);
    return f;
}

static struct fixture conv1x1(int64_t n, int64_t c, int64_t side, int64_t m, int64_t stride)
{
    struct fixture f = {.graph = ir_graph_new()};
    struct shape x = SHAPE(n, c, side, side), w = SHAPE(m, c, 1, 1), b = SHAPE(m);
    uint32_t inputs[3] = {ir_tensor_add(f.graph, "x", DTYPE_F32, &x), constant(f.graph, &w),
                          constant(f.graph, &b)};
    f.node = ir_node_add(f.graph, IR_OP_CONV, "conv", 3, inputs);
    int64_t strides[2] = {stride, stride};
    assert_true(ir_attr_set_ints(f.graph, f.node, IR_ATTR_STRIDES, 2, strides));
    assert_int_equal(ir_infer_apply(f.graph, f.node, NULL, 0, NULL), STATUS_OK);
    return f;
}

static const struct ir_node *node_of(const struct fixture *f)
{
    return ir_node(f->graph, f->node);
}

static struct shape out_shape(const struct fixture *f)
{
    return ir_tensor(f->graph, node_of(f)->outputs[0])->shape;
}

static void add_unary(struct fixture *f, uint32_t func)
{
    struct ir_epilogue step = {.kind = IR_EPILOGUE_UNARY, .func = func, .beta = 1};
    assert_true(ir_epilogue_add(f->graph, f->node, step, IR_NONE));
}

static void add_binary(struct fixture *f, uint32_t func, const struct shape *shape)
{
    struct ir_epilogue step = {.kind = IR_EPILOGUE_BINARY, .func = func};
    uint32_t tensor = ir_tensor_add(f->graph, "operand", DTYPE_F32, shape);
    assert_true(ir_epilogue_add(f->graph, f->node, step, tensor));
}

/* --- products --- */

/* Computes, element by element, what cuBLASLt would compute for the product. */
static void run(const struct lt_product *p, const float *a, const float *b, float *y)
{
    for (int64_t l = 0; l < p->launches; l++) {
        int64_t a0 = 0, b0 = 0, y0 = 0, i = l;
        for (uint32_t k = 0; k < p->n_loops; k++) {
            a0 += i % p->loops[k].n * p->loops[k].a;
            b0 += i % p->loops[k].n * p->loops[k].b;
            y0 += i % p->loops[k].n * p->loops[k].y;
            i /= p->loops[k].n;
        }
        for (int64_t at = 0; at < p->batch.n * p->m * p->n; at++) {
            int64_t batch = at / (p->m * p->n), r = at / p->n % p->m, c = at % p->n;
            double sum = 0;
            for (int64_t k = 0; k < p->k; k++) {
                int64_t ai = p->trans_a ? k * p->m + r : r * p->k + k;
                int64_t bi = p->trans_b ? c * p->k + k : k * p->n + c;
                sum += (double)a[a0 + batch * p->batch.a + ai] *
                       (double)b[b0 + batch * p->batch.b + bi];
            }
            y[y0 + batch * p->batch.y + r * p->n + c] = (float)((double)p->alpha * sum);
        }
    }
}

static void check_product(const struct shape *a, const struct shape *b, bool ta, bool tb,
                          int64_t launches)
{
    static float as[MOST], bs[MOST], got[MOST], want[MOST];
    struct fixture f = matmul(a, b, ta, tb, false, false);
    struct lt_product p;
    assert_true(ir_attr_set_float(f.graph, f.node, IR_ATTR_ALPHA, 0.5F));
    assert_true(lt_kind_matmul.read(f.graph, node_of(&f), DTYPE_F16, false, LT_AS_IS, &p));
    assert_int_equal(p.dtype, DTYPE_F16);
    assert_int_equal(p.launches, launches);
    size_t n;
    struct shape y = out_shape(&f);
    assert_true(shape_elements(&y, &n));
    assert_in_range(n, 1, MOST);
    for (size_t i = 0; i < MOST; i++) {
        as[i] = next();
        bs[i] = next();
        got[i] = want[i] = NAN;
    }
    struct tensor_view av = {DTYPE_F32, *a, as}, bv = {DTYPE_F32, *b, bs},
                       yv = {DTYPE_F32, y, want};
    ref_matmul(ta, tb, 0.5, &av, &bv, NULL, &yv);
    run(&p, as, bs, got);
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) < 1e-5F))
            fail_msg("element %zu is %g, not %g", i, (double)got[i], (double)want[i]);
    ir_graph_free(f.graph);
}

static void test_products_are_what_the_reference_computes(void **state UNUSED)
{
    static const struct {
        struct shape a, b;
        bool ta, tb;
        int64_t launches;
    } rows[] = {
        {SHAPE(3, 5), SHAPE(5, 7), false, false, 1},
        {SHAPE(5, 3), SHAPE(7, 5), true, true, 1},
        {SHAPE(2, 3, 5), SHAPE(5, 7), false, false, 1},
        {SHAPE(2, 5, 3), SHAPE(5, 7), true, false, 1},
        {SHAPE(3, 5), SHAPE(4, 5, 7), false, false, 1},
        {SHAPE(2, 4, 3, 5), SHAPE(2, 4, 7, 5), false, true, 1},
        {SHAPE(2, 1, 3, 5), SHAPE(1, 4, 5, 7), false, false, 2},
        {SHAPE(2, 4, 3, 5), SHAPE(4, 5, 7), false, false, 2},
        {SHAPE(2, 4, 3, 5), SHAPE(2, 1, 5, 7), false, false, 1},
        {SHAPE(2, 4, 5, 3), SHAPE(2, 1, 5, 7), true, false, 2},
        {SHAPE(2, 1, 3, 1, 2, 5), SHAPE(1, 4, 1, 2, 7, 5), false, true, 12},
        {SHAPE(1, 1, 3, 5), SHAPE(5, 7), false, false, 1},
        {SHAPE(1, 5), SHAPE(5, 1), false, false, 1},
        {SHAPE(4, 1, 1), SHAPE(4, 1, 1), false, false, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_product(&rows[i].a, &rows[i].b, rows[i].ta, rows[i].tb, rows[i].launches);
}

static void test_one_matrix_on_the_right_takes_all_rows(void **state UNUSED)
{
    struct shape a = SHAPE(8, 128, 768), b = SHAPE(768, 3072);
    struct fixture f = matmul(&a, &b, false, false, true, true);
    struct lt_product p;
    assert_true(lt_kind_matmul.read(f.graph, node_of(&f), DTYPE_F16, false, LT_PACKED_NK, &p));
    assert_int_equal(p.m, 8 * 128);
    assert_int_equal(p.n, 3072);
    assert_int_equal(p.k, 768);
    assert_int_equal(p.batch.n, 1);
    assert_true(p.trans_b);
    ir_graph_free(f.graph);
}

static void test_what_is_no_product_is_refused(void **state UNUSED)
{
    struct shape a = SHAPE(3, 0), b = SHAPE(0, 7), c = SHAPE(2000, 1, 2, 2, 2),
                 d = SHAPE(1, 3000, 1, 2, 2);
    struct fixture empty = matmul(&a, &b, false, false, false, false);
    struct fixture many = matmul(&c, &d, true, false, false, false);
    struct lt_product p;
    assert_false(lt_kind_matmul.read(empty.graph, node_of(&empty), DTYPE_F16, false, 0, &p));
    assert_false(lt_kind_matmul.read(many.graph, node_of(&many), DTYPE_F16, false, 0, &p));
    struct fixture strided = conv1x1(2, 8, 4, 16, 2);
    assert_false(
        lt_kind_conv.read(strided.graph, node_of(&strided), DTYPE_F16, false, LT_PACKED_NK, &p));
    assert_false(
        lt_kind_matmul.read(strided.graph, node_of(&strided), DTYPE_F16, false, LT_PACKED_NK, &p));
    /* The tensors must have exactly the tactic's type, and they are still fp32. */
    struct fixture conv = conv1x1(2, 8, 4, 16, 1);
    assert_true(lt_kind_conv.read(conv.graph, node_of(&conv), DTYPE_F16, false, LT_PACKED_NK, &p));
    assert_false(lt_kind_conv.read(conv.graph, node_of(&conv), DTYPE_F16, true, LT_PACKED_NK, &p));
    assert_true(lt_kind_conv.read(conv.graph, node_of(&conv), DTYPE_F32, true, LT_PACKED_NK, &p));
    assert_int_equal(p.m, 2 * 4 * 4);
    assert_int_equal(p.n, 16);
    assert_int_equal(p.k, 8);
    assert_int_equal(p.axis, 1);
    ir_graph_free(empty.graph);
    ir_graph_free(many.graph);
    ir_graph_free(strided.graph);
    ir_graph_free(conv.graph);
}

/* --- epilogues --- */

static void read_conv(struct fixture *f, struct lt_product *p)
{
    assert_true(lt_kind_conv.read(f->graph, node_of(f), DTYPE_F16, false, LT_PACKED_NK, p));
}

static void test_epilogue_of_a_residual_block_is_taken_whole(void **state UNUSED)
{
    struct fixture f = conv1x1(2, 8, 4, 16, 1);
    struct shape y = out_shape(&f);
    struct lt_product p;
    struct lt_epilogue e;
    add_binary(&f, IR_BINARY_ADD, &y);
    add_unary(&f, IR_UNARY_RELU);
    read_conv(&f, &p);
    assert_int_equal(p.steps.n, 3);
    assert_int_equal(lt_epilogue_longest(&p.steps), 3);
    assert_true(lt_epilogue(&p.steps, 3, &e));
    assert_int_equal(e.bias, 2);
    assert_int_equal(e.residual, 3);
    assert_int_equal(e.act, CUBLASLT_EPILOGUE_RELU);
    assert_true(lt_epilogue(&p.steps, 0, &e));
    assert_int_equal(e.bias, IR_NONE);
    assert_int_equal(e.residual, IR_NONE);
    assert_int_equal(e.act, CUBLASLT_EPILOGUE_DEFAULT);
    assert_false(lt_epilogue(&p.steps, 4, &e));
    ir_graph_free(f.graph);
}

static void test_epilogue_stops_at_what_cublaslt_does_not_do(void **state UNUSED)
{
    struct shape a = SHAPE(4, 8), b = SHAPE(8, 6), vector = SHAPE(6), column = SHAPE(4, 1);
    static const struct {
        uint32_t unary;
        bool vector_first, column_first, bias;
        uint32_t taken, taken_f32;
    } rows[] = {
        {IR_UNARY_RELU, false, false, true, 2, 2}, {IR_UNARY_GELU_TANH, false, false, true, 2, 2},
        {IR_UNARY_GELU, false, false, true, 2, 1}, {IR_UNARY_CLIP, false, false, false, 0, 0},
        {IR_UNARY_RELU, true, false, false, 2, 2}, {IR_UNARY_RELU, true, false, true, 1, 1},
        {IR_UNARY_RELU, false, true, true, 1, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fixture f = matmul(&a, &b, false, false, true, rows[i].bias);
        struct lt_product p;
        if (rows[i].vector_first)
            add_binary(&f, IR_BINARY_ADD, &vector);
        if (rows[i].column_first)
            add_binary(&f, IR_BINARY_ADD, &column);
        add_unary(&f, rows[i].unary);
        for (enum dtype dtype = DTYPE_F16; dtype <= DTYPE_F32; dtype++) {
            assert_true(lt_kind_matmul.read(f.graph, node_of(&f), dtype, false, LT_PACKED_KN, &p));
            assert_int_equal(lt_epilogue_longest(&p.steps),
                             dtype == DTYPE_F32 ? rows[i].taken_f32 : rows[i].taken);
        }
        ir_graph_free(f.graph);
    }
}

static void test_nothing_is_taken_behind_an_activation_or_twice(void **state UNUSED)
{
    struct fixture f = conv1x1(1, 8, 3, 16, 1);
    struct shape y = out_shape(&f);
    struct lt_product p;
    add_binary(&f, IR_BINARY_ADD, &y);
    add_binary(&f, IR_BINARY_ADD, &y);
    read_conv(&f, &p);
    assert_int_equal(lt_epilogue_longest(&p.steps), 2);
    ir_graph_free(f.graph);
    f = conv1x1(1, 8, 3, 16, 1);
    add_unary(&f, IR_UNARY_RELU);
    add_binary(&f, IR_BINARY_ADD, &y);
    read_conv(&f, &p);
    assert_int_equal(lt_epilogue_longest(&p.steps), 2);
    ir_graph_free(f.graph);
    f = conv1x1(1, 8, 3, 16, 1);
    add_binary(&f, IR_BINARY_MUL, &y);
    read_conv(&f, &p);
    assert_int_equal(lt_epilogue_longest(&p.steps), 1);
    ir_graph_free(f.graph);
}

/* --- the library --- */

static const struct lt_api *library(struct cuda_lt **lt)
{
    const struct lt_api *api;
    struct error err;
    assert_int_equal(cuda_lt_new(-1, lt, NULL), STATUS_OK);
    enum status st = lt_open(*lt, &api, &err);
    if (st == STATUS_OK)
        return api;
    assert_int_equal(st, STATUS_UNIMPLEMENTED);
    print_message("%s\n", err.text);
    cuda_lt_free(*lt);
    skip();
    return NULL;
}

static uint64_t layout_number(const struct lt_api *api, cublasLtMatrixLayout_t layout,
                              cublasLtMatrixLayoutAttribute_t key, size_t size)
{
    uint64_t value = 0;
    size_t written;
    assert_int_equal(api->cublasLtMatrixLayoutGetAttribute(layout, key, &value, size, &written),
                     CUBLAS_STATUS_SUCCESS);
    return value;
}

static void assert_layout(const struct lt_api *api, cublasLtMatrixLayout_t layout,
                          const uint64_t want[6])
{
    static const struct {
        cublasLtMatrixLayoutAttribute_t key;
        size_t size;
    } keys[6] = {
        {CUBLASLT_MATRIX_LAYOUT_TYPE, 4},        {CUBLASLT_MATRIX_LAYOUT_ROWS, 8},
        {CUBLASLT_MATRIX_LAYOUT_COLS, 8},        {CUBLASLT_MATRIX_LAYOUT_LD, 8},
        {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4}, {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        uint64_t got = layout_number(api, layout, keys[i].key, keys[i].size);
        if (got != want[i])
            fail_msg("attribute %zu is %llu, not %llu", i, (unsigned long long)got,
                     (unsigned long long)want[i]);
    }
}

static uint32_t op_number(const struct lt_api *api, cublasLtMatmulDesc_t op,
                          cublasLtMatmulDescAttributes_t key)
{
    uint32_t value = 0;
    size_t written;
    assert_int_equal(api->cublasLtMatmulDescGetAttribute(op, key, &value, sizeof(value), &written),
                     CUBLAS_STATUS_SUCCESS);
    return value;
}

static void test_descriptors_say_what_the_product_is(void **state UNUSED)
{
    struct cuda_lt *lt;
    const struct lt_api *api = library(&lt);
    struct shape a = SHAPE(2, 4, 3, 5), b = SHAPE(2, 4, 7, 5);
    struct fixture f = matmul(&a, &b, false, true, false, true);
    struct lt_product p;
    struct lt_epilogue e;
    struct lt_desc d;
    add_unary(&f, IR_UNARY_RELU);
    assert_true(lt_kind_matmul.read(f.graph, node_of(&f), DTYPE_BF16, false, LT_AS_IS, &p));
    assert_true(lt_epilogue(&p.steps, 2, &e));
    assert_int_equal(lt_desc_new(api, &p, &e, &d, NULL), STATUS_OK);
    assert_int_equal(op_number(api, d.op, CUBLASLT_MATMUL_DESC_TRANSA), CUBLAS_OP_T);
    assert_int_equal(op_number(api, d.op, CUBLASLT_MATMUL_DESC_TRANSB), CUBLAS_OP_N);
    assert_int_equal(op_number(api, d.op, CUBLASLT_MATMUL_DESC_EPILOGUE),
                     CUBLASLT_EPILOGUE_RELU_BIAS);
    assert_int_equal(op_number(api, d.op, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE), CUBLAS_COMPUTE_32F);
    assert_layout(api, d.a, (uint64_t[6]){CUDA_R_16BF, 5, 7, 5, 8, 35});
    assert_layout(api, d.b, (uint64_t[6]){CUDA_R_16BF, 5, 3, 5, 8, 15});
    assert_layout(api, d.y, (uint64_t[6]){CUDA_R_16BF, 7, 3, 7, 8, 21});
    lt_desc_free(api, &d);

    assert_true(lt_kind_matmul.read(f.graph, node_of(&f), DTYPE_F32, false, LT_AS_IS, &p));
    p.tf32 = true;
    assert_true(lt_epilogue(&p.steps, 0, &e));
    assert_int_equal(lt_desc_new(api, &p, &e, &d, NULL), STATUS_OK);
    assert_int_equal(op_number(api, d.op, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE),
                     CUBLAS_COMPUTE_32F_FAST_TF32);
    assert_int_equal(op_number(api, d.op, CUBLASLT_MATMUL_DESC_EPILOGUE),
                     CUBLASLT_EPILOGUE_DEFAULT);
    lt_desc_free(api, &d);
    lt_desc_free(api, &d); /* freed ones are empty */
    ir_graph_free(f.graph);
    cuda_lt_free(lt);
}

static void test_tiles_have_their_sizes(void **state UNUSED)
{
    static const uint32_t rows[][3] = {
        {CUBLASLT_MATMUL_TILE_8x8, 8, 8},         {CUBLASLT_MATMUL_TILE_128x128, 128, 128},
        {CUBLASLT_MATMUL_TILE_256x32, 256, 32},   {CUBLASLT_MATMUL_TILE_8x128, 8, 128},
        {CUBLASLT_MATMUL_TILE_96x192, 96, 192},   {CUBLASLT_MATMUL_TILE_768x64, 768, 64},
        {CUBLASLT_MATMUL_TILE_64x16, 64, 16},     {CUBLASLT_MATMUL_TILE_128x512, 128, 512},
        {CUBLASLT_MATMUL_TILE_256x256, 256, 256}, {CUBLASLT_MATMUL_TILE_512x1024, 512, 1024},
    };
    uint32_t r, c;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_true(lt_tile_size(rows[i][0], &r, &c));
        assert_int_equal(r, rows[i][1]);
        assert_int_equal(c, rows[i][2]);
    }
    assert_true(lt_tile_size(CUBLASLT_MATMUL_TILE_END - 1, &r, &c));
    assert_false(lt_tile_size(CUBLASLT_MATMUL_TILE_END, &r, &c));
    assert_false(lt_tile_size(0, &r, &c));
}

/* --- tactics --- */

static struct tactic tactic_for(const struct lt_kind *kind, const struct fixture *f,
                                enum dtype dtype, enum lt_order order)
{
    struct cuda_lt *lt;
    const struct lt_api *api = library(&lt);
    struct lt_product p;
    struct tactic t;
    assert_true(kind->read(f->graph, node_of(f), dtype, false, order, &p));
    struct lt_blob blob = lt_blob_make(&p, order, lt_epilogue_longest(&p.steps));
    lt_tactic_fill(kind, api, f->graph, node_of(f), &p, dtype, &blob, &t);
    cuda_lt_free(lt);
    return t;
}

static void check_pack(const struct shape *b, bool tb, enum lt_order order)
{
    struct shape a = *b;
    a.dim[a.rank - 2] = 3;
    a.dim[a.rank - 1] = b->dim[b->rank - (tb ? 1 : 2)];
    struct fixture f = matmul(&a, b, false, tb, true, false);
    struct tactic t = tactic_for(&lt_kind_matmul, &f, DTYPE_F16, order);
    struct ir_tensor *w = ir_tensor(f.graph, node_of(&f)->inputs[1]);
    /* The node's first input is already what another node's tactic makes of it. */
    ir_tensor(f.graph, node_of(&f)->inputs[0])->dtype = DTYPE_BF16;
    const float *from = w->data;
    uint16_t to[MOST];
    size_t n;
    assert_true(shape_elements(b, &n));
    assert_int_equal(t.in[1].format.layout, IR_LAYOUT_OPAQUE);
    assert_int_equal(t.in[1].packed_bytes, n * sizeof(*to));
    assert_int_equal(lt_gemm_pack(&lt_kind_matmul, f.graph, node_of(&f), &t, 1, to, NULL),
                     STATUS_OK);
    int64_t rows = b->dim[b->rank - 2], cols = b->dim[b->rank - 1];
    bool swap = tb != (order == LT_PACKED_NK);
    for (int64_t i = 0; i < (int64_t)n; i++) {
        int64_t matrix = i / (rows * cols), r = i / cols % rows, c = i % cols;
        int64_t at = matrix * rows * cols + (swap ? c * rows + r : r * cols + c);
        assert_int_equal(to[at], f32_to_f16(from[i]));
    }
    struct error err;
    assert_int_equal(lt_gemm_pack(&lt_kind_matmul, f.graph, node_of(&f), &t, 0, to, &err),
                     STATUS_INVALID_ARGUMENT);
    ir_graph_free(f.graph);
}

static void test_packing_puts_weights_in_either_order(void **state UNUSED)
{
    struct shape one = SHAPE(5, 7), several = SHAPE(2, 3, 5, 7);
    for (int i = 0; i < 8; i++)
        check_pack(i & 1 ? &one : &several, i & 2, i & 4 ? LT_PACKED_NK : LT_PACKED_KN);
}

/* Gives the graph the tactic's types, layouts and packed constants, as in a plan. */
static void finish(struct fixture *f, const struct tactic *t)
{
    struct ir_node *node = ir_node(f->graph, f->node);
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        bool in = i < node->n_inputs;
        uint32_t id = in ? node->inputs[i] : node->outputs[i - node->n_inputs];
        const struct tactic_port *port = in ? &t->in[i] : &t->out[i - node->n_inputs];
        struct ir_tensor *tensor = ir_tensor(f->graph, id);
        assert_true(ir_tensor_set_format(f->graph, id, port->format));
        if (port->packed_bytes)
            tensor->bytes = port->packed_bytes;
    }
}

static void test_stored_tactics_are_read_back(void **state UNUSED)
{
    struct fixture f = conv1x1(2, 8, 4, 16, 1);
    struct shape y = out_shape(&f);
    add_binary(&f, IR_BINARY_ADD, &y);
    add_unary(&f, IR_UNARY_SWISH);
    struct tactic t = tactic_for(&lt_kind_conv, &f, DTYPE_F16, LT_PACKED_NK);
    struct lt_blob blob;
    struct lt_product p;
    struct error err = {0};
    assert_non_null(strstr(t.name, "cublaslt conv tn "));
    assert_non_null(strstr(t.name, " f16 + map"));
    assert_int_equal(t.in[0].format.layout, IR_LAYOUT_CHANNELS_LAST);
    assert_int_equal(t.in[2].format.layout, IR_LAYOUT_PLAIN);
    assert_int_equal(t.in[3].format.layout, IR_LAYOUT_CHANNELS_LAST);
    assert_int_equal(t.in[1].packed_bytes, 16 * 8 * 2);
    finish(&f, &t);
    enum status st = lt_blob_read(&lt_kind_conv, f.graph, node_of(&f), &t, &blob, &p, &err);
    if (st)
        fail_msg("%s", err.text);
    assert_int_equal(blob.taken, 2);
    assert_int_equal(p.m, 32);
    ir_graph_free(f.graph);
}

static void test_damaged_tactics_are_refused(void **state UNUSED)
{
    struct fixture f = conv1x1(2, 8, 4, 16, 1);
    add_unary(&f, IR_UNARY_RELU);
    const struct tactic good = tactic_for(&lt_kind_conv, &f, DTYPE_F16, LT_PACKED_NK);
    finish(&f, &good);
    for (int i = 0; i < 16; i++) {
        struct tactic t = good;
        struct lt_blob blob, out;
        struct lt_product p;
        struct error err = {0};
        memcpy(&blob, t.blob, sizeof(blob));
        switch (i) {
        case 0:
            blob.m++;
            break;
        case 1:
            blob.n = -1;
            break;
        case 2:
            blob.k = INT64_MAX;
            break;
        case 3:
            blob.batch = 2;
            break;
        case 4:
            blob.dtype = DTYPE_F32;
            break;
        case 5:
            blob.tf32 = 1;
            break;
        case 6:
            blob.order = LT_ORDER_COUNT_;
            break;
        case 7:
            blob.order = LT_AS_IS;
            break;
        case 8:
            blob.taken = 3;
            break;
        case 9:
            blob.workspace = UINT64_C(1) << 62;
            break;
        case 10:
            t.blob_size--;
            break;
        case 11:
            t.id ^= 0x10000;
            break;
        case 12:
            t.in[0].format.dtype = DTYPE_BF16;
            break;
        case 13:
            t.in[1].packed_bytes--;
            break;
        case 14:
            t.in[0].format.layout = IR_LAYOUT_PLAIN;
            break;
        default:
            t.in[2].packed_bytes = 32;
            break;
        }
        memcpy(t.blob, &blob, sizeof(blob));
        enum status st = lt_blob_read(&lt_kind_conv, f.graph, node_of(&f), &t, &out, &p, &err);
        if (st != STATUS_INVALID_ARGUMENT)
            fail_msg("damage %d gives %s", i, status_name(st));
        assert_non_null(strstr(err.text, "'conv'"));
    }
    ir_graph_free(f.graph);
}

static void test_without_a_device_there_are_no_candidates(void **state UNUSED)
{
    struct fixture f = conv1x1(2, 8, 4, 16, 1);
    struct cuda_device device = {.ordinal = -1};
    assert_int_equal(lt_gemm_candidates(&lt_kind_conv, &device, f.graph, node_of(&f), PRECISION_F16,
                                        NULL, NULL, NULL),
                     STATUS_OK);
    ir_graph_free(f.graph);
}

static void test_a_plan_without_its_library_or_device_is_refused(void **state UNUSED)
{
    struct fixture f = conv1x1(2, 8, 4, 16, 1);
    struct tactic t = tactic_for(&lt_kind_conv, &f, DTYPE_F16, LT_PACKED_NK);
    struct cuda_device device = {.ordinal = -1};
    struct backend_stream stream = {.device = &device};
    struct backend_op *op = NULL;
    struct error err;
    finish(&f, &t);
    assert_int_equal(cuda_lt_new(-1, &device.lt, NULL), STATUS_OK);
    assert_int_equal(cuda_family_lt_conv.prepare(&stream, f.graph, node_of(&f), &t, &op, &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "no device"));
    assert_null(op);
    cuda_lt_free(device.lt);
    ir_graph_free(f.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_what_the_reference_computes),
        cmocka_unit_test(test_one_matrix_on_the_right_takes_all_rows),
        cmocka_unit_test(test_what_is_no_product_is_refused),
        cmocka_unit_test(test_epilogue_of_a_residual_block_is_taken_whole),
        cmocka_unit_test(test_epilogue_stops_at_what_cublaslt_does_not_do),
        cmocka_unit_test(test_nothing_is_taken_behind_an_activation_or_twice),
        cmocka_unit_test(test_descriptors_say_what_the_product_is),
        cmocka_unit_test(test_tiles_have_their_sizes),
        cmocka_unit_test(test_packing_puts_weights_in_either_order),
        cmocka_unit_test(test_stored_tactics_are_read_back),
        cmocka_unit_test(test_damaged_tactics_are_refused),
        cmocka_unit_test(test_without_a_device_there_are_no_candidates),
        cmocka_unit_test(test_a_plan_without_its_library_or_device_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
