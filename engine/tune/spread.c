/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/spread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/compiler.h"

enum { THREADS_MAX = 64 };

struct share {
    void (*one)(void *user, uint32_t i);
    void *user;
    uint32_t n;
    atomic_uint next;
};

static void *work(void *user)
{
    struct share *s = user;
    for (uint32_t i = atomic_fetch_add(&s->next, 1); i < s->n; i = atomic_fetch_add(&s->next, 1))
        s->one(s->user, i);
    return NULL;
}

void spread(uint32_t n, void (*one)(void *user, uint32_t i), void *user)
{
    pthread_t threads[THREADS_MAX];
    uint32_t started = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct share share = {.one = one, .user = user, .n = n};
    uint32_t wanted = MIN((uint32_t)MIN(MAX(cores, 1), (long)THREADS_MAX), n);
    while (started + 1 < wanted && !pthread_create(&threads[started], NULL, work, &share))
        started++;
    work(&share);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
