/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ROI_POOL as averages of fp32, and NMS of fp32.
 *
 * A unit of ROI_POOL is a region: all channels of a pixel are read together, from a copy of the
 * images with their channels last.
 *
 * A unit of NMS is a class of an image. Scores are sorted as integers. Boxes that were selected lie
 * in lists by the place of their low corner along one dim, so that a box is compared with those
 * nearby alone; boxes much wider than others have a list of their own, which every box is compared
 * with. What is selected is what the reference selects, bit by bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/call.h"
#include "engine/cpu/native_op.h"
#include "kernels/cpu/number.h"

static struct tensor_view view_of(const struct shape *shape, const void *data)
{
    return (struct tensor_view){DTYPE_F32, *shape, (void *)(uintptr_t)data};
}

/* --- ROI_POOL --- */

static int64_t image_of(const struct native_op *op, int64_t region)
{
    return ref_get_i64(op->roi.batch, op->inputs[2], region);
}

static enum status check_roi(const struct native_op *op, struct error *err)
{
    for (int64_t r = 0; r < op->units; r++) {
        int64_t image = image_of(op, r);
        if (image < 0 || image >= op->roi.images)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "region %lld is of image %lld, but there are %lld", (long long)r,
                             (long long)image, (long long)op->roi.images);
    }
    return STATUS_OK;
}

static void channels_last(struct native_op *op)
{
    const struct native_roi *p = &op->roi;
    int64_t plane = p->rows * p->columns, size = p->channels * plane;
    for (int64_t i = 0; i < p->images; i++)
        op->fast->transpose_32((const uint32_t *)op->inputs[0] + i * size, plane,
                               (uint32_t *)op->workspace + i * size, p->channels, p->channels,
                               plane);
}

/* A region of too many taps: the reference takes it alone. Its image has been checked. */
static void pool_slowly(const struct native_op *op, int64_t region)
{
    const struct native_roi *p = &op->roi;
    int64_t size = p->channels * p->bins[0] * p->bins[1], image = image_of(op, region);
    int64_t plane = p->channels * p->rows * p->columns, zero = 0;
    struct error err;
    const struct shape one = {.rank = 1, .dim = {1}}, corners = {.rank = 2, .dim = {1, 4}};
    const struct shape in = {.rank = 4, .dim = {1, p->channels, p->rows, p->columns}};
    const struct shape out = {.rank = 4, .dim = {1, p->channels, p->bins[0], p->bins[1]}};
    struct tensor_view x = view_of(&in, (const float *)op->inputs[0] + image * plane);
    struct tensor_view roi = view_of(&corners, (const float *)op->inputs[1] + region * 4);
    struct tensor_view y = view_of(&out, (float *)op->output + region * size);
    struct tensor_view batch = {DTYPE_I64, one, &zero};
    ref_roi_pool(&p->how, &x, &roi, &batch, &y, &err);
}

static void pool_region(const struct native_op *op, int64_t region, float *bins)
{
    const struct native_roi *p = &op->roi;
    const float *roi = (const float *)op->inputs[1] + region * 4;
    int64_t n_bins = p->bins[0] * p->bins[1];
    const float *images = op->workspace;
    const float *x = images + image_of(op, region) * p->channels * p->rows * p->columns;
    struct ref_roi_taps rows, columns;
    if (!ref_roi_taps(&p->how, (double)roi[1], (double)roi[3], p->rows, p->bins[0], &rows) ||
        !ref_roi_taps(&p->how, (double)roi[0], (double)roi[2], p->columns, p->bins[1], &columns)) {
        pool_slowly(op, region);
        return;
    }
    double count = rows.samples * columns.samples;
    for (int64_t r = 0; r < p->bins[0]; r++)
        for (int64_t c = 0; c < p->bins[1]; c++)
            op->fast->boxes->average(x, p->columns, p->channels, rows.tap + rows.first[r],
                                     rows.first[r + 1] - rows.first[r],
                                     columns.tap + columns.first[c],
                                     columns.first[c + 1] - columns.first[c], count > 0 ? count : 1,
                                     bins + (r * p->bins[1] + c) * p->channels);
    const void *from = bins;
    uint32_t *y = op->output;
    op->fast->transpose_32(from, p->channels, y + region * p->channels * n_bins, n_bins, n_bins,
                           p->channels);
}

static void run_roi(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    float *bins = (float *)(void *)((char *)op->workspace + op->workspace_bytes +
                                    team_thread() * op->thread_bytes);
    for (int64_t region = first; region < end; region++)
        pool_region(op, region, bins);
}

static bool is_f32(const struct ir_graph *graph, uint32_t tensor)
{
    return ir_tensor(graph, tensor)->dtype == DTYPE_F32;
}

bool native_roi_make(struct native_op *op, const struct ir_graph *graph, const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    op->roi = (struct native_roi){.how = call_roi_pool(node),
                                  .images = x->dim[0],
                                  .channels = x->dim[1],
                                  .rows = x->dim[2],
                                  .columns = x->dim[3],
                                  .bins = {y->dim[2], y->dim[3]},
                                  .batch = ir_tensor(graph, node->inputs[2])->dtype};
    int64_t n_bins = y->dim[2] * y->dim[3], places = ref_extent(x, 2, 4) * x->dim[0];
    op->units = y->dim[0];
    op->begin = channels_last;
    op->check = check_roi;
    op->work = run_roi;
    op->workspace_bytes = ir_tensor(graph, node->inputs[0])->bytes;
    op->thread_bytes = (uint64_t)(n_bins * op->roi.channels) * sizeof(float);
    return op->roi.how.func == IR_ROI_AVERAGE && is_f32(graph, node->inputs[0]) &&
           is_f32(graph, node->inputs[1]) && MAX(y->dim[2], y->dim[3]) <= REF_ROI_BINS &&
           places > 0 && places / 16 <= op->units * n_bins; /* else the copy costs too much */
}

/* --- NMS --- */

enum {
    LISTS_MAX = 1024,
    BOXES_OF_LIST = 8, /* about so many, if all were selected */
    SHORT = 32,        /* keys that are sorted by insertion */
};

/* What a thread has for a class. */
struct room {
    uint64_t *keys, *other;      /* the score's order in the high half, the box in the low one */
    struct box_corners *corners; /* of the candidates, the best first */
    struct box_cell *cells;
    int32_t list[LISTS_MAX + 1], n_cells; /* the first cells; the last list is that of wide boxes */
    int32_t n_lists;
    int dim; /* that lists lie along */
    float origin, per_list, reach;
};

/* A score as a number that is smaller for a larger score. NaN does not come here. */
static uint64_t key_of(float score, int64_t box)
{
    uint32_t bits, sign = UINT32_C(1) << 31;
    score += 0.0F; /* -0 becomes 0 */
    memcpy(&bits, &score, sizeof(bits));
    return (uint64_t)(bits & sign ? bits : ~(bits | sign)) << 32 | (uint32_t)box;
}

/* Sorts by the high halves, of which equal ones keep their order; returns where the result is. */
static uint64_t *sort_bytes(uint64_t *keys, uint64_t *other, int64_t n)
{
    static const uint32_t n_bytes = 4, values = 256;
    for (uint32_t b = 0; b < n_bytes; b++) {
        int64_t place[256] = {0}, sum = 0;
        uint32_t shift = 32 + 8 * b;
        for (int64_t i = 0; i < n; i++)
            place[keys[i] >> shift & 255]++;
        if (place[keys[0] >> shift & 255] == n)
            continue;
        for (uint32_t v = 0; v < values; v++) {
            int64_t count = place[v];
            place[v] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++)
            other[place[keys[i] >> shift & 255]++] = keys[i];
        uint64_t *swap = keys;
        keys = other;
        other = swap;
    }
    return keys;
}

static uint64_t *sort_keys(uint64_t *keys, uint64_t *other, int64_t n)
{
    if (n > SHORT)
        return sort_bytes(keys, other, n);
    for (int64_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        int64_t k = i;
        for (; k > 0 && keys[k - 1] > key; k--)
            keys[k] = keys[k - 1];
        keys[k] = key;
    }
    return keys;
}

/* The candidates of a class, the best first; returns their number. */
static int64_t gather(const struct native_nms *p, const float *scores, struct room *room)
{
    int64_t n = 0;
    float least = p->how.has_least ? (float)p->how.least : -INFINITY;
    bool all = !p->how.has_least;
    for (int64_t i = 0; i < p->boxes; i++) {
        room->keys[n] = key_of(scores[i], i);
        n += all ? scores[i] == scores[i] : scores[i] > least;
    }
    if (n)
        room->keys = sort_keys(room->keys, room->other, n);
    return n;
}

/* Does what the reference's read_box and area do. Returns whether a corner is NaN. */
static bool read_corners(bool centre, const float *v, struct box_corners *out)
{
    for (int d = 0; d < 2; d++) {
        float half = v[2 + d] / 2;
        float a = centre ? v[d] - half : v[d], b = centre ? v[d] + half : v[2 + d];
        out->low[d] = centre || a <= b ? a : b;
        out->high[d] = centre || a <= b ? b : a;
    }
    out->area = (out->high[0] - out->low[0]) * (out->high[1] - out->low[1]);
    return out->low[0] != out->low[0] || out->low[1] != out->low[1] ||
           out->high[0] != out->high[0] || out->high[1] != out->high[1];
}

/* Chooses how lists divide the candidates: along the dim in which these are narrower beside all the
 * room that they take. */
static void divide(struct room *room, int64_t n)
{
    double widths[2] = {0};
    float low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < 2; d++) {
            const struct box_corners *c = &room->corners[i];
            widths[d] += (double)fmaxf(c->high[d] - c->low[d], 0);
            low[d] = fminf(low[d], c->low[d]);
            high[d] = fmaxf(high[d], c->low[d]);
        }
    float extent[2] = {high[0] - low[0], high[1] - low[1]};
    int d = (double)extent[0] * widths[1] >= (double)extent[1] * widths[0] ? 0 : 1;
    float width = 2 * (float)(widths[d] / (double)n);
    bool divides = n > SHORT && width > 0 && isfinite(width) && extent[d] > width &&
                   isfinite(extent[d]) && isfinite(low[d]);
    room->dim = d;
    room->origin = low[d];
    room->reach = width;
    room->n_lists = divides ? (int32_t)MIN(n / BOXES_OF_LIST, LISTS_MAX) : 1;
    room->per_list = divides ? (float)room->n_lists / extent[d] : 0;
    room->n_cells = 0;
    for (int32_t i = 0; i <= room->n_lists; i++)
        room->list[i] = -1;
}

/* The list that boxes are in whose low corner is `at`; a larger `at` has no earlier list. */
static int32_t list_of(const struct room *room, float at)
{
    float k = (at - room->origin) * room->per_list;
    return k > 0 ? k < (float)room->n_lists ? (int32_t)k : room->n_lists - 1 : 0;
}

static bool is_wide(const struct room *room, const struct box_corners *box)
{
    return room->n_lists > 1 && !(box->high[room->dim] - box->low[room->dim] <= room->reach);
}

static bool list_meets(const struct native_op *op, const struct room *room, int32_t list,
                       const struct box_corners *box)
{
    for (int32_t at = room->list[list]; at >= 0; at = room->cells[at].next)
        if (op->fast->boxes->meets(&room->cells[at], box, (float)op->nms.how.overlap))
            return true;
    return false;
}

/* A box that meets this one and is not wide begins at most `reach` before it, and rounding. */
static bool is_met(const struct native_op *op, const struct room *room,
                   const struct box_corners *box)
{
    float low = box->low[room->dim], high = box->high[room->dim];
    float from = low - room->reach * 1.001F - fabsf(low) * 1e-5F;
    int32_t first = room->n_lists > 1 ? list_of(room, from) : 0;
    int32_t last = room->n_lists > 1 ? list_of(room, high) : 0;
    for (int32_t list = last; list >= first; list--)
        if (list_meets(op, room, list, box))
            return true;
    return list_meets(op, room, room->n_lists, box);
}

static void keep_box(struct room *room, const struct box_corners *box)
{
    int32_t list = is_wide(room, box)  ? room->n_lists
                   : room->n_lists > 1 ? list_of(room, box->low[room->dim])
                                       : 0;
    int32_t at = room->list[list];
    if (at < 0 || room->cells[at].n == BOX_CELL) {
        struct box_cell *cell = &room->cells[room->n_cells];
        for (int k = 0; k < BOX_CELL; k++)
            cell->low[0][k] = cell->low[1][k] = INFINITY;
        memset(cell->high, 0, sizeof(cell->high));
        memset(cell->area, 0, sizeof(cell->area));
        cell->n = 0;
        cell->next = at;
        room->list[list] = at = room->n_cells++;
    }
    struct box_cell *cell = &room->cells[at];
    for (int d = 0; d < 2; d++) {
        cell->low[d][cell->n] = box->low[d];
        cell->high[d][cell->n] = box->high[d];
    }
    cell->area[cell->n++] = box->area;
}

/* A class with a corner that is NaN: the reference selects, and writes its rows as those of class 0
 * of image 0. */
static int64_t select_slowly(const struct native_op *op, const float *boxes, const float *scores,
                             int64_t *rows, void *scratch)
{
    const struct native_nms *p = &op->nms;
    const struct shape corners = {.rank = 3, .dim = {1, p->boxes, 4}};
    const struct shape numbers = {.rank = 3, .dim = {1, 1, p->boxes}};
    struct tensor_view b = view_of(&corners, boxes), s = view_of(&numbers, scores);
    struct tensor_view y = {DTYPE_I64, {.rank = 2, .dim = {p->most, 3}}, rows};
    ref_nms(&p->how, &b, &s, &y, scratch);
    int64_t n = 0;
    while (n < p->most && rows[3 * n] >= 0)
        n++;
    return n;
}

/* Puts the selected boxes into every third place of `rows`, from the third on; returns their
 * number. */
static int64_t select_boxes(const struct native_op *op, const float *boxes, const float *scores,
                            struct room *room, int64_t *rows)
{
    const struct native_nms *p = &op->nms;
    void *scratch = room->keys;
    int64_t n = gather(p, scores, room), selected = 0;
    bool nan = false;
    for (int64_t i = 0; i < n; i++)
        nan |= read_corners(p->how.centre, boxes + (uint32_t)room->keys[i] * UINT64_C(4),
                            &room->corners[i]);
    if (nan)
        return select_slowly(op, boxes, scores, rows, scratch);
    if (n)
        divide(room, n);
    for (int64_t i = 0; i < n && selected < p->most; i++) {
        if (selected && is_met(op, room, &room->corners[i]))
            continue;
        keep_box(room, &room->corners[i]);
        rows[3 * selected++ + 2] = (uint32_t)room->keys[i];
    }
    return selected;
}

static int64_t *found_of(const struct native_op *op)
{
    return op->workspace;
}

static void run_nms(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_nms *p = &op->nms;
    char *own = (char *)op->workspace + op->workspace_bytes + team_thread() * op->thread_bytes;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t image = unit / p->classes, class = unit % p->classes;
        int64_t *rows = (int64_t *)op->output + unit * p->most * 3;
        struct room room = {.cells = (struct box_cell *)own};
        room.keys = (uint64_t *)(room.cells + p->cells);
        room.other = room.keys + p->boxes;
        room.corners = (struct box_corners *)(room.other + p->boxes);
        int64_t n = select_boxes(op, (const float *)op->inputs[0] + image * p->boxes * 4,
                                 (const float *)op->inputs[1] + unit * p->boxes, &room, rows);
        for (int64_t k = 0; k < n; k++) {
            rows[3 * k] = image;
            rows[3 * k + 1] = class;
        }
        found_of(op)[unit] = n;
    }
}

/* Moves the rows of all units together. */
static void join_rows(const struct native_op *op)
{
    const struct native_nms *p = &op->nms;
    int64_t *y = op->output, at = 0;
    for (int64_t unit = 0; unit < op->units; unit++) {
        int64_t n = found_of(op)[unit];
        memmove(y + at * 3, y + unit * p->most * 3, (size_t)n * 3 * sizeof(*y));
        at += n;
    }
    memset(y + at * 3, 0xff, (size_t)(op->units * p->most - at) * 3 * sizeof(*y)); /* -1 */
}

bool native_nms_make(struct native_op *op, const struct ir_graph *graph, const struct ir_node *node)
{
    struct native_nms *p = &op->nms;
    const struct shape *boxes = &ir_tensor(graph, node->inputs[0])->shape;
    const struct shape *scores = &ir_tensor(graph, node->inputs[1])->shape;
    *p = (struct native_nms){
        .how = call_nms(node), .classes = scores->dim[1], .boxes = boxes->dim[1]};
    p->most = MIN(p->how.most, p->boxes);
    p->cells = MIN(p->most, p->most / BOX_CELL + LISTS_MAX + 1);
    op->units = boxes->dim[0] * p->classes;
    op->work = run_nms;
    op->middle = join_rows;
    op->workspace_bytes = ((uint64_t)op->units * sizeof(int64_t) + 63) / 64 * 64;
    op->thread_bytes =
        ((uint64_t)p->cells * sizeof(struct box_cell) +
         (uint64_t)p->boxes * (2 * sizeof(uint64_t) + sizeof(struct box_corners)) + 63) /
        64 * 64;
    return is_f32(graph, node->inputs[0]) && is_f32(graph, node->inputs[1]) &&
           p->boxes <= INT32_MAX / 2;
}
