/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of cuDNN's backend API, made one after the other; see dnn_graph.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/cuda/dnn_graph.h"

enum status dnn_build_new(struct cuda_dnn *dnn, struct dnn_build **out, struct error *err)
{
    CLEANUP(cleanup_free) struct dnn_build *b = calloc(1, sizeof(*b));
    if (!b)
        return error_no_memory(err, "cuDNN");
    b->dnn = dnn;
    b->next_virtual = DNN_VIRTUAL_UID;
    TRY(dnn_handle_take(dnn, &b->handle, err));
    *out = STEAL(b);
    return STATUS_OK;
}

void dnn_build_settle(struct dnn_build *b)
{
    dnn_handle_give(b->dnn, b->handle);
    b->handle = NULL;
}

void dnn_build_free(struct dnn_build *b)
{
    if (!b)
        return;
    while (b->n_owned > 0) /* later descriptors refer to earlier ones */
        cudnnBackendDestroyDescriptor(b->owned[--b->n_owned]);
    dnn_build_settle(b);
    free(b);
}

enum status dnn_build_error(const struct dnn_build *b, struct error *err, const char *what)
{
    enum status status = b->status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                                 b->status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
                             ? STATUS_RESOURCE_EXHAUSTED
                             : STATUS_FAILED_PRECONDITION;
    return error_set(err, status, "cuDNN: %s: %s (%s)", what, b->why,
                     cudnnGetErrorString(b->status));
}

static void fail(struct dnn_build *b, cudnnStatus_t code, const char *what)
{
    char words[512] = "";
    cudnnGetLastErrorString(words, sizeof(words));
    words[sizeof(words) - 1] = '\0';
    words[strcspn(words, "\n")] = '\0';
    b->status = code;
    snprintf(b->why, sizeof(b->why), "%s: %.100s", what, words);
}

dnn_desc dnn_make(struct dnn_build *b, cudnnBackendDescriptorType_t type, const char *what)
{
    dnn_desc d = NULL;
    if (b->status)
        return NULL;
    if (b->n_owned == DNN_OWNED_MAX) {
        fail(b, CUDNN_STATUS_NOT_SUPPORTED, "too large a graph");
        return NULL;
    }
    cudnnStatus_t code = cudnnBackendCreateDescriptor(type, &d);
    if (code) {
        fail(b, code, what);
        return NULL;
    }
    b->owned[b->n_owned++] = d;
    return d;
}

void dnn_set(struct dnn_build *b, dnn_desc d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    char what[32];
    if (b->status)
        return;
    cudnnStatus_t code = cudnnBackendSetAttribute(d, name, type, count, values);
    if (!code)
        return;
    snprintf(what, sizeof(what), "attribute %d", (int)name);
    fail(b, code, what);
}

void dnn_set_desc(struct dnn_build *b, dnn_desc d, cudnnBackendAttributeName_t name, dnn_desc value)
{
    dnn_set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void dnn_finish(struct dnn_build *b, dnn_desc d, const char *what)
{
    if (b->status)
        return;
    cudnnStatus_t code = cudnnBackendFinalize(d);
    if (code)
        fail(b, code, what);
}

bool dnn_type(enum dtype dtype, cudnnDataType_t *out)
{
    switch (dtype) {
    case DTYPE_F16:
        *out = CUDNN_DATA_HALF;
        return true;
    case DTYPE_BF16:
        *out = CUDNN_DATA_BFLOAT16;
        return true;
    case DTYPE_F32:
        *out = CUDNN_DATA_FLOAT;
        return true;
    default:
        return false;
    }
}

/* Everything we bind is aligned to BACKEND_ALIGN, or to 16 bytes within a packed constant. */
dnn_desc dnn_tensor(struct dnn_build *b, const struct dnn_tensor *t)
{
    int64_t alignment = 16, uid = t->uid ? t->uid : b->next_virtual++, rank = t->rank ? t->rank : 4;
    bool is_virtual = t->uid == 0;
    dnn_desc d = dnn_make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
    dnn_set(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, t->dim);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, t->stride);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    dnn_set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (t->by_value)
        dnn_set(b, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &t->by_value);
    dnn_finish(b, d, "tensor");
    return d;
}

dnn_desc dnn_tensor_nhwc(struct dnn_build *b, int64_t uid, cudnnDataType_t type, int32_t rank,
                         const int64_t *dim)
{
    struct dnn_tensor t = {.uid = uid, .type = type, .rank = rank};
    int64_t step = dim[1];
    memcpy(t.dim, dim, (size_t)rank * sizeof(*dim));
    for (int32_t d = rank - 1; d >= 2; d--) {
        t.stride[d] = step;
        step *= dim[d];
    }
    t.stride[0] = step;
    t.stride[1] = 1;
    return dnn_tensor(b, &t);
}

dnn_desc dnn_convolution(struct dnn_build *b, cudnnDataType_t compute,
                         const struct dnn_window *window)
{
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t n = window->spatial;
    dnn_desc conv = dnn_make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "convolution");
    dnn_set(b, conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n);
    dnn_set(b, conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    dnn_set(b, conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    dnn_set(b, conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, window->pre);
    dnn_set(b, conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, window->post);
    dnn_set(b, conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, window->stride);
    dnn_set(b, conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, window->dilation);
    dnn_finish(b, conv, "convolution");
    return conv;
}

void dnn_op_add(struct dnn_build *b, dnn_desc op, const char *what)
{
    dnn_finish(b, op, what);
    if (b->status)
        return;
    if (b->n_ops == DNN_OPS_MAX)
        fail(b, CUDNN_STATUS_NOT_SUPPORTED, "too many operations");
    else
        b->ops[b->n_ops++] = op;
}

dnn_desc dnn_pointwise(struct dnn_build *build, cudnnPointwiseMode_t mode, cudnnDataType_t compute)
{
    dnn_desc d = dnn_make(build, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise");
    dnn_set(build, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    dnn_set(build, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    return d;
}

void dnn_pointwise_add(struct dnn_build *build, dnn_desc pointwise, dnn_desc x, dnn_desc b,
                       dnn_desc t, dnn_desc y)
{
    dnn_finish(build, pointwise, "pointwise");
    dnn_desc op = dnn_make(build, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise");
    dnn_set_desc(build, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    dnn_set_desc(build, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        dnn_set_desc(build, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t)
        dnn_set_desc(build, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    dnn_set_desc(build, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    dnn_op_add(build, op, "pointwise");
}

void dnn_graph_finish(struct dnn_build *b)
{
    dnn_desc d = dnn_make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    dnn_set(b, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b->n_ops, b->ops);
    if (b->handle)
        dnn_set(b, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->handle);
    dnn_finish(b, d, "graph");
    b->graph = d;
}
