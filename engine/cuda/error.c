/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where CUDA's codes become ours. */
#include "base/compiler.h"
#include "engine/cuda/cuda.h"

/* After one of these errors, every further call of the process fails with it, too. */
static const cudaError_t sticky[] = {
    cudaErrorDevicesUnavailable,
    cudaErrorECCUncorrectable,
    cudaErrorNvlinkUncorrectable,
    cudaErrorIllegalAddress,
    cudaErrorLaunchTimeout,
    cudaErrorContextIsDestroyed,
    cudaErrorAssert,
    cudaErrorHardwareStackError,
    cudaErrorIllegalInstruction,
    cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace,
    cudaErrorInvalidPc,
    cudaErrorLaunchFailure,
    cudaErrorMpsConnectionFailed,
    cudaErrorMpsServerNotReady,
    cudaErrorExternalDevice,
    cudaErrorUnknown,
};

enum status cuda_error(struct error *err, cudaError_t code, const char *what)
{
    bool memory = code == cudaErrorMemoryAllocation;
    cudaGetLastError(); /* else the next launch would be blamed for it */
    enum status status =
        error_cause(err, memory ? CAUSE_OUT_OF_MEMORY : CAUSE_INTERNAL, "%s: %s (%s)", what,
                    cudaGetErrorString(code), cudaGetErrorName(code));
    for (size_t i = 0; err && i < ARRAY_LEN(sticky); i++)
        if (code == sticky[i])
            err->scope = ERROR_DEVICE;
    return status;
}
