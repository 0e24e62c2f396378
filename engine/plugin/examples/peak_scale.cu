/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin of one op with kernels for CUDA, in the domain example.inferd:
 *
 *   PeakScale(X[N,..]) -> Y[N,..], peak[N]   attribute to (default 1)
 *       each instance of X times `to` over its largest magnitude, which is peak; zeros stay zeros
 *
 *   nvcc -shared -Xcompiler -fPIC -O2 peak_scale.cu -o peak_scale.so \
 *       $(pkg-config --cflags inferd-engine)
 *   inferctl build model.onnx -o model.plan --device cuda --precision fp16 --plugin peak_scale.so
 *
 * Two of its kernels run on the GPU: `one-block` gives each instance one block, `parts` gives it
 * many, which leave what they find in the workspace for a second launch. Both take FP32, FP16 and
 * BF16. The file needs no GPU where nodes run on the CPU.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <inferd_plugin.h>

namespace
{

constexpr int THREADS = 256;
constexpr int64_t PART = 4096, PARTS_MAX = 64;

/* --- the node --- */

float target(const inferd_plugin_node *node)
{
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (!strcmp(node->attrs[i].name, "to"))
            return node->attrs[i].floats[0];
    return 1;
}

int64_t instances(const inferd_plugin_node *node)
{
    return node->inputs[0].dim[0];
}

int64_t size_of(const inferd_plugin_node *node)
{
    int64_t n = 1;
    for (uint32_t i = 1; i < node->inputs[0].rank; i++)
        n *= node->inputs[0].dim[i];
    return n;
}

int infer(const inferd_plugin_node *node, inferd_plugin_tensor *outputs, uint32_t *n_outputs,
          char *why, size_t why_size)
{
    const inferd_plugin_tensor *x = &node->inputs[0];
    bool floats = x->dtype == INFERD_PLUGIN_FP32 || x->dtype == INFERD_PLUGIN_FP16 ||
                  x->dtype == INFERD_PLUGIN_BF16;
    if (node->n_inputs != 1 || !floats || x->rank < 1) {
        snprintf(why, why_size, "one input [N,..] of FP32, FP16 or BF16 was expected");
        return 1;
    }
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, "to") != 0 || node->attrs[i].kind != INFERD_PLUGIN_FLOATS ||
            node->attrs[i].count != 1) {
            snprintf(why, why_size, "the only attribute is `to`, a number");
            return 1;
        }
    outputs[0] = *x;
    outputs[1] = *x;
    outputs[1].rank = 1;
    *n_outputs = 2;
    return 0;
}

/* --- on the CPU --- */

template <class T> void reference_of(const inferd_plugin_call *call)
{
    const inferd_plugin_node *node = call->node;
    const T *x = static_cast<const T *>(call->inputs[0]);
    T *y = static_cast<T *>(call->outputs[0]);
    int64_t size = size_of(node);
    for (int64_t n = 0; n < instances(node); n++, x += size, y += size) {
        float most = 0;
        for (int64_t i = 0; i < size; i++)
            most = fmaxf(most, fabsf(static_cast<float>(x[i])));
        float factor = most > 0 ? target(node) / most : 0;
        for (int64_t i = 0; i < size; i++)
            y[i] = static_cast<T>(static_cast<float>(x[i]) * factor);
        if (node->n_outputs > 1)
            static_cast<T *>(call->outputs[1])[n] = static_cast<T>(most);
    }
}

int reference(const inferd_plugin_call *call)
{
    switch (call->node->inputs[0].dtype) {
    case INFERD_PLUGIN_FP16:
        reference_of<__half>(call);
        return 0;
    case INFERD_PLUGIN_BF16:
        reference_of<__nv_bfloat16>(call);
        return 0;
    default:
        reference_of<float>(call);
        return 0;
    }
}

/* --- on the GPU --- */

/* The largest number of a block's threads, for each of them. */
__device__ float block_most(float mine)
{
    __shared__ float all[THREADS];
    all[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned step = THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step)
            all[threadIdx.x] = fmaxf(all[threadIdx.x], all[threadIdx.x + step]);
        __syncthreads();
    }
    float most = all[0];
    __syncthreads();
    return most;
}

template <class T> __device__ float most_of(const T *x, int64_t begin, int64_t end)
{
    float most = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        most = fmaxf(most, fabsf(static_cast<float>(x[i])));
    return block_most(most);
}

template <class T>
__device__ void scale(const T *x, T *y, int64_t begin, int64_t end, float to, float most)
{
    float factor = most > 0 ? to / most : 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        y[i] = static_cast<T>(static_cast<float>(x[i]) * factor);
}

template <class T> __global__ void one_block(const T *x, T *y, T *peak, int64_t size, float to)
{
    int64_t at = blockIdx.x * size;
    float most = most_of(x + at, 0, size);
    scale(x + at, y + at, 0, size, to, most);
    if (peak && threadIdx.x == 0)
        peak[blockIdx.x] = static_cast<T>(most);
}

/* Block (n, p) looks at part p of instance n. */
template <class T> __global__ void find_parts(const T *x, float *found, int64_t size, int64_t part)
{
    int64_t begin = blockIdx.y * part, end = begin + part < size ? begin + part : size;
    float most = most_of(x + blockIdx.x * size, begin, end);
    if (threadIdx.x == 0)
        found[blockIdx.x * gridDim.y + blockIdx.y] = most;
}

template <class T>
__global__ void scale_parts(const T *x, T *y, T *peak, const float *found, int64_t size,
                            int64_t part, float to)
{
    int64_t begin = blockIdx.y * part, end = begin + part < size ? begin + part : size;
    int64_t at = blockIdx.x * size;
    found += blockIdx.x * gridDim.y;
    float most = block_most(threadIdx.x < gridDim.y ? found[threadIdx.x] : 0);
    scale(x + at, y + at, begin, end, to, most);
    if (peak && threadIdx.x == 0 && blockIdx.y == 0)
        peak[blockIdx.x] = static_cast<T>(most);
}

/* --- launches --- */

int64_t parts_of(const inferd_plugin_node *node)
{
    int64_t parts = (size_of(node) + PART - 1) / PART;
    return parts < PARTS_MAX ? parts : PARTS_MAX;
}

int takes_all(const inferd_plugin_node *node)
{
    return instances(node) > 0 && instances(node) < 1 << 30;
}

int takes_large(const inferd_plugin_node *node)
{
    return takes_all(node) && parts_of(node) > 1;
}

uint64_t parts_workspace(const inferd_plugin_node *node)
{
    return static_cast<uint64_t>(instances(node) * parts_of(node)) * sizeof(float);
}

template <class T> void launch_one_block(const inferd_plugin_call *call)
{
    const inferd_plugin_node *node = call->node;
    cudaStream_t stream = static_cast<cudaStream_t>(call->stream);
    const T *x = static_cast<const T *>(call->inputs[0]);
    T *y = static_cast<T *>(call->outputs[0]);
    T *peak = node->n_outputs > 1 ? static_cast<T *>(call->outputs[1]) : nullptr;
    unsigned n = static_cast<unsigned>(instances(node));
    one_block<T><<<n, THREADS, 0, stream>>>(x, y, peak, size_of(node), target(node));
}

template <class T> void launch_parts(const inferd_plugin_call *call)
{
    const inferd_plugin_node *node = call->node;
    cudaStream_t stream = static_cast<cudaStream_t>(call->stream);
    const T *x = static_cast<const T *>(call->inputs[0]);
    T *y = static_cast<T *>(call->outputs[0]);
    T *peak = node->n_outputs > 1 ? static_cast<T *>(call->outputs[1]) : nullptr;
    float *found = static_cast<float *>(call->workspace);
    int64_t size = size_of(node), parts = parts_of(node), part = (size + parts - 1) / parts;
    dim3 grid(static_cast<unsigned>(instances(node)), static_cast<unsigned>(parts));
    find_parts<T><<<grid, THREADS, 0, stream>>>(x, found, size, part);
    scale_parts<T><<<grid, THREADS, 0, stream>>>(x, y, peak, found, size, part, target(node));
}

/* What a launch returns is that of the plugin's own CUDA runtime, so it asks. */
int launched(const inferd_plugin_call *call)
{
    cudaError_t code = cudaGetLastError();
    if (code != cudaSuccess)
        snprintf(call->why, call->why_size, "%s", cudaGetErrorString(code));
    return code != cudaSuccess;
}

int run_one_block(const inferd_plugin_call *call)
{
    switch (call->node->inputs[0].dtype) {
    case INFERD_PLUGIN_FP16:
        launch_one_block<__half>(call);
        break;
    case INFERD_PLUGIN_BF16:
        launch_one_block<__nv_bfloat16>(call);
        break;
    default:
        launch_one_block<float>(call);
        break;
    }
    return launched(call);
}

int run_parts(const inferd_plugin_call *call)
{
    switch (call->node->inputs[0].dtype) {
    case INFERD_PLUGIN_FP16:
        launch_parts<__half>(call);
        break;
    case INFERD_PLUGIN_BF16:
        launch_parts<__nv_bfloat16>(call);
        break;
    default:
        launch_parts<float>(call);
        break;
    }
    return launched(call);
}

/* --- the table --- */

const inferd_plugin_kernel kernels[] = {
    {"reference", INFERD_PLUGIN_CPU, nullptr, nullptr, reference},
    {"one-block", INFERD_PLUGIN_CUDA, takes_all, nullptr, run_one_block},
    {"parts", INFERD_PLUGIN_CUDA, takes_large, parts_workspace, run_parts},
};

const inferd_plugin_op ops[] = {
    {"example.inferd", "PeakScale", INFERD_PLUGIN_TYPES, infer, 3, kernels},
};

} // namespace

const struct inferd_plugin *inferd_plugin(void)
{
    static const struct inferd_plugin plugin = {
        INFERD_PLUGIN_ABI, sizeof(inferd_plugin_op), "peak-scale", "1.0", 1, ops};
    return &plugin;
}
