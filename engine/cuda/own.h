/* SPDX-License-Identifier: Apache-2.0 */
/* What the families of our own kernels share. */
#ifndef INFERD_ENGINE_CUDA_OWN_H
#define INFERD_ENGINE_CUDA_OWN_H

#include "engine/cuda/cuda.h"
#include "kernels/cuda/kernels_hopper.h"

/* The view that a tactic would give the tensor: in this layout, and of the type that
 * own_type says. */
bool own_view(const struct ir_tensor *tensor, enum dtype dtype, enum ir_layout layout,
              struct kernel_view *out);

/* The type in which a tactic of `dtype` stores a tensor: `dtype` takes the place of F32 (NONE: F32
 * stays). */
static inline enum dtype own_type(enum dtype tensor, enum dtype dtype)
{
    return tensor == DTYPE_F32 && dtype != DTYPE_NONE ? dtype : tensor;
}

/* Gives the view of the node's output the step and zero point by which it is stored. False: another
 * of the node's tensors is stored by a scale, too. */
bool own_stored_output(const struct ir_graph *graph, const struct ir_node *node,
                       struct kernel_view *y);

/* The pairs of layouts in which kernels read an image and write one, best first. */
enum { OWN_IMAGE_LAYOUTS = 3 };
extern const struct own_image_layout {
    enum ir_layout x, y;
    const char *name;
} own_image_layouts[OWN_IMAGE_LAYOUTS];

/* Makes a tactic whose first input and whose output have these layouts. Epilogue operands of the
 * output's rank lie like the output, all other tensors plainly. */
void own_tactic(struct tactic *tactic, const struct cuda_family *family, uint32_t variant,
                const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                enum ir_layout in, enum ir_layout out, const char *detail);

/* A step whose fp32 operand lies along dim 1 of y and has no data yet. */
struct kernel_step own_channel_step(const struct kernel_view *y, enum ir_binary func);

/* Reads the window of a node with so many spatial dims. False: numbers out of range. */
bool own_window_read(const struct ir_node *node, uint32_t spatial, struct kernel_window *out);

/* Reads that of a convolution by weights of the shape `w`, of one to three spatial dims. *even: the
 * padding is the same on both sides. False: numbers out of range. */
bool own_conv_window_read(const struct ir_node *node, const struct shape *w,
                          struct kernel_window *window, bool *even);

/* Give a view and a window of one spatial dim a height of 1. */
void own_view_add_height(struct kernel_view *view);
void own_window_add_height(struct kernel_window *window);

/* The images that a convolution by this window reads, from dims [N, C, H, W] or [N, C, W] of x and
 * y: those of one spatial dim have a height of 1. False: it has three. */
bool own_window_images(const struct kernel_window *window, const int64_t *x, const int64_t *y,
                       struct kernel_images *out);

/* The images that the second source of a CONV_PAIR is read as, from dims of x2 and y; none if its
 * pixels are rows as they lie. */
void own_pair_images(const struct ir_node *node, const int64_t *x2, const int64_t *y,
                     struct kernel_images *out);

/* Whether a product should go to a kernel that shares a tile's depth among blocks, if nothing is
 * timed: others walk all of the depth with few blocks. */
bool own_is_deep(int64_t rows, int64_t cols, int64_t depth);

/* The variants of kernel_tile, by number. */
extern const char *const own_tile_names[];

/* Whether a stored tactic asks for any input to be packed. */
bool own_packed(const struct tactic *tactic);

/* Whether a stored tactic has all tensors plain, and none packed. */
bool own_plain(const struct tactic *tactic);

/* A call that only asks a launcher whether it takes a case, and one that launches. */
struct kernel_call own_call_dry(const struct cuda_device *device, int32_t variant);
struct kernel_call own_call(const struct backend_stream *stream, int32_t variant);

/* Makes a prepared op: a copy of the `size` bytes that begin with `made` and own nothing. */
enum status own_op_new(const struct backend_op *made, size_t size, struct backend_op **out,
                       struct error *err);

#endif
