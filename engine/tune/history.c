/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How candidates did at the batch sizes that were tuned so far. A record's key is made of the
 * node's op and name and of the tactic's name and formats, because shapes differ from batch size
 * to batch size. A candidate that came close to the best once is never hopeless.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/tune/internal.h"
#include "base/hash.h"

enum {
    GRAPHS_MIN = 2,   /* the smallest and the largest */
    HOPELESS_NUM = 4, /* hopeless: took more than 4/3 of the best time in all of them */
    HOPELESS_DEN = 3,
};

struct record {
    struct tune_key key;
    bool close; /* came close to the best at least once */
    uint32_t seen;
    UT_hash_handle hh;
};

struct tune_history {
    struct record *records;
    uint32_t graphs;
};

struct tune_history *tune_history_new(void)
{
    return calloc(1, sizeof(struct tune_history));
}

void tune_history_free(struct tune_history *h)
{
    struct record *r, *next;
    if (!h)
        return;
    HASH_ITER(hh, h->records, r, next)
    {
        HASH_DEL(h->records, r); /* NOLINT: the analyser loses uthash's list */
        free(r);
    }
    free(h);
}

static struct tune_key key_of(const struct tune_entry *e, const struct tactic *tactic)
{
    const struct ir_node *node = ir_node(e->sample, 0);
    uint64_t words[4 + TACTIC_PORTS_MAX + IR_MAX_OUTPUTS] = {
        node->op, XXH3_64bits(node->name, strlen(node->name)), tactic->id,
        XXH3_64bits(tactic->name, strlen(tactic->name))};
    uint32_t n = 4;
    for (uint32_t i = 0; i < tactic->n_in; i++)
        words[n++] = tune_format_word(tactic->in[i].format);
    for (uint32_t i = 0; i < tactic->n_out; i++)
        words[n++] = tune_format_word(tactic->out[i].format);
    XXH128_hash_t hash = XXH3_128bits(words, n * sizeof(*words));
    return (struct tune_key){hash.high64, hash.low64};
}

static struct record *find(const struct tune_history *h, const struct tune_entry *e,
                           const struct tactic *tactic)
{
    struct tune_key key = key_of(e, tactic);
    struct record *r = NULL;
    HASH_FIND(hh, h->records, &key, sizeof(key), r); /* NOLINT: hashes bytes that are set */
    return r;
}

static uint64_t best_of(const struct tune_entry *e, enum dtype dtype)
{
    uint64_t best = TUNE_NEVER;
    for (uint32_t i = 0; i < e->n; i++)
        if (tune_type(e->sample, e->options[i].tactic) == dtype && e->options[i].ns < best)
            best = e->options[i].ns;
    return best;
}

bool tune_history_note(struct tune_history *h, const struct tune_entry *e)
{
    for (uint32_t i = 0; i < e->n; i++) {
        const struct tune_option *o = &e->options[i];
        /* A guess proves nothing, nor does a disturbed time. A candidate that was given up because
         * of other batch sizes did not run, so it is no second witness either. */
        if (o->given_up || !tune_believed(o) || (!o->timed && o->ns < TUNE_NEVER))
            continue;
        struct record *r = find(h, e, o->tactic);
        if (!r) {
            r = calloc(1, sizeof(*r));
            if (!r)
                return false;
            r->key = key_of(e, o->tactic);
            HASH_ADD(hh, h->records, key, sizeof(r->key), r);
            if (!HASH_ADDED(r)) {
                free(r);
                return false;
            }
        }
        r->seen++;
        /* Compared within its own type: the solver chooses the types, over the whole graph. */
        uint64_t best = best_of(e, tune_type(e->sample, o->tactic));
        r->close = r->close || o->ns / HOPELESS_NUM <= best / HOPELESS_DEN;
    }
    return true;
}

void tune_history_graph_done(struct tune_history *h)
{
    h->graphs++;
}

bool tune_history_hopeless(const struct tune_history *h, const struct tune_entry *e,
                           const struct tune_option *o)
{
    const struct record *r = h->graphs >= GRAPHS_MIN ? find(h, e, o->tactic) : NULL;
    return r && r->seen >= GRAPHS_MIN && !r->close;
}
