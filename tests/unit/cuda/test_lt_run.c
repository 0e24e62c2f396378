/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates, preparation and launch of products, with cuBLASLt's own descriptors but a stand-in
 * for all that needs a device: heuristics that return a few made-up algorithms, and a product that
 * is computed here from descriptors and addresses alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/lt.h"
#include "kernels/cpu/ref.h"
#include "tests/test.h"

enum { WORKSPACE = 4096 };

static uint32_t seed = 7;

static float next(void)
{
    seed = seed * 1664525U + 1013904223U;
    return (float)(seed >> 8) / (float)(1 << 23) - 1;
}

/* --- the stand-in --- */

static struct lt_api real; /* the library's own functions; they have no handle */

struct matrix {
    uint64_t type, rows, cols, ld, batch, step;
};

static uint64_t number(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t key,
                       size_t size)
{
    uint64_t value = 0;
    size_t written;
    assert_int_equal(real.cublasLtMatrixLayoutGetAttribute(layout, key, &value, size, &written),
                     CUBLAS_STATUS_SUCCESS);
    return value;
}

static struct matrix read_layout(cublasLtMatrixLayout_t layout)
{
    return (struct matrix){
        .type = number(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, 4),
        .rows = number(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, 8),
        .cols = number(layout, CUBLASLT_MATRIX_LAYOUT_COLS, 8),
        .ld = number(layout, CUBLASLT_MATRIX_LAYOUT_LD, 8),
        .batch = number(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4),
        .step = number(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8),
    };
}

static uint64_t op_number(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t key, size_t size)
{
    uint64_t value = 0;
    size_t written;
    assert_int_equal(real.cublasLtMatmulDescGetAttribute(op, key, &value, size, &written),
                     CUBLAS_STATUS_SUCCESS);
    return value;
}

static float load(uint64_t type, const void *data, uint64_t i)
{
    const uint16_t *half = data;
    return type == CUDA_R_32F   ? ((const float *)data)[i]
           : type == CUDA_R_16F ? f16_to_f32(half[i])
                                : bf16_to_f32(half[i]);
}

static void store(uint64_t type, void *data, uint64_t i, float value)
{
    uint16_t *half = data;
    if (type == CUDA_R_32F)
        ((float *)data)[i] = value;
    else
        half[i] = type == CUDA_R_16F ? f32_to_f16(value) : f32_to_bf16(value);
}

/* Element (r, c) of op(X), in column-major order. */
static float element(const struct matrix *m, const void *data, bool transposed, uint64_t batch,
                     uint64_t r, uint64_t c)
{
    uint64_t row = transposed ? c : r, col = transposed ? r : c;
    assert_in_range(row, 0, m->rows - 1);
    assert_in_range(col, 0, m->cols - 1);
    return load(m->type, data, batch * m->step + col * m->ld + row);
}

static float activate(uint64_t epilogue, float x)
{
    if (epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
        return x < 0 ? 0 : x;
    if (epilogue == CUBLASLT_EPILOGUE_GELU || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS)
        return x / 2 * (1 + tanhf(0.797884561F * (x + 0.044715F * x * x * x)));
    return x;
}

static int launches;

static cublasStatus_t stand_in_matmul(cublasLtHandle_t handle UNUSED, cublasLtMatmulDesc_t op,
                                      const void *alpha, const void *a, cublasLtMatrixLayout_t al,
                                      const void *b, cublasLtMatrixLayout_t bl, const void *beta,
                                      const void *c, cublasLtMatrixLayout_t cl, void *d,
                                      cublasLtMatrixLayout_t dl, const cublasLtMatmulAlgo_t *algo,
                                      void *workspace, size_t size, cudaStream_t stream UNUSED)
{
    struct matrix am = read_layout(al), bm = read_layout(bl), dm = read_layout(dl);
    bool ta = op_number(op, CUBLASLT_MATMUL_DESC_TRANSA, 4) == CUBLAS_OP_T;
    bool tb = op_number(op, CUBLASLT_MATMUL_DESC_TRANSB, 4) == CUBLAS_OP_T;
    uint64_t epilogue = op_number(op, CUBLASLT_MATMUL_DESC_EPILOGUE, 4);
    bool biased = epilogue & CUBLASLT_EPILOGUE_BIAS;
    const void *bias =
        biased ? (const void *)op_number(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8) : NULL;
    assert_ptr_equal(cl, dl);
    assert_int_equal(algo->data[0], 1000);
    assert_int_equal(size, WORKSPACE);
    assert_int_equal((uintptr_t)workspace % 256, 0);
    memset(workspace, 0xff, size);
    for (uint64_t i = 0; i < dm.batch; i++)
        for (uint64_t col = 0; col < dm.cols; col++)
            for (uint64_t row = 0; row < dm.rows; row++) {
                double sum = 0;
                for (uint64_t k = 0; k < (ta ? am.rows : am.cols); k++)
                    sum += (double)element(&am, a, ta, i, row, k) *
                           (double)element(&bm, b, tb, i, k, col);
                uint64_t at = i * dm.step + col * dm.ld + row;
                float y = *(const float *)alpha * (float)sum;
                y += *(const float *)beta == 0 ? 0 : *(const float *)beta * load(dm.type, c, at);
                y += biased ? load(dm.type, bias, row) : 0;
                store(dm.type, d, at, activate(epilogue, y));
            }
    launches++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t stand_in_heuristic(
    cublasLtHandle_t handle UNUSED, cublasLtMatmulDesc_t op UNUSED, cublasLtMatrixLayout_t a UNUSED,
    cublasLtMatrixLayout_t b UNUSED, cublasLtMatrixLayout_t c UNUSED,
    cublasLtMatrixLayout_t d UNUSED, cublasLtMatmulPreference_t preference UNUSED, int most,
    cublasLtMatmulHeuristicResult_t *results, int *n)
{
    assert_in_range(most, 3, 32);
    for (int i = 0; i < 3; i++)
        results[i] = (cublasLtMatmulHeuristicResult_t){
            .algo = {{1000, (uint64_t)i}},
            .workspaceSize = WORKSPACE,
            .state = i == 1 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS,
        };
    *n = 3;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t stand_in_check(cublasLtHandle_t handle UNUSED, cublasLtMatmulDesc_t op UNUSED,
                                     cublasLtMatrixLayout_t a UNUSED,
                                     cublasLtMatrixLayout_t b UNUSED,
                                     cublasLtMatrixLayout_t c UNUSED,
                                     cublasLtMatrixLayout_t d UNUSED,
                                     const cublasLtMatmulAlgo_t *algo,
                                     cublasLtMatmulHeuristicResult_t *result)
{
    result->workspaceSize = WORKSPACE;
    return algo->data[0] == 1000 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t stand_in_destroy(cublasLtHandle_t handle UNUSED)
{
    return CUBLAS_STATUS_SUCCESS;
}

/* --- a device without hardware that has it --- */

static struct cuda_device device;
static struct backend_stream stream = {.device = &device};
static struct cuda_lt *library;

static int setup(void **state UNUSED)
{
    const struct lt_api *api;
    if (cuda_lt_new(-1, &library, NULL) || cuda_lt_new(-1, &device.lt, NULL))
        return -1;
    if (lt_open(library, &api, NULL))
        return 0;
    real = *api;
    struct lt_api made = real;
    made.handle = (cublasLtHandle_t)(uintptr_t)8;
    made.cublasLtDestroy = stand_in_destroy;
    made.cublasLtMatmul = stand_in_matmul;
    made.cublasLtMatmulAlgoGetHeuristic = stand_in_heuristic;
    made.cublasLtMatmulAlgoCheck = stand_in_check;
    lt_adopt(device.lt, &made);
    return 0;
}

static int teardown(void **state UNUSED)
{
    cuda_lt_free(device.lt);
    cuda_lt_free(library);
    return 0;
}

static void need_library(void)
{
    if (real.version == 0) {
        print_message("cublasLt is not installed\n");
        skip();
    }
}

/* --- graphs --- */

#define SHAPE(...)                                                                                 \
    (struct shape)                                                                                 \
    {                                                                                              \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = { __VA_ARGS__ }         \
    }

static uint32_t constant(struct ir_graph *graph, struct shape shape)
{
    size_t n;
    assert_true(shape_elements(&shape, &n));
    float *data = arena_array(graph->arena, n, sizeof(*data));
    for (size_t i = 0; i < n; i++)
        data[i] = next();
    return ir_constant_add(graph, "", DTYPE_F32, &shape, data);
}

struct option {
    bool trans_a, trans_b, b_constant, biased, residual;
    uint32_t act; /* IR_UNARY_IDENTITY: no unary step */
    float alpha;
};

static void epilogue(struct ir_graph *graph, const struct option *o)
{
    const struct shape y = ir_tensor(graph, ir_node(graph, 0)->outputs[0])->shape;
    struct ir_epilogue add = {.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD};
    struct ir_epilogue act = {.kind = IR_EPILOGUE_UNARY, .func = o->act};
    if (o->residual)
        assert_true(
            ir_epilogue_add(graph, 0, add, ir_tensor_add(graph, "residual", DTYPE_F32, &y)));
    if (o->act != IR_UNARY_IDENTITY)
        assert_true(ir_epilogue_add(graph, 0, act, IR_NONE));
}

static struct ir_graph *matmul(struct shape a, struct shape b, const struct option *o)
{
    struct ir_graph *graph = ir_graph_new();
    uint32_t inputs[3] = {ir_tensor_add(graph, "a", DTYPE_F32, &a)};
    inputs[1] = o->b_constant ? constant(graph, b) : ir_tensor_add(graph, "b", DTYPE_F32, &b);
    inputs[2] = o->biased ? constant(graph, SHAPE(b.dim[b.rank - (o->trans_b ? 2 : 1)])) : 0;
    ir_node_add(graph, IR_OP_MATMUL, "product", o->biased ? 3 : 2, inputs);
    assert_true(ir_attr_set_int(graph, 0, IR_ATTR_TRANS_A, o->trans_a) &&
                ir_attr_set_int(graph, 0, IR_ATTR_TRANS_B, o->trans_b) &&
                ir_attr_set_float(graph, 0, IR_ATTR_ALPHA, o->alpha));
    assert_int_equal(ir_infer_apply(graph, 0, NULL, 0, NULL), STATUS_OK);
    epilogue(graph, o);
    return graph;
}

static struct ir_graph *conv(int64_t n, int64_t c, int64_t side, int64_t m, const struct option *o)
{
    struct ir_graph *graph = ir_graph_new();
    struct shape x = SHAPE(n, c, side, side + 1);
    uint32_t inputs[3] = {ir_tensor_add(graph, "x", DTYPE_F32, &x)};
    inputs[1] = constant(graph, SHAPE(m, c, 1, 1));
    inputs[2] = constant(graph, SHAPE(m));
    ir_node_add(graph, IR_OP_CONV, "conv", o->biased ? 3 : 2, inputs);
    assert_int_equal(ir_infer_apply(graph, 0, NULL, 0, NULL), STATUS_OK);
    epilogue(graph, o);
    return graph;
}

/* --- running a candidate --- */

/* The offset in memory of element i of a dense tensor. */
static size_t place(const struct shape *s, enum ir_layout layout, size_t i)
{
    if (layout != IR_LAYOUT_CHANNELS_LAST)
        return i;
    size_t c = (size_t)s->dim[1], inner = 1;
    for (uint32_t d = 2; d < s->rank; d++)
        inner *= (size_t)s->dim[d];
    return (i / inner / c * inner + i % inner) * c + i / inner % c;
}

static uint64_t type_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? CUDA_R_32F : dtype == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* Fills the tensors' values, rounded to the tactic's type, and their memory in the tactic's
 * layout. */
struct values {
    float *dense[IR_MAX_INPUTS];
    void *memory[IR_MAX_INPUTS];
};

static void fill(struct ir_graph *graph, const struct tactic *t, struct values *v)
{
    const struct ir_node *node = ir_node(graph, 0);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        struct ir_tensor *tensor = ir_tensor(graph, node->inputs[i]);
        size_t n;
        assert_true(shape_elements(&tensor->shape, &n));
        v->dense[i] = calloc(n, sizeof(float));
        v->memory[i] = malloc(MAX(n * 4, t->in[i].packed_bytes));
        for (size_t k = 0; k < n; k++) {
            float value = tensor->data ? ((const float *)tensor->data)[k] : next();
            uint64_t type = type_of(tactic_float(t));
            size_t at = place(&tensor->shape, t->in[i].format.layout, k);
            store(type, v->memory[i], at, value);
            v->dense[i][k] = load(type, v->memory[i], at);
        }
        if (t->in[i].packed_bytes) {
            enum status st =
                cuda_family_lt_matmul.id == t->id >> 16
                    ? cuda_family_lt_matmul.pack(&device, graph, node, t, i, v->memory[i], NULL)
                    : cuda_family_lt_conv.pack(&device, graph, node, t, i, v->memory[i], NULL);
            assert_int_equal(st, STATUS_OK);
        }
    }
}

/* Gives the graph's tensors the types and layouts that the tuner would. */
static void retype(struct ir_graph *graph, const struct tactic *t)
{
    const struct ir_node *node = ir_node(graph, 0);
    for (uint32_t i = 0; i <= node->n_inputs; i++) {
        uint32_t id = i < node->n_inputs ? node->inputs[i] : node->outputs[0];
        const struct tactic_port *port = i < node->n_inputs ? &t->in[i] : &t->out[0];
        struct ir_tensor *tensor = ir_tensor(graph, id);
        assert_true(ir_tensor_set_format(graph, id, port->format));
        if (port->packed_bytes)
            tensor->bytes = port->packed_bytes;
    }
}

static void want(struct ir_graph *graph, const struct option *o, const struct values *v, float *y)
{
    const struct ir_node *node = ir_node(graph, 0);
    const struct shape *ys = &ir_tensor(graph, node->outputs[0])->shape;
    struct tensor_view in[3], out = {DTYPE_F32, *ys, y};
    size_t n;
    for (uint32_t i = 0; i < 3 && i < node->n_inputs; i++)
        in[i] =
            (struct tensor_view){DTYPE_F32, ir_tensor(graph, node->inputs[i])->shape, v->dense[i]};
    struct ref_window win = {.rank = 2, .kernel = {1, 1}, .strides = {1, 1}, .dilations = {1, 1}};
    if (node->op == IR_OP_CONV)
        ref_conv(&win, 1, &in[0], &in[1], o->biased ? &in[2] : NULL, &out);
    else
        ref_matmul(o->trans_a, o->trans_b, (double)o->alpha, &in[0], &in[1],
                   o->biased ? &in[2] : NULL, &out);
    assert_true(shape_elements(ys, &n));
    for (size_t i = 0; i < n; i++) {
        y[i] += o->residual ? v->dense[node->n_inputs - 1][i] : 0;
        if (o->act != IR_UNARY_IDENTITY)
            y[i] = activate(
                o->act == IR_UNARY_RELU ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_GELU, y[i]);
    }
}

struct kept {
    struct tactic tactics[16];
    uint32_t n;
};

static enum status keep(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct kept *kept = user;
    assert_in_range(kept->n, 0, ARRAY_LEN(kept->tactics) - 1);
    kept->tactics[kept->n++] = *tactic;
    return STATUS_OK;
}

static void run(struct ir_graph *graph, const struct option *o, const struct tactic *t,
                int launches_wanted)
{
    const struct cuda_family *family =
        t->id >> 16 == CUDA_FAMILY_LT_CONV ? &cuda_family_lt_conv : &cuda_family_lt_matmul;
    const struct ir_tensor *y = ir_tensor(graph, ir_node(graph, 0)->outputs[0]);
    struct values v = {0};
    struct backend_op *op;
    struct error err = {0};
    size_t n;
    assert_true(shape_elements(&y->shape, &n));
    fill(graph, t, &v);
    retype(graph, t);
    if (family->prepare(&stream, graph, ir_node(graph, 0), t, &op, &err))
        fail_msg("%s: %s", t->name, err.text);
    float *expected = calloc(n, sizeof(*expected));
    void *out = malloc(n * 4), *workspace = malloc(op->workspace);
    memset(out, 0xff, n * 4);
    assert_in_range(op->workspace, WORKSPACE, WORKSPACE + 256);
    want(graph, o, &v, expected);
    launches = 0;
    assert_int_equal(op->launch(op, &stream, v.memory, &out, workspace, &err), STATUS_OK);
    assert_int_equal(launches, launches_wanted);
    float tolerance = tactic_float(t) == DTYPE_F32   ? 1e-5F
                      : tactic_float(t) == DTYPE_F16 ? 4e-3F
                                                     : 4e-2F;
    for (size_t i = 0; i < n; i++) {
        float got =
            load(type_of(tactic_float(t)), out, place(&y->shape, t->out[0].format.layout, i));
        if (!(fabsf(got - expected[i]) <= tolerance * (1 + fabsf(expected[i]))))
            fail_msg("%s: element %zu is %g, not %g", t->name, i, (double)got, (double)expected[i]);
    }
    for (uint32_t i = 0; i < IR_MAX_INPUTS; i++) {
        free(v.dense[i]);
        free(v.memory[i]);
    }
    free(expected), free(out), free(workspace);
    op->free(op);
}

/* Every candidate of each precision gives what the reference does. */
static void check(struct ir_graph *(*make)(const void *), const void *what, const struct option *o,
                  const struct lt_kind *kind, uint32_t candidates, int launches_wanted)
{
    static const enum precision precisions[] = {PRECISION_F32, PRECISION_TF32, PRECISION_F16,
                                                PRECISION_BF16};
    for (size_t p = 0; p < ARRAY_LEN(precisions); p++) {
        static struct kept kept; /* too large for the stack */
        kept.n = 0;
        struct ir_graph *graph = make(what);
        assert_int_equal(lt_gemm_candidates(kind, &device, graph, ir_node(graph, 0), precisions[p],
                                            keep, &kept, NULL),
                         STATUS_OK);
        assert_int_equal(kept.n, candidates + (precisions[p] < PRECISION_F16 ? 0 : 2));
        ir_graph_free(graph);
        for (uint32_t i = 0; i < kept.n; i++) {
            graph = make(what);
            run(graph, o, &kept.tactics[i], launches_wanted);
            ir_graph_free(graph);
        }
    }
}

struct product {
    struct shape a, b;
    struct option o;
    uint32_t candidates; /* candidates of one type: two algorithms for each order of B */
    int launches;
};

static struct ir_graph *make_matmul(const void *what)
{
    const struct product *p = what;
    return matmul(p->a, p->b, &p->o);
}

static void test_matrix_products(void **state UNUSED)
{
    need_library();
    device.ordinal = 0;
    const struct product rows[] = {
        {SHAPE(3, 5), SHAPE(5, 7), {.alpha = 1, .b_constant = true}, 4, 1},
        {SHAPE(2, 3, 5),
         SHAPE(5, 7),
         {.alpha = 0.5F, .b_constant = true, .biased = true, .act = IR_UNARY_RELU},
         4,
         1},
        {SHAPE(2, 3, 5),
         SHAPE(7, 5),
         {.alpha = 1,
          .trans_b = true,
          .b_constant = true,
          .biased = true,
          .residual = true,
          .act = IR_UNARY_GELU_TANH},
         4,
         1},
        {SHAPE(2, 5, 3), SHAPE(2, 5, 7), {.alpha = 2, .trans_a = true, .residual = true}, 2, 1},
        {SHAPE(2, 4, 3, 5), SHAPE(2, 4, 7, 5), {.alpha = 0.125F, .trans_b = true}, 2, 1},
        {SHAPE(3, 1, 3, 5),
         SHAPE(2, 5, 7),
         {.alpha = 1, .biased = true, .residual = true, .act = IR_UNARY_RELU},
         2,
         2},
        {SHAPE(4, 3, 5), SHAPE(4, 5, 7), {.alpha = 1, .b_constant = true, .biased = true}, 4, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check(make_matmul, &rows[i], &rows[i].o, &lt_kind_matmul, rows[i].candidates,
              rows[i].launches);
}

static struct ir_graph *make_conv(const void *what)
{
    return conv(2, 8, 3, 12, what);
}

static void test_convolutions(void **state UNUSED)
{
    need_library();
    device.ordinal = 0;
    static const struct option rows[] = {
        {.biased = true, .residual = true, .act = IR_UNARY_RELU},
        {.biased = true, .act = IR_UNARY_RELU},
        {.residual = true},
        {.act = IR_UNARY_IDENTITY},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check(make_conv, &rows[i], &rows[i], &lt_kind_conv, 4, 1);
}

static void test_an_algorithm_that_does_not_fit_is_refused(void **state UNUSED)
{
    need_library();
    device.ordinal = 0;
    struct option o = {.biased = true};
    static struct kept kept; /* too large for the stack */
    kept.n = 0;
    struct ir_graph *graph = conv(1, 8, 3, 12, &o);
    struct backend_op *op = NULL;
    struct error err;
    assert_int_equal(lt_gemm_candidates(&lt_kind_conv, &device, graph, ir_node(graph, 0),
                                        PRECISION_F32, keep, &kept, NULL),
                     STATUS_OK);
    struct tactic t = kept.tactics[0];
    struct lt_blob blob;
    retype(graph, &t);
    memcpy(&blob, t.blob, sizeof(blob));
    blob.algo.data[0] = 5;
    memcpy(t.blob, &blob, sizeof(blob));
    assert_int_equal(cuda_family_lt_conv.prepare(&stream, graph, ir_node(graph, 0), &t, &op, &err),
                     STATUS_UNIMPLEMENTED);
    assert_null(op);
    blob.algo.data[0] = 1000;
    blob.version++;
    memcpy(t.blob, &blob, sizeof(blob));
    assert_int_equal(cuda_family_lt_conv.prepare(&stream, graph, ir_node(graph, 0), &t, &op, &err),
                     STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "version"));
    ir_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix_products),
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_an_algorithm_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
