/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts regions of images into bins, and gives one value for each bin and channel.
 *
 * A region comes from a peer and may be of any size, so samples that lie outside of the image count
 * as zeros without being visited. The start of a region and the number of samples of its bins are
 * computed in fp32 for all types but FP64, as other implementations do: a bin of exactly 2.0 has
 * two samples.
 */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/roi.h"
#include "kernels/cpu/walk.h"

#define COUNT_MAX 0x1p52 /* doubles count exactly up to here */

/* One dim of a region. */
struct side {
    double start, bin; /* in pixels */
    double samples;    /* of a bin; a whole number */
    int64_t size;      /* of the image */
};

/* The two pixels around a sample. */
struct between {
    int64_t low, high;
    double t; /* 0 at the low pixel, 1 at the high one */
};

/* The samples of a bin that may lie within the image: first..last-1. */
struct span {
    int64_t first, last;
};

static double rounded(enum dtype dtype, double value)
{
    return dtype == DTYPE_F64 ? value : (double)(float)value;
}

static struct side side_of(const struct ref_roi_pool *how, enum dtype dtype, double low,
                           double high, int64_t size, int64_t bins)
{
    double offset = how->half_pixel ? 0.5 : 0;
    double start = rounded(dtype, rounded(dtype, low * how->scale) - offset);
    double length =
        rounded(dtype, rounded(dtype, rounded(dtype, high * how->scale) - offset) - start);
    if (!how->half_pixel && !(length >= 1))
        length = 1;
    struct side side = {.start = start, .size = size};
    side.bin = rounded(dtype, length / (double)bins);
    side.samples = how->samples ? (double)how->samples : ceil(side.bin);
    return side;
}

static double sample_at(const struct side *side, int64_t bin, int64_t i)
{
    return side->start + (double)bin * side->bin + ((double)i + 0.5) * side->bin / side->samples;
}

static bool is_inside(const struct side *side, double at)
{
    return at >= -1 && at <= (double)side->size; /* false for NaN */
}

/* Says which samples of a bin to visit; all others lie outside of the image. */
static struct span visible(const struct side *side, int64_t bin)
{
    double all = side->samples > 0 ? side->samples : 0;
    double step = side->bin / side->samples, start = side->start + (double)bin * side->bin;
    if (!(step > 0) || !isfinite(start))
        return (struct span){0, isfinite(start) && all <= 256 ? (int64_t)all : 0};
    double first = floor((-1 - start) / step) - 2;
    double last = ceil(((double)side->size - start) / step) + 2;
    if (!(fabs(first) <= COUNT_MAX && fabs(last) <= COUNT_MAX))
        return (struct span){0, 0};
    return (struct span){(int64_t)fmax(first, 0), (int64_t)fmin(last, all)};
}

static struct between between(const struct side *side, double at)
{
    double clamped = at > 0 ? at : 0;
    int64_t low = (int64_t)clamped;
    if (low >= side->size - 1)
        return (struct between){side->size - 1, side->size - 1, 0};
    return (struct between){low, low + 1, clamped - (double)low};
}

/* Sum of the samples of a bin, or the largest weighted pixel around any of them. */
struct total {
    double sum, most;
    double n; /* samples inside */
};

static void add_sample(struct total *total, const struct tensor_view *x, int64_t plane,
                       struct between y, struct between c)
{
    int64_t width = x->shape.dim[3];
    const int64_t at[] = {y.low * width + c.low, y.low * width + c.high, y.high * width + c.low,
                          y.high * width + c.high};
    const double weights[] = {(1 - y.t) * (1 - c.t), (1 - y.t) * c.t, y.t * (1 - c.t), y.t * c.t};
    for (int i = 0; i < 4; i++) {
        double value = weights[i] * ref_get_f64(x->dtype, x->data, plane + at[i]);
        total->sum += value;
        total->most = !(total->most >= value) ? value : total->most;
    }
    total->n++;
}

static double aligned_bin(const struct ref_roi_pool *how, const struct tensor_view *x,
                          int64_t plane, const struct side sides[2], const int64_t bin[2])
{
    struct total total = {.most = -INFINITY};
    struct span rows = visible(&sides[0], bin[0]), columns = visible(&sides[1], bin[1]);
    for (int64_t iy = rows.first; iy < rows.last; iy++) {
        double at_y = sample_at(&sides[0], bin[0], iy);
        for (int64_t ix = columns.first; is_inside(&sides[0], at_y) && ix < columns.last; ix++) {
            double at_x = sample_at(&sides[1], bin[1], ix);
            if (is_inside(&sides[1], at_x))
                add_sample(&total, x, plane, between(&sides[0], at_y), between(&sides[1], at_x));
        }
    }
    double count = MAX(sides[0].samples, 0) * MAX(sides[1].samples, 0);
    if (how->func == IR_ROI_AVERAGE)
        return total.n > 0 ? total.sum / count : 0;
    return total.n > 0 && total.n >= count ? total.most : fmax(total.most, 0);
}

/* Gives the whole pixels low..high-1 of bin `bin`, if `bins` bins share a region from pixel a to
 * pixel b. */
static void pixels_of_bin(enum dtype dtype, double a, double b, int64_t bin, int64_t bins,
                          int64_t size, int64_t *low, int64_t *high)
{
    double length = b - a + 1 >= 1 ? b - a + 1 : 1, each = rounded(dtype, length / (double)bins);
    double first = floor(rounded(dtype, (double)bin * each)) + a;
    double last = ceil(rounded(dtype, (double)(bin + 1) * each)) + a;
    *low = first > 0 ? (int64_t)fmin(first, (double)size) : 0; /* 0 for NaN */
    *high = last > 0 ? (int64_t)fmin(last, (double)size) : 0;
}

static double quantised_bin(const struct tensor_view *x, int64_t plane, const double roi[4],
                            const int64_t bin[2], const int64_t bins[2])
{
    int64_t low[2], high[2];
    double most = -INFINITY;
    for (int d = 0; d < 2; d++)
        pixels_of_bin(x->dtype, roi[1 - d], roi[3 - d], bin[d], bins[d], x->shape.dim[2 + d],
                      &low[d], &high[d]);
    if (low[0] >= high[0] || low[1] >= high[1])
        return 0;
    for (int64_t r = low[0]; r < high[0]; r++)
        for (int64_t c = low[1]; c < high[1]; c++) {
            double value = ref_get_f64(x->dtype, x->data, plane + r * x->shape.dim[3] + c);
            most = !(most >= value) ? value : most;
        }
    return most;
}

/* --- taps --- */

/* Neighbouring samples share pixels. */
static bool tap_add(struct ref_roi_taps *out, int64_t first, int64_t *n, int64_t at, double weight)
{
    for (int64_t k = *n; k-- > MAX(first, *n - 2);)
        if (out->tap[k].at == at) {
            out->tap[k].weight += weight;
            return true;
        }
    if (*n == REF_ROI_TAPS)
        return false;
    out->tap[(*n)++] = (struct ref_roi_tap){at, weight};
    return true;
}

bool ref_roi_taps(const struct ref_roi_pool *how, double low, double high, int64_t size,
                  int64_t bins, struct ref_roi_taps *out)
{
    struct side side = side_of(how, DTYPE_F32, low, high, size, bins);
    int64_t n = 0;
    if (bins > REF_ROI_BINS)
        return false;
    out->samples = MAX(side.samples, 0);
    for (int64_t bin = 0; bin < bins; bin++) {
        struct span span = visible(&side, bin);
        out->first[bin] = n;
        for (int64_t i = span.first; i < span.last; i++) {
            double at = sample_at(&side, bin, i);
            if (!is_inside(&side, at))
                continue;
            struct between b = between(&side, at);
            if (!tap_add(out, out->first[bin], &n, b.low, 1 - b.t) ||
                (b.t > 0 && !tap_add(out, out->first[bin], &n, b.high, b.t)))
                return false;
        }
    }
    out->first[bins] = n;
    return true;
}

static void pool_region(const struct ref_roi_pool *how, const struct tensor_view *x, int64_t image,
                        const double roi[4], const struct tensor_view *y, int64_t region)
{
    int64_t channels = x->shape.dim[1], size = x->shape.dim[2] * x->shape.dim[3];
    const int64_t bins[2] = {y->shape.dim[2], y->shape.dim[3]};
    struct side sides[2];
    double pixels[4];
    for (int d = 0; d < 2; d++)
        sides[d] = side_of(how, x->dtype, roi[1 - d], roi[3 - d], x->shape.dim[2 + d], bins[d]);
    for (int i = 0; i < 4; i++)
        pixels[i] = round(rounded(x->dtype, roi[i] * how->scale));
    int64_t to = region * channels * bins[0] * bins[1];
    for (int64_t c = 0; c < channels; c++) {
        int64_t plane = (image * channels + c) * size, bin[2];
        for (bin[0] = 0; bin[0] < bins[0]; bin[0]++)
            for (bin[1] = 0; bin[1] < bins[1]; bin[1]++) {
                double value = how->func == IR_ROI_MAX_QUANTISED
                                   ? quantised_bin(x, plane, pixels, bin, bins)
                                   : aligned_bin(how, x, plane, sides, bin);
                ref_write_f64(y->dtype, y->data, to++, 1, 1, &value);
            }
    }
}

enum status ref_roi_pool(const struct ref_roi_pool *how, const struct tensor_view *x,
                         const struct tensor_view *rois, const struct tensor_view *batch,
                         const struct tensor_view *y, struct error *err)
{
    double roi[4];
    for (int64_t r = 0; r < rois->shape.dim[0]; r++) {
        int64_t image = ref_get_i64(batch->dtype, batch->data, r);
        if (image < 0 || image >= x->shape.dim[0])
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "region %lld is of image %lld, but there are %lld", (long long)r,
                             (long long)image, (long long)x->shape.dim[0]);
        ref_read_f64(rois->dtype, rois->data, r * 4, 1, 4, roi);
        pool_region(how, x, image, roi, y, r);
    }
    return STATUS_OK;
}
