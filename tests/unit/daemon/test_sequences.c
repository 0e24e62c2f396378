/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No sequence of connects, sends, reads and leaves makes a state that does not recover: random
 * scripts against a real loop in virtual time (played.h).
 *
 *   test_sequences               fixed seeds, and some that are new each time
 *   test_sequences SEED [COUNT]  from that seed on; each event of a single one is printed
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tests/unit/daemon/played.h"

enum { SCRIPT = 700, FIXED = 120, NEW_SECONDS = 5 };

static uint64_t next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64, Steele et al. 2014 */
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Seeds that once found something. */
static const uint64_t found[] = {UINT64_C(1795352582909800139)};

static void play(uint64_t seed)
{
    uint8_t script[SCRIPT];
    uint64_t state = seed;
    size_t size = 40 + next(&state) % (SCRIPT - 40);
    for (size_t i = 0; i < size; i++)
        script[i] = (uint8_t)next(&state);
    snprintf(played_title, sizeof(played_title), "seed %llu (test_sequences SEED plays it alone)",
             (unsigned long long)seed);
    played_run(script, size);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (argc > 1) {
        played_loud = count == 1;
        for (uint64_t i = 0; i < count; i++)
            play(first + i);
        return 0;
    }
    for (uint64_t seed = 1; seed <= FIXED; seed++)
        play(seed);
    for (size_t i = 0; i < ARRAY_LEN(found); i++)
        play(found[i]);
    struct timespec begin, now;
    clock_gettime(CLOCK_REALTIME, &begin);
    first = (uint64_t)begin.tv_sec * NS_PER_S + (uint64_t)begin.tv_nsec;
    for (clock_gettime(CLOCK_REALTIME, &now); now.tv_sec - begin.tv_sec < NEW_SECONDS;
         clock_gettime(CLOCK_REALTIME, &now))
        play(first++);
    return 0;
}
