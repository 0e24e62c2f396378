/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Non-maximum suppression, class by class: boxes are visited in falling order of score, and each is
 * kept unless it overlaps a box that was kept before. Of equal scores, the one with the lower index
 * comes first.
 *
 * Overlap is computed in fp32 for all types but FP64: boxes that meet a threshold exactly are
 * common, and other implementations decide them in fp32.
 */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"

struct candidate {
    double score;
    int64_t box;
};

/* Corners, low before high. */
struct box {
    double low[2], high[2];
};

static double rounded(enum dtype dtype, double value)
{
    return dtype == DTYPE_F64 ? value : (double)(float)value;
}

static struct box read_box(const struct ref_nms *how, const struct tensor_view *boxes, int64_t at)
{
    double v[4];
    struct box box;
    ref_read_f64(boxes->dtype, boxes->data, at * 4, 1, 4, v);
    for (int d = 0; d < 2; d++) {
        double half = rounded(boxes->dtype, v[2 + d] / 2);
        double a = how->centre ? rounded(boxes->dtype, v[d] - half) : v[d];
        double b = how->centre ? rounded(boxes->dtype, v[d] + half) : v[2 + d];
        box.low[d] = how->centre || a <= b ? a : b;
        box.high[d] = how->centre || a <= b ? b : a;
    }
    return box;
}

static double area(enum dtype dtype, const struct box *box)
{
    double sides[2];
    for (int d = 0; d < 2; d++)
        sides[d] = rounded(dtype, box->high[d] - box->low[d]);
    return rounded(dtype, sides[0] * sides[1]);
}

static bool overlap(enum dtype dtype, double most, const struct box *a, const struct box *b)
{
    struct box both;
    for (int d = 0; d < 2; d++) {
        both.low[d] = fmax(a->low[d], b->low[d]);
        both.high[d] = fmin(a->high[d], b->high[d]);
        if (!(both.high[d] > both.low[d]))
            return false;
    }
    double shared = area(dtype, &both), one = area(dtype, a), two = area(dtype, b);
    double whole = rounded(dtype, rounded(dtype, one + two) - shared);
    if (!(shared > 0) || !(one > 0) || !(two > 0) || !(whole > 0))
        return false;
    return rounded(dtype, shared / whole) > most;
}

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->score > b->score || (a->score == b->score && a->box < b->box);
}

/* Lets heap[at] sink until no child comes before it, so that the best is on top. */
static void sift(struct candidate *heap, int64_t at, int64_t n)
{
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &heap[at]))
            return;
        struct candidate swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

/* Makes a heap of the boxes of one class that may be selected; a score of NaN never is. Returns
 * their number. */
static int64_t gather(const struct ref_nms *how, const struct tensor_view *scores, int64_t first,
                      int64_t n, struct candidate *heap)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        double score = ref_get_f64(scores->dtype, scores->data, first + i);
        if (isnan(score) || (how->has_least && !(score > how->least)))
            continue;
        heap[found++] = (struct candidate){score, i};
    }
    for (int64_t at = found / 2; at-- > 0;)
        sift(heap, at, found);
    return found;
}

/* Takes boxes from the heap in order and puts the selected ones into `chosen`. Returns their
 * number. */
static int64_t select_class(const struct ref_nms *how, const struct tensor_view *boxes,
                            int64_t first_box, struct candidate *heap, int64_t n, int64_t *chosen)
{
    int64_t selected = 0;
    for (int64_t left = n; left > 0 && selected < how->most;) {
        struct candidate best = heap[0];
        heap[0] = heap[--left];
        sift(heap, 0, left);
        struct box box = read_box(how, boxes, first_box + best.box);
        bool keep = true;
        for (int64_t k = 0; k < selected && keep; k++) {
            struct box other = read_box(how, boxes, first_box + chosen[k]);
            keep = !overlap(boxes->dtype, how->overlap, &box, &other);
        }
        if (keep)
            chosen[selected++] = best.box;
    }
    return selected;
}

size_t ref_nms_scratch(int64_t boxes)
{
    return (size_t)boxes * (sizeof(struct candidate) + sizeof(int64_t));
}

void ref_nms(const struct ref_nms *how, const struct tensor_view *boxes,
             const struct tensor_view *scores, const struct tensor_view *y, void *scratch)
{
    static const int64_t unused[3] = {-1, -1, -1};
    int64_t classes = scores->shape.dim[1], n = boxes->shape.dim[1], row = 0;
    struct candidate *heap = scratch;
    int64_t *chosen = (int64_t *)(heap + n);
    for (int64_t b = 0; b < boxes->shape.dim[0]; b++)
        for (int64_t c = 0; c < classes; c++) {
            int64_t found = gather(how, scores, (b * classes + c) * n, n, heap);
            found = select_class(how, boxes, b * n, heap, found, chosen);
            for (int64_t k = 0; k < found; k++, row++) {
                const int64_t selected[3] = {b, c, chosen[k]};
                ref_write_i64(y->dtype, y->data, row * 3, 1, 3, selected);
            }
        }
    for (; row < y->shape.dim[0]; row++)
        ref_write_i64(y->dtype, y->data, row * 3, 1, 3, unused);
}
