/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleanups of what many functions own for a while; for CLEANUP of base/compiler.h.
 *
 *   CLEANUP(cleanup_close) int fd = open(...);                    // -1: nothing to close
 *   CLEANUP(cleanup_free) char *text = malloc(size);
 *   CLEANUP(cleanup_unlock) pthread_mutex_t *held = cleanup_lock(&mutex);
 */
#ifndef INFERD_BASE_CLEANUP_H
#define INFERD_BASE_CLEANUP_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

static inline void cleanup_close(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

/* `pointer` is the address of a pointer to anything that free(3) takes. */
static inline void cleanup_free(void *pointer)
{
    void *memory;
    memcpy(&memory, pointer, sizeof(memory));
    free(memory);
}

static inline pthread_mutex_t *cleanup_lock(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void cleanup_unlock(pthread_mutex_t **held)
{
    pthread_mutex_unlock(*held);
}

#endif
