/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin with kernels that break the rules of inferd_plugin.h. The op is Copy of the domain
 * test.device: its output is its input. `waits` waits for the device, `strays` uses a stream of its
 * own, `fails` says that it cannot, and `copies` does what it should.
 */
#include <stdio.h>

#include <inferd_plugin.h>

namespace
{

int infer(const inferd_plugin_node *node, inferd_plugin_tensor *outputs, uint32_t *n_outputs,
          char *, size_t)
{
    outputs[0] = node->inputs[0];
    *n_outputs = 1;
    return 0;
}

size_t bytes(const inferd_plugin_call *call)
{
    size_t n = sizeof(float);
    for (uint32_t i = 0; i < call->node->inputs[0].rank; i++)
        n *= static_cast<size_t>(call->node->inputs[0].dim[i]);
    return n;
}

int reference(const inferd_plugin_call *call)
{
    const float *x = static_cast<const float *>(call->inputs[0]);
    float *y = static_cast<float *>(call->outputs[0]);
    for (size_t i = 0; i < bytes(call) / sizeof(float); i++)
        y[i] = x[i];
    return 0;
}

int copies(const inferd_plugin_call *call)
{
    return cudaMemcpyAsync(call->outputs[0], call->inputs[0], bytes(call), cudaMemcpyDefault,
                           static_cast<cudaStream_t>(call->stream)) != cudaSuccess;
}

int waits(const inferd_plugin_call *call)
{
    int failed = copies(call);
    cudaStreamSynchronize(static_cast<cudaStream_t>(call->stream));
    cudaGetLastError();
    return failed;
}

int strays(const inferd_plugin_call *call)
{
    static cudaStream_t own;
    if (!own)
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    return cudaMemcpyAsync(call->outputs[0], call->inputs[0], bytes(call), cudaMemcpyDefault,
                           own) != cudaSuccess;
}

int fails(const inferd_plugin_call *call)
{
    snprintf(call->why, call->why_size, "out of luck");
    return 1;
}

const inferd_plugin_kernel kernels[] = {
    {"reference", INFERD_PLUGIN_CPU, nullptr, nullptr, reference},
    {"waits", INFERD_PLUGIN_CUDA, nullptr, nullptr, waits},
    {"strays", INFERD_PLUGIN_CUDA, nullptr, nullptr, strays},
    {"fails", INFERD_PLUGIN_CUDA, nullptr, nullptr, fails},
    {"copies", INFERD_PLUGIN_CUDA, nullptr, nullptr, copies},
};

const inferd_plugin_op ops[] = {{"test.device", "Copy", 0, infer, 5, kernels}};

} // namespace

const struct inferd_plugin *inferd_plugin(void)
{
    static const struct inferd_plugin plugin = {
        INFERD_PLUGIN_ABI, sizeof(inferd_plugin_op), "stubborn", "1", 1, ops};
    return &plugin;
}
