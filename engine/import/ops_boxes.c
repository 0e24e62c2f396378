/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RoiAlign, MaxRoiPool, NonMaxSuppression.
 *
 * How many boxes NonMaxSuppression selects depends on their values, which a plan of fixed shapes
 * cannot express. If boxes and scores are known, the importer computes the answer. Otherwise the
 * output has as many rows as boxes can be selected, and the rows behind the selected ones hold -1.
 */
#include "engine/import/ops.h"

static uint32_t emit_roi_pool(struct mapper *m, const uint32_t inputs[3], enum ir_roi func,
                              const int64_t size[2])
{
    uint32_t node = emit_begin(m, IR_OP_ROI_POOL, 3, inputs);
    emit_int(m, node, IR_ATTR_FUNC, func);
    emit_ints(m, node, IR_ATTR_SHAPE, 2, size);
    emit_float(m, node, IR_ATTR_ALPHA, map_attr_float(m, "spatial_scale", 1));
    return node;
}

void map_roi_align(struct mapper *m)
{
    static const char *const funcs[] = {[IR_ROI_AVERAGE] = "avg", [IR_ROI_MAX] = "max"};
    static const char *const coords[] = {"output_half_pixel", "half_pixel"};
    const uint32_t inputs[] = {map_in(m, 0), map_in(m, 1), map_in(m, 2)};
    const int64_t size[] = {map_attr_int(m, "output_height", 1),
                            map_attr_int(m, "output_width", 1)};
    int64_t func = map_attr_named(m, "mode", funcs, ARRAY_LEN(funcs), "avg"), half_pixel = 0;
    if (m->opset >= 16)
        half_pixel = map_attr_named(m, "coordinate_transformation_mode", coords, ARRAY_LEN(coords),
                                    "half_pixel");
    uint32_t node = emit_roi_pool(m, inputs, (enum ir_roi)func, size);
    emit_int(m, node, IR_ATTR_SIZE, map_attr_int(m, "sampling_ratio", 0));
    emit_int(m, node, IR_ATTR_COORD, half_pixel);
    map_out(m, 0, emit_end(m, node));
}

/* The first of a region's five columns is the number of its image. */
void map_max_roi_pool(struct mapper *m)
{
    struct ints size;
    uint32_t x = map_in(m, 0), rois = map_in(m, 1);
    struct shape shape = *map_shape(m, rois);
    if (!map_attr_ints(m, "pooled_shape", &size) || size.n != 2)
        map_invalid(m, "attribute 'pooled_shape' has not two values");
    if (!map_failed(m) && (shape.rank != 2 || shape.dim[1] != 5))
        map_invalid(m, "its regions are not rows of five values");
    if (map_failed(m))
        return;
    uint32_t image = emit_reshape(m, emit_slice(m, rois, 1, 0, 1),
                                  &(struct shape){.rank = 1, .dim = {shape.dim[0]}});
    const uint32_t inputs[] = {x, emit_slice(m, rois, 1, 1, 5), emit_cast(m, image, DTYPE_I64)};
    map_out(m, 0, emit_end(m, emit_roi_pool(m, inputs, IR_ROI_MAX_QUANTISED, size.v)));
}

/* --- NonMaxSuppression --- */

/* Cuts off the rows behind the selected ones. */
static uint32_t selected_rows(struct mapper *m, uint32_t y)
{
    const struct ir_tensor *t = ir_tensor(m->graph, y);
    int64_t rows = 0;
    while (rows < t->shape.dim[0] && map_element_int(t, (size_t)rows * 3) >= 0)
        rows++;
    return emit_slice(m, y, 0, 0, rows);
}

/* Operand i as one number, or the fallback if it is absent. */
static double threshold(struct mapper *m, uint32_t i, double fallback)
{
    uint32_t tensor = map_in_opt(m, i);
    return tensor == IR_NONE ? fallback : map_known_number(m, tensor);
}

void map_nms(struct mapper *m)
{
    const uint32_t inputs[] = {map_in(m, 0), map_in(m, 1)};
    uint32_t most = map_in_opt(m, 2);
    /* Exporters write the largest number there is for "all". */
    int64_t k = most == IR_NONE ? 0 : MIN(map_known_int(m, most), IR_MAX_DIM);
    double overlap = threshold(m, 3, 0), least = threshold(m, 4, 0);
    if (map_can_make_known(m, inputs[0]) && map_can_make_known(m, inputs[1])) {
        map_make_known(m, inputs[0]);
        map_make_known(m, inputs[1]);
    } else if (m->late) {
        map_unknown(m, "how many boxes it selects is computed from an input");
    }
    uint32_t node = emit_begin(m, IR_OP_NMS, 2, inputs);
    emit_int(m, node, IR_ATTR_K, MAX(k, 0));
    emit_float(m, node, IR_ATTR_ALPHA, (float)overlap);
    if (map_in_opt(m, 4) != IR_NONE)
        emit_float(m, node, IR_ATTR_BETA, (float)least);
    emit_int(m, node, IR_ATTR_MODE, map_attr_int(m, "center_point_box", 0) != 0);
    uint32_t y = emit_end(m, node);
    if (!map_failed(m) && ir_node(m->graph, node)->op != IR_OP_NONE)
        emit_fold(m, node, true);
    if (map_failed(m))
        return;
    if (ir_tensor_is_constant(ir_tensor(m->graph, y)))
        y = selected_rows(m, y);
    else
        log_write(m->options->log, LOG_WARNING,
                  "NonMaxSuppression \"%s\": its output always has %lld rows: those behind the "
                  "selected boxes hold -1",
                  m->label, (long long)map_shape(m, y)->dim[0]);
    map_out(m, 0, y);
}
