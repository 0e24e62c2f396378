/* SPDX-License-Identifier: Apache-2.0 */
/* A library with NVML's functions and three GPUs: one that tells everything, one that cannot be
 * opened, and a virtual one that knows neither power nor energy. */
#include <stdio.h>
#include <string.h>

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *out, unsigned size);
int nvmlDeviceGetName(void *device, char *out, unsigned size);
int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2]);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]);
int nvmlDeviceGetPowerUsage(void *device, unsigned *out);
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out);

static char devices[3];
static int is_open;

int nvmlInit_v2(void)
{
    is_open = 1;
    return 0;
}

int nvmlShutdown(void)
{
    is_open = 0;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 3;
    return is_open ? 0 : 1;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &devices[index];
    return index == 1 ? 15 /* the GPU is lost */ : 0;
}

int nvmlDeviceGetUUID(void *device, char *out, unsigned size)
{
    snprintf(out, size, "GPU-%d", (int)((char *)device - devices));
    return 0;
}

int nvmlDeviceGetName(void *device, char *out, unsigned size)
{
    (void)device;
    snprintf(out, size, "Made up");
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2])
{
    (void)device;
    out[0] = 75;
    out[1] = 20;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3])
{
    (void)device;
    out[0] = 1000;
    out[1] = 600;
    out[2] = 400;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *out)
{
    *out = 70500;
    return device == &devices[2] ? 3 /* not supported */ : 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out)
{
    *out = 700000;
    return device == &devices[2] ? 3 : 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out)
{
    *out = 1234567;
    return device == &devices[2] ? 3 : 0;
}
