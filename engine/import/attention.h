/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the attention ops of ONNX and of com.microsoft share. Shapes: B sequences, H heads, S
 * queries, T keys, D columns of a head. An operand is in rows, [B,S,H*D], or has its heads first,
 * [B,H,S,D].
 * Masks broadcast to [B,H,S,T]: BOOL (true: the query sees the key), or numbers that are added to
 * the scores.
 */
#ifndef INFERD_ENGINE_IMPORT_ATTENTION_H
#define INFERD_ENGINE_IMPORT_ATTENTION_H

#include "engine/import/ops.h"

/* One attention. The node at hand says how scores are scaled. */
struct attention {
    uint32_t q, k, v; /* k and v IR_NONE: the rows of q hold all three */
    uint32_t mask;    /* IR_NONE: none */
    int64_t heads, kv_heads;
    bool causal; /* query i sees the keys up to i + T - S */
};

/* Gives [B,S,H*D]. */
uint32_t emit_attention(struct mapper *m, const struct attention *a);
/* The same by products, with capped scores (0: not) and one of the scores' stages as *scores. */
uint32_t emit_attention_parts(struct mapper *m, const struct attention *a, float cap, int64_t mode,
                              uint32_t *scores);

int64_t attention_heads(struct mapper *m, const char *name); /* an attribute, 1 and more */
uint32_t attention_heads_first(struct mapper *m, uint32_t x, int64_t heads);
uint32_t attention_heads_last(struct mapper *m, uint32_t x);
int64_t attention_rows(struct mapper *m, uint32_t x); /* S or T of an operand */
/* Puts past keys and values ([B,kv_heads,P,D], or both IR_NONE) before the new ones; gives P. */
int64_t attention_extend(struct mapper *m, struct attention *a, uint32_t keys, uint32_t values);
/* Makes keys or values output `i`, with their heads first. */
void attention_out(struct mapper *m, uint32_t i, uint32_t x, int64_t heads);
/* The attribute, or 1 / sqrt(columns) if it is absent or 0. */
float attention_scale(struct mapper *m, const char *name, int64_t columns);

/* --- masks --- */
uint32_t attention_column(struct mapper *m, uint32_t x,
                          uint32_t axis);                /* a vector along one of 4 */
uint32_t attention_keys(struct mapper *m, int64_t keys); /* 0..T-1, [1,1,1,T] */
/* The places of queries among the keys, [B|1,1,S,1], INT64; `first` is the first query's. */
uint32_t attention_places(struct mapper *m, int64_t queries, uint32_t first);
/* BOOL: keys from `left` before a query's place to `right` behind it; -1: no bound. */
uint32_t attention_window(struct mapper *m, uint32_t places, int64_t keys, int64_t left,
                          int64_t right);
/* Both masks; either may be IR_NONE. */
uint32_t attention_mask_add(struct mapper *m, uint32_t a, uint32_t b, enum dtype dtype);
/* 0 where `seen` is true, and `unseen` elsewhere. */
uint32_t attention_mask_numbers(struct mapper *m, uint32_t seen, float unseen, enum dtype dtype);

#endif
