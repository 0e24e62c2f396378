/* SPDX-License-Identifier: Apache-2.0 */
/* Spellings of the few compiler extensions the code relies on; gcc and clang know them all. */
#ifndef INFERD_BASE_COMPILER_H
#define INFERD_BASE_COMPILER_H

#define CLEANUP(fn)       __attribute__((cleanup(fn)))
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define UNUSED            __attribute__((unused))
#define MUST_USE          __attribute__((warn_unused_result))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#ifndef MIN /* <sys/param.h> has the same two, and <uv.h> includes it */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif

/* The struct that embeds `member` at `ptr`. */
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Takes the value out of a cleanup variable, so that its cleanup finds nothing to do. */
#define STEAL(ptr)                                                                                 \
    __extension__({                                                                                \
        __typeof__(ptr) stolen_ = (ptr);                                                           \
        (ptr) = NULL;                                                                              \
        stolen_;                                                                                   \
    })

#endif
