/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which candidates that take long to compile are worth it. A kin is one kernel in many forms:
 * tiles, splits. Its first forms say about how good it can be, so the others are compiled only
 * where these come close to the best of the node, and where the node's part in the whole graph is
 * large enough that a better form would be noticed.
 */
#include "base/compiler.h"
#include "engine/tune/internal.h"

/* By wave: how far behind the best the kin may be, and the least part of the graph's time that the
 * node's has to be, both in 1/1000. The last row, for all later waves, leaves hardly anything. */
static const struct {
    uint64_t behind, part;
} rules[] = {{0, 0}, {400, 3}, {120, 8}, {0, 1000}};

uint64_t tune_best(const struct tune_entry *e)
{
    uint64_t best = 0;
    for (uint32_t i = 0; i < e->n; i++)
        if (e->options[i].timed && e->options[i].ns < TUNE_NEVER &&
            (!best || e->options[i].ns < best))
            best = e->options[i].ns;
    return best;
}

uint64_t tune_wave_whole(struct tune_table *t)
{
    uint64_t sum = 0;
    for (struct tune_entry *e = tune_table_next(t, NULL); e; e = tune_table_next(t, e))
        sum += e->uses * tune_best(e);
    return sum;
}

uint32_t tune_wave_last(const struct tune_entry *e)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < e->n; i++)
        last = MAX(last, e->options[i].wave);
    return last;
}

/* What is known when a wave begins. */
struct look {
    uint64_t kin;   /* the least time of the option's kin; 0: none was timed */
    uint64_t alike; /* of the options that store tensors in the same types */
    uint64_t all;
    bool failed; /* some of the kin were tried, and did not work */
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return !a ? b : MIN(a, b);
}

static struct look look_at(const struct tune_entry *e, const struct tune_option *o)
{
    struct look l = {.all = tune_best(e)};
    uint32_t types = tune_types(e->sample, o->tactic);
    for (uint32_t i = 0; i < e->n; i++) {
        const struct tune_option *other = &e->options[i];
        bool kin = other->tactic->kin == o->tactic->kin && other->wave < o->wave;
        l.failed = l.failed || (kin && other->ns >= TUNE_NEVER && !other->given_up);
        if (!other->timed || other->ns >= TUNE_NEVER)
            continue;
        l.kin = kin ? least(l.kin, other->ns) : l.kin;
        l.alike =
            tune_types(e->sample, other->tactic) == types ? least(l.alike, other->ns) : l.alike;
    }
    return l;
}

bool tune_wave_worth(const struct tune_entry *e, const struct tune_option *o, uint64_t whole)
{
    const struct look l = look_at(e, o);
    uint32_t rule = MIN(o->wave, (uint32_t)ARRAY_LEN(rules) - 1);
    if (!l.kin) /* where the first forms do not work, others may */
        return l.failed || !l.all;
    return l.kin <= l.alike + l.alike * rules[rule].behind / 1000 && l.kin <= 2 * l.all &&
           e->uses * l.all >= whole * rules[rule].part / 1000;
}
