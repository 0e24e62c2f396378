/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML, see gpu.h. Its header is not free to copy and not on machines that only build, so the few
 * functions are declared here, as NVIDIA's manual of the library has them. All return 0 when they
 * succeed.
 */
#include "daemon/monitor/gpu.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

struct nvml_utilization {
    unsigned gpu, memory; /* percent */
};

struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};

typedef struct nvml_device *nvml_device;

struct gpus {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*device)(unsigned index, nvml_device *device);
    int (*uuid)(nvml_device device, char *out, unsigned size);
    int (*name)(nvml_device device, char *out, unsigned size);
    int (*utilization)(nvml_device device, struct nvml_utilization *out);
    int (*memory)(nvml_device device, struct nvml_memory *out);
    int (*power)(nvml_device device, unsigned *milliwatts);
    int (*limit)(nvml_device device, unsigned *milliwatts);
    int (*energy)(nvml_device device, unsigned long long *millijoules);
};

static const struct {
    size_t at; /* of the pointer in struct gpus */
    const char *name;
    bool needed;
} symbols[] = {
    {offsetof(struct gpus, init), "nvmlInit_v2", true},
    {offsetof(struct gpus, shutdown), "nvmlShutdown", true},
    {offsetof(struct gpus, count), "nvmlDeviceGetCount_v2", true},
    {offsetof(struct gpus, device), "nvmlDeviceGetHandleByIndex_v2", true},
    {offsetof(struct gpus, uuid), "nvmlDeviceGetUUID", true},
    {offsetof(struct gpus, name), "nvmlDeviceGetName", false},
    {offsetof(struct gpus, utilization), "nvmlDeviceGetUtilizationRates", false},
    {offsetof(struct gpus, memory), "nvmlDeviceGetMemoryInfo", false},
    {offsetof(struct gpus, power), "nvmlDeviceGetPowerUsage", false},
    {offsetof(struct gpus, limit), "nvmlDeviceGetEnforcedPowerLimit", false},
    {offsetof(struct gpus, energy), "nvmlDeviceGetTotalEnergyConsumption", false},
};

static bool symbols_find(struct gpus *gpus)
{
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        void *found = dlsym(gpus->library, symbols[i].name);
        if (!found && symbols[i].needed)
            return false;
        memcpy((char *)gpus + symbols[i].at, &found, sizeof(found));
    }
    return true;
}

struct gpus *gpus_open(const char *library)
{
    struct gpus *gpus = calloc(1, sizeof(*gpus));
    if (!gpus)
        return NULL;
    gpus->library = dlopen(library ? library : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (gpus->library && symbols_find(gpus) && gpus->init() == 0)
        return gpus;
    if (gpus->library)
        dlclose(gpus->library);
    free(gpus);
    return NULL;
}

void gpus_close(struct gpus *gpus)
{
    if (!gpus)
        return;
    gpus->shutdown();
    dlclose(gpus->library);
    free(gpus);
}

static void loads_read(const struct gpus *gpus, nvml_device device, struct gpu *out)
{
    struct nvml_utilization rates;
    struct nvml_memory memory;
    if (gpus->utilization && gpus->utilization(device, &rates) == 0) {
        out->has |= GPU_UTILIZATION;
        out->utilization = rates.gpu / 100.0;
    }
    if (gpus->memory && gpus->memory(device, &memory) == 0) {
        out->has |= GPU_MEMORY;
        out->memory_total = memory.total;
        out->memory_used = memory.used;
    }
}

static void power_read(const struct gpus *gpus, nvml_device device, struct gpu *out)
{
    unsigned milliwatts;
    unsigned long long millijoules;
    if (gpus->power && gpus->power(device, &milliwatts) == 0) {
        out->has |= GPU_POWER;
        out->power_w = milliwatts / 1000.0;
    }
    if (gpus->limit && gpus->limit(device, &milliwatts) == 0) {
        out->has |= GPU_LIMIT;
        out->power_limit_w = milliwatts / 1000.0;
    }
    if (gpus->energy && gpus->energy(device, &millijoules) == 0) {
        out->has |= GPU_ENERGY;
        out->energy_j = (double)millijoules / 1000.0;
    }
}

uint32_t gpus_read(struct gpus *gpus, struct gpu out[GPU_MOST])
{
    unsigned count = 0;
    uint32_t n = 0;
    if (!gpus || gpus->count(&count) != 0)
        return 0;
    for (unsigned i = 0; i < count && n < GPU_MOST; i++) {
        nvml_device device;
        struct gpu *gpu = &out[n];
        *gpu = (struct gpu){0};
        if (gpus->device(i, &device) != 0 || gpus->uuid(device, gpu->uuid, GPU_TEXT) != 0)
            continue;
        gpu->uuid[GPU_TEXT - 1] = '\0';
        if (!gpus->name || gpus->name(device, gpu->name, GPU_TEXT) != 0)
            gpu->name[0] = '\0';
        gpu->name[GPU_TEXT - 1] = '\0';
        loads_read(gpus, device, gpu);
        power_read(gpus, device, gpu);
        n++;
    }
    return n;
}
