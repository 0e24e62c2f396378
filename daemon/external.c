/* SPDX-License-Identifier: Apache-2.0 */
/* External data of models, see external.h. */
#include "daemon/external.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/file.h"

/* StringStringEntryProto: field 1 with the key, field 2 with the value. */
static const char key[] = "\x0a\x08" EXTERNAL_WORD;

enum { KEY_BYTES = sizeof(key) - 1, VALUE_TAG = 0x12, PATH_MOST = 1024 };

struct external {
    bool all; /* every file in the folder */
    size_t n, capacity;
    char **paths; /* each once after external_find */
};

void external_free(struct external *x)
{
    if (!x)
        return;
    for (size_t i = 0; i < x->n; i++)
        free(x->paths[i]);
    free(x->paths);
    free(x);
}

static void external_cleanup(struct external **x)
{
    external_free(*x);
}

static bool path_add(struct external *x, const char *text, size_t len)
{
    /* Thousands of tensors in a row may name the same file. */
    if (x->n && strlen(x->paths[x->n - 1]) == len && !memcmp(x->paths[x->n - 1], text, len))
        return true;
    if (x->n == x->capacity) {
        size_t capacity = x->capacity ? 2 * x->capacity : 16;
        char **more = realloc(x->paths, capacity * sizeof(*more));
        if (!more)
            return false;
        x->paths = more;
        x->capacity = capacity;
    }
    x->paths[x->n] = strndup(text, len);
    if (!x->paths[x->n])
        return false;
    x->n++;
    return true;
}

/* Adds the value that follows a key: a path whose length takes one or two bytes. */
static bool value_add(struct external *x, const char *at, const char *end)
{
    const unsigned char *p = (const unsigned char *)at;
    size_t left = (size_t)(end - at), len = 0, head = 2;
    if (left >= 2 && p[0] == VALUE_TAG)
        len = p[1];
    if (len >= 0x80 && left >= 3 && p[2] < 0x80) {
        len = (len & 0x7f) | (size_t)p[2] << 7;
        head = 3;
    }
    if (len == 0 || len > PATH_MOST || head + len > left || memchr(at + head, 0, len)) {
        x->all = true;
        return true;
    }
    return path_add(x, at + head, len);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void paths_once(struct external *x)
{
    size_t kept = 0;
    if (x->n)
        qsort(x->paths, x->n, sizeof(*x->paths), by_text);
    for (size_t i = 0; i < x->n; i++) {
        if (kept && strcmp(x->paths[kept - 1], x->paths[i]) == 0)
            free(x->paths[i]);
        else
            x->paths[kept++] = x->paths[i];
    }
    x->n = kept;
}

enum status external_find(const void *model, size_t size, struct external **out, struct error *err)
{
    const char *at = model, *end = at + size;
    CLEANUP(external_cleanup) struct external *x = calloc(1, sizeof(*x));
    bool ok = x != NULL;
    while (ok && (at = memmem(at, (size_t)(end - at), key, KEY_BYTES))) {
        at += KEY_BYTES;
        ok = value_add(x, at, end);
    }
    if (!ok)
        return error_no_memory(err, "a list of external data");
    paths_once(x);
    *out = x->n || x->all ? STEAL(x) : NULL;
    return STATUS_OK;
}

/* --- how they are --- */

static void state_add(struct digest *d, const char *path, const struct stat *st)
{
    const int64_t seen[] = {(int64_t)st->st_dev, (int64_t)st->st_ino, st->st_size,
                            st->st_mtim.tv_sec,  st->st_mtim.tv_nsec, st->st_ctim.tv_sec,
                            st->st_ctim.tv_nsec};
    digest_add(d, path, strlen(path) + 1);
    digest_add(d, seen, sizeof(seen));
}

/* Adds all files of the folder, in an order that does not depend on how they are listed. */
static bool folder_state(int folder, struct digest *d)
{
    struct dirent **list;
    int n = scandirat(folder, ".", &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        struct stat st;
        if (fstatat(folder, list[i]->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            state_add(d, list[i]->d_name, &st);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    return n >= 0;
}

enum status external_state(const struct external *x, int folder, uint8_t out[DIGEST_BYTES],
                           struct error *err)
{
    struct digest *d = digest_new();
    bool ok = d && (!x->all || folder_state(folder, d));
    for (size_t i = 0; ok && i < x->n; i++) {
        struct stat st = {0};
        int fd;
        if (!file_open_beneath(folder, x->paths[i], &fd, NULL)) {
            ok = fstat(fd, &st) == 0;
            close(fd);
        }
        state_add(d, x->paths[i], &st);
    }
    ok = ok && digest_finish(d, out);
    digest_free(d);
    return ok ? STATUS_OK
              : error_set(err, STATUS_RESOURCE_EXHAUSTED, "the model's folder cannot be looked at");
}
