/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several threads, the caller among them, each take the next piece until none is left; see
 * file_read.h. If pieces are wanted in order, the caller hands out the pieces that are there before
 * it reads another one.
 */
#include "base/file_read.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { HELPERS_MAX = 7, PIECES_EACH = 4, WORD_MAX = 64, HUGE_PAGE = 2 << 20 };

static const char digest_prefix[] = "inferd file v1";

struct reading {
    int fd;
    const struct file_read *how;
    size_t size, n_pieces;
    char *memory;                     /* where the bytes go; NULL: they are not kept */
    uint8_t (*digests)[DIGEST_BYTES]; /* of the pieces, each written by its reader; or NULL */
    pthread_t helpers[HELPERS_MAX];
    uint32_t n_helpers;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t moved; /* a piece is there, or all is over */
    size_t next;          /* the next piece to be read */
    bool *there;          /* by piece */
    bool found;
    enum status status; /* of the first failure; ends the reading */
    struct error err;
};

/* What each thread has of its own. */
struct reader {
    struct reading *r;
    struct digest *digest;
    char *buffer; /* if nothing is kept: for a piece, and for a word that goes over its end */
};

/* --- one piece --- */

static size_t piece_size(const struct reading *r, size_t index)
{
    return MIN((size_t)FILE_PIECE, r->size - index * FILE_PIECE);
}

static enum status read_at(const struct reading *r, size_t at, char *to, size_t size,
                           struct error *err)
{
    while (size) {
        ssize_t n = pread(r->fd, to, size, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_errno(err, errno, "%s: read", r->how->name);
        if (n == 0)
            return error_cause(err, CAUSE_FILE_CHANGED,
                               "%s: changed while it was read: expected %zu bytes, it ends at %zu",
                               r->how->name, r->size, at);
        to += n;
        at += (size_t)n;
        size -= (size_t)n;
    }
    return STATUS_OK;
}

static enum status piece_read(struct reader *me, size_t index, bool *found, struct error *err)
{
    struct reading *r = me->r;
    size_t at = index * FILE_PIECE, size = piece_size(r, index), more = 0;
    char *to = r->memory ? r->memory + at : me->buffer;
    if (!r->memory && r->how->word)
        more = MIN(strlen(r->how->word) - 1, r->size - at - size);
    assert(to);
    TRY(read_at(r, at, to, size + more, err));
    if (more || (!r->memory && r->how->word))
        *found = memmem(to, size + more, r->how->word, strlen(r->how->word)) != NULL;
    if (!r->digests)
        return STATUS_OK;
    digest_add(me->digest, to, size);
    return digest_finish(me->digest, r->digests[index])
               ? STATUS_OK
               : error_no_memory(err, "a digest of %s", r->how->name);
}

/* --- threads --- */

/* Notes the first failure, which ends the reading. Under the lock. */
static void fail(struct reading *r, enum status status, const struct error *err)
{
    if (!r->status) {
        r->status = status;
        r->err = *err;
    }
}

/* Reads the next piece. Called under the lock, which is released while the piece is read. False:
 * there is none left. */
static bool piece_next(struct reader *me)
{
    struct reading *r = me->r;
    struct error err;
    const struct file_guard *guard = r->how->guard;
    if (!r->status && guard && guard->stop &&
        atomic_load_explicit(guard->stop, memory_order_relaxed)) /* it guards no other data */
        fail(r, error_set(&err, STATUS_CANCELLED, "%s: reading was ended", r->how->name), &err);
    if (r->status || r->next == r->n_pieces)
        return false;
    size_t index = r->next++;
    bool found = false;
    pthread_mutex_unlock(&r->lock);
    enum status status = piece_read(me, index, &found, &err);
    pthread_mutex_lock(&r->lock);
    if (status)
        fail(r, status, &err);
    r->there[index] = !status;
    r->found |= found;
    pthread_cond_broadcast(&r->moved);
    return true;
}

static bool reader_init(struct reader *me, struct reading *r)
{
    *me = (struct reader){.r = r};
    if (r->digests)
        me->digest = digest_new();
    if (!r->memory)
        me->buffer = malloc(FILE_PIECE + WORD_MAX);
    return (me->digest || !r->digests) && (me->buffer || r->memory);
}

static void reader_deinit(struct reader *me)
{
    digest_free(me->digest);
    free(me->buffer);
}

static void *helper_run(void *arg)
{
    struct reader me;
    if (reader_init(&me, arg)) { /* else the other threads read the whole file */
        pthread_mutex_lock(&me.r->lock);
        while (piece_next(&me))
            ;
        pthread_mutex_unlock(&me.r->lock);
    }
    reader_deinit(&me);
    return NULL;
}

static void helpers_start(struct reading *r)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = MIN((size_t)HELPERS_MAX, r->n_pieces / PIECES_EACH);
    for (size_t i = 0; i < n && (long)i + 1 < cores; i++)
        if (pthread_create(&r->helpers[r->n_helpers], NULL, helper_run, r) == 0)
            r->n_helpers++;
}

/* The caller's part: it starts the others, reads as they do, and hands out the pieces in order. */
static enum status pieces_read(struct reading *r, struct error *err)
{
    struct reader me;
    if (!reader_init(&me, r)) {
        reader_deinit(&me);
        return error_no_memory(err, "reading %s", r->how->name);
    }
    helpers_start(r);
    pthread_mutex_lock(&r->lock);
    for (size_t done = 0; done < r->n_pieces && !r->status;) {
        if (r->there[done]) {
            pthread_mutex_unlock(&r->lock);
            if (r->how->piece && r->memory)
                r->how->piece(r->how->user, r->memory + done * FILE_PIECE, piece_size(r, done));
            pthread_mutex_lock(&r->lock);
            done++;
        } else if (!piece_next(&me) && !r->status) {
            pthread_cond_wait(&r->moved, &r->lock);
        }
    }
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < r->n_helpers; i++)
        pthread_join(r->helpers[i], NULL);
    reader_deinit(&me);
    if (r->status && err)
        *err = r->err;
    return r->status;
}

/* --- the digest of all --- */

static bool digest_all(const uint8_t (*digests)[DIGEST_BYTES], size_t n, uint64_t size,
                       uint8_t out[DIGEST_BYTES])
{
    uint8_t length[8];
    for (size_t i = 0; i < sizeof(length); i++)
        length[i] = (uint8_t)(size >> (56 - 8 * i));
    struct digest *d = digest_new();
    if (!d)
        return false;
    digest_add(d, digest_prefix, sizeof(digest_prefix) - 1);
    digest_add(d, length, sizeof(length));
    if (n)
        digest_add(d, digests, n * DIGEST_BYTES);
    bool ok = digest_finish(d, out);
    digest_free(d);
    return ok;
}

/* --- the whole file --- */

static bool unchanged(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static enum status file_check(int fd, const struct file_read *how, struct stat *st,
                              struct error *err)
{
    if (fstat(fd, st) != 0)
        return error_errno(err, errno, "%s", how->name);
    if (!S_ISREG(st->st_mode))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: not a regular file", how->name);
    if ((how->limit && (uint64_t)st->st_size > how->limit) || (uint64_t)st->st_size > SIZE_MAX / 2)
        return error_set(err, STATUS_OUT_OF_RANGE, "%s: %lld bytes, the limit is %llu", how->name,
                         (long long)st->st_size,
                         (unsigned long long)(how->limit ? how->limit : SIZE_MAX / 2));
    return STATUS_OK;
}

/* Reads the bytes to `memory`, or keeps none if that is NULL. Their digest goes to `digest`, if
 * that is not NULL. */
static enum status read_whole(int fd, const struct file_read *how, const struct stat *before,
                              char *memory, uint8_t *digest, struct error *err)
{
    size_t size = (size_t)before->st_size, n = (size + FILE_PIECE - 1) / FILE_PIECE;
    CLEANUP(cleanup_free) bool *there = calloc(MAX(n, 1), sizeof(*there));
    CLEANUP(cleanup_free)
    uint8_t(*digests)[DIGEST_BYTES] = digest ? calloc(MAX(n, 1), sizeof(*digests)) : NULL;
    if (!there || (digest && !digests))
        return error_no_memory(err, "reading %s", how->name);
    struct reading r = {.fd = fd,
                        .how = how,
                        .size = size,
                        .n_pieces = n,
                        .memory = memory,
                        .digests = digests,
                        .there = there,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .moved = PTHREAD_COND_INITIALIZER};
    struct stat after;
    TRY(pieces_read(&r, err));
    if (fstat(fd, &after) != 0)
        return error_errno(err, errno, "%s", how->name);
    if (!unchanged(before, &after))
        return error_cause(err, CAUSE_FILE_CHANGED, "%s: changed while it was read", how->name);
    if (digest && !digest_all((const uint8_t(*)[DIGEST_BYTES])digests, n, size, digest))
        return error_no_memory(err, "a digest of %s", how->name);
    if (how->found)
        *how->found = r.found;
    return STATUS_OK;
}

enum status file_digest(int fd, const struct file_read *how, uint8_t out[DIGEST_BYTES],
                        struct error *err)
{
    struct stat st;
    TRY(file_check(fd, how, &st, err));
    return read_whole(fd, how, &st, NULL, out, err);
}

/* These are wishes, which the kernel may ignore. With huge pages a 200 MB plan takes 100 faults
 * instead of 50,000, and its weights take fewer entries of the TLB. As if the file were mapped, a
 * fork copies no pages of it, and a core does not hold it. */
static void memory_advise(void *memory, size_t size)
{
    madvise(memory, size, MADV_HUGEPAGE);
    madvise(memory, size, MADV_DONTFORK);
    madvise(memory, size, MADV_DONTDUMP);
}

/* Zeroed memory; it is aligned to huge pages if it is larger than one of them. */
static void *memory_take(size_t size)
{
    size_t extra = size > HUGE_PAGE ? HUGE_PAGE : 0;
    char *all =
        mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), used = (size + page - 1) / page * page;
    char *begin = all, *end = all + (size + extra + page - 1) / page * page;
    if (extra)
        begin = (char *)(((uintptr_t)all + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (begin > all)
        munmap(all, (size_t)(begin - all));
    if (end > begin + used)
        munmap(begin + used, (size_t)(end - begin) - used);
    memory_advise(begin, used);
    return begin;
}

/* Fills the memory, has the guard accept it, and makes it read-only. */
static enum status memory_load(int fd, const struct file_read *how, const struct stat *st,
                               char *memory, struct error *err)
{
    const struct file_guard *guard = how->guard;
    bool accept = guard && guard->accept;
    uint8_t digest[DIGEST_BYTES] = {0};
    TRY(read_whole(fd, how, st, memory, accept ? digest : NULL, err));
    if (accept)
        TRY(guard->accept(guard->user, digest, err));
    if (memory && mprotect(memory, (size_t)st->st_size, PROT_READ) != 0)
        return error_errno(err, errno, "%s: mprotect", how->name);
    return STATUS_OK;
}

enum status file_load(int fd, const struct file_read *how, struct file_map *out, struct error *err)
{
    struct stat st;
    TRY(file_check(fd, how, &st, err));
    size_t size = (size_t)st.st_size;
    char *memory = size ? memory_take(size) : NULL;
    if (size && !memory)
        return error_no_memory(err, "%zu bytes of %s", size, how->name);
    struct file_map map = {memory ? memory : "", size};
    enum status status = memory_load(fd, how, &st, memory, err);
    if (status)
        file_unmap(&map);
    else
        *out = map;
    return status;
}
