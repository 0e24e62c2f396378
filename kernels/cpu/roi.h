/* SPDX-License-Identifier: Apache-2.0 */
/* Where the bins of a region read along one dim of an image, for kernels that average. */
#ifndef INFERD_KERNELS_CPU_ROI_H
#define INFERD_KERNELS_CPU_ROI_H

#include "kernels/cpu/ref.h"

enum { REF_ROI_BINS = 32, REF_ROI_TAPS = 256 };

/* A pixel, and what it counts in the sum of its bin. */
struct ref_roi_tap {
    int64_t at;
    double weight;
};

struct ref_roi_taps {
    double samples;                  /* of a bin, also those outside of the image */
    int64_t first[REF_ROI_BINS + 1]; /* of bin i: taps first[i]..first[i + 1]-1 */
    struct ref_roi_tap tap[REF_ROI_TAPS];
};

/* For regions of fp32 from `low` to `high` along a dim of `size` pixels. False: there are too many
 * bins or taps. */
bool ref_roi_taps(const struct ref_roi_pool *how, double low, double high, int64_t size,
                  int64_t bins, struct ref_roi_taps *out);

#endif
