/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How candidates did at the sizes (of batches, and of other dimensions) that were tuned so far. A
 * record's key is made of the node's op and name and of the tactic's name and formats, because
 * shapes differ from size to size. What a candidate is expected to do is what it did at the nearest
 * smaller and the nearest larger size, of which the better counts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/hash.h"
#include "engine/tune/internal.h"

enum {
    SIZES_MIN = 2, /* the smallest and the largest, of which all is tried */
    SEEN_MAX = 16, /* sizes that a record remembers */
    KIN_MAX = 3,   /* of a kin, so many are compiled */
};

/* A candidate is hopeless if it took so many times the best time: */
#define BEHIND     (4.0F / 3) /* at both sizes */
#define KIN_BEHIND 1.15F      /* the same, if it takes long to compile */
#define KIN_ALONE  1.5F       /* the same, at the one size where it was tried */

struct record {
    struct tune_key key;
    uint32_t n;
    struct {
        uint64_t size;
        float behind; /* its time for one of the best, among those with its types */
    } seen[SEEN_MAX];
    UT_hash_handle hh;
};

struct tune_history {
    struct record *records;
    /* The largest tensors of the graphs that were tuned: trials of one size count once. */
    uint64_t sizes[SEEN_MAX];
    uint32_t n_sizes;
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

/* `tactic` NULL: a record of the node alone, that it was there. */
static struct tune_key key_of(const struct tune_entry *e, const struct tactic *tactic)
{
    const struct ir_node *node = ir_node(e->sample, 0);
    uint64_t words[4 + TACTIC_PORTS_MAX + IR_MAX_OUTPUTS] = {
        node->op, XXH3_64bits(node->name, strlen(node->name))};
    uint32_t n = 2;
    if (tactic) {
        words[n++] = tactic->id;
        words[n++] = XXH3_64bits(tactic->name, strlen(tactic->name));
    }
    for (uint32_t i = 0; tactic && i < tactic->n_in; i++)
        words[n++] = tune_format_word(tactic->in[i].format);
    for (uint32_t i = 0; tactic && i < tactic->n_out; i++)
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

static uint64_t size_of(const struct tune_entry *e)
{
    const struct ir_node *node = ir_node(e->sample, 0);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        bytes += ir_tensor(e->sample, node->outputs[i])->bytes;
    return bytes;
}

static uint64_t best_of(const struct tune_entry *e, enum dtype dtype)
{
    uint64_t best = TUNE_NEVER;
    for (uint32_t i = 0; i < e->n; i++)
        if (tune_type(e->sample, e->options[i].tactic) == dtype && e->options[i].ns < best)
            best = e->options[i].ns;
    return best;
}

static struct record *find_or_add(struct tune_history *h, const struct tune_entry *e,
                                  const struct tactic *tactic)
{
    struct record *r = find(h, e, tactic);
    if (r || !(r = calloc(1, sizeof(*r))))
        return r;
    r->key = key_of(e, tactic);
    HASH_ADD(hh, h->records, key, sizeof(r->key), r);
    if (HASH_ADDED(r))
        return r;
    free(r);
    return NULL;
}

static void note(struct record *r, uint64_t size, float behind)
{
    uint32_t i = 0;
    while (i < r->n && r->seen[i].size != size)
        i++;
    if (i == SEEN_MAX)
        return;
    r->seen[i].behind = i < r->n ? MIN(r->seen[i].behind, behind) : behind;
    r->seen[i].size = size;
    r->n = MAX(r->n, i + 1);
}

bool tune_history_note(struct tune_history *h, const struct tune_entry *e)
{
    struct record *r = find_or_add(h, e, NULL);
    if (!r)
        return false;
    note(r, size_of(e), 0);
    for (uint32_t i = 0; i < e->n; i++) {
        const struct tune_option *o = &e->options[i];
        /* A guess proves nothing, nor does a disturbed time. A candidate that was given up did not
         * run. */
        if (o->given_up || !tune_believed(o) || (!o->timed && o->ns < TUNE_NEVER))
            continue;
        if (!(r = find_or_add(h, e, o->tactic)))
            return false;
        /* Compared within its own type: the solver chooses the types, over the whole graph. */
        uint64_t best = best_of(e, tune_type(e->sample, o->tactic));
        note(r, size_of(e), (float)o->ns / (float)MAX(best, 1));
    }
    return true;
}

void tune_history_graph_done(struct tune_history *h, uint64_t largest)
{
    for (uint32_t i = 0; i < h->n_sizes; i++)
        if (h->sizes[i] == largest)
            return;
    if (h->n_sizes < SEEN_MAX)
        h->sizes[h->n_sizes++] = largest;
}

/* What is expected of a candidate. */
struct outlook {
    uint32_t sides; /* on which it was tried: sizes that are smaller, that are larger */
    float behind;   /* the better of the two */
};

static struct outlook outlook(const struct record *r, uint64_t size)
{
    uint64_t below = 0, above = UINT64_MAX;
    float behind[2] = {0};
    struct outlook o = {0};
    for (uint32_t i = 0; r && i < r->n; i++) {
        uint64_t at = r->seen[i].size;
        if (at <= size && at >= below) {
            below = at;
            behind[0] = r->seen[i].behind;
        }
        if (at >= size && at <= above) {
            above = at;
            behind[1] = r->seen[i].behind;
        }
    }
    o.sides = (behind[0] > 0) + (behind[1] > 0);
    o.behind = behind[0] == 0 ? behind[1] : behind[1] == 0 ? behind[0] : MIN(behind[0], behind[1]);
    return o;
}

/* How many of the option's kin promise more. */
static uint32_t better_kin(const struct tune_history *h, const struct tune_entry *e,
                           const struct tune_option *o, float behind)
{
    uint32_t n = 0;
    for (const struct tune_option *other = e->options; other < e->options + e->n; other++) {
        if (other == o || other->tactic->kin != o->tactic->kin)
            continue;
        struct outlook look = outlook(find(h, e, other->tactic), size_of(e));
        n += look.sides && (look.behind < behind || (look.behind == behind && other < o));
    }
    return n;
}

enum tune_promise tune_history_ask(const struct tune_history *h, const struct tune_entry *e,
                                   const struct tune_option *o)
{
    const struct record *node = h->n_sizes >= SIZES_MIN ? find(h, e, NULL) : NULL;
    if (!node)
        return TUNE_UNKNOWN;
    struct outlook look = outlook(find(h, e, o->tactic), size_of(e));
    if (!o->tactic->kin)
        return look.sides < 2 ? TUNE_UNKNOWN : look.behind > BEHIND ? TUNE_HOPELESS : TUNE_GOOD;
    if (!look.sides) /* it was not worth compiling elsewhere */
        return node->n >= SIZES_MIN && o->tactic->wave ? TUNE_HOPELESS : TUNE_UNKNOWN;
    if (look.behind > (look.sides == 2 ? KIN_BEHIND : KIN_ALONE) ||
        better_kin(h, e, o, look.behind) >= KIN_MAX)
        return TUNE_HOPELESS;
    return TUNE_GOOD;
}
