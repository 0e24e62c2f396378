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

void external_free(struct external *external)
{
    if (!external)
        return;
    for (size_t i = 0; i < external->n; i++)
        free(external->paths[i]);
    free(external->paths);
    free(external);
}

static void external_cleanup(struct external **external)
{
    external_free(*external);
}

static bool path_add(struct external *external, const char *text, size_t len)
{
    /* Thousands of tensors in a row may name the same file. */
    if (external->n && strlen(external->paths[external->n - 1]) == len &&
        !memcmp(external->paths[external->n - 1], text, len))
        return true;
    if (external->n == external->capacity) {
        size_t capacity = external->capacity ? 2 * external->capacity : 16;
        char **more = realloc(external->paths, capacity * sizeof(*more));
        if (!more)
            return false;
        external->paths = more;
        external->capacity = capacity;
    }
    external->paths[external->n] = strndup(text, len);
    if (!external->paths[external->n])
        return false;
    external->n++;
    return true;
}

/* Adds the value that follows a key: a path whose length takes one or two bytes. */
static bool value_add(struct external *external, const char *at, const char *end)
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
        external->all = true;
        return true;
    }
    return path_add(external, at + head, len);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void paths_once(struct external *external)
{
    size_t kept = 0;
    if (external->n)
        qsort(external->paths, external->n, sizeof(*external->paths), by_text);
    for (size_t i = 0; i < external->n; i++) {
        if (kept && strcmp(external->paths[kept - 1], external->paths[i]) == 0)
            free(external->paths[i]);
        else
            external->paths[kept++] = external->paths[i];
    }
    external->n = kept;
}

enum status external_find(const void *model, size_t size, struct external **out, struct error *err)
{
    const char *at = model, *end = at + size;
    CLEANUP(external_cleanup) struct external *external = calloc(1, sizeof(*external));
    bool ok = external != NULL;
    while (ok && (at = memmem(at, (size_t)(end - at), key, KEY_BYTES))) {
        at += KEY_BYTES;
        ok = value_add(external, at, end);
    }
    if (!ok)
        return error_no_memory(err, "a list of external data");
    paths_once(external);
    *out = external->n || external->all ? STEAL(external) : NULL;
    return STATUS_OK;
}

/* --- how they are --- */

static void state_add(struct digest *digest, const char *path, const struct stat *st)
{
    const int64_t seen[] = {(int64_t)st->st_dev, (int64_t)st->st_ino, st->st_size,
                            st->st_mtim.tv_sec,  st->st_mtim.tv_nsec, st->st_ctim.tv_sec,
                            st->st_ctim.tv_nsec};
    digest_add(digest, path, strlen(path) + 1);
    digest_add(digest, seen, sizeof(seen));
}

/* Adds all files of the folder, in an order that does not depend on how they are listed. */
static bool folder_state(int folder, struct digest *digest)
{
    struct dirent **list;
    int n = scandirat(folder, ".", &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        struct stat st;
        if (fstatat(folder, list[i]->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            state_add(digest, list[i]->d_name, &st);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    return n >= 0;
}

enum status external_state(const struct external *external, int folder, uint8_t out[DIGEST_BYTES],
                           struct error *err)
{
    struct digest *digest = digest_new();
    bool ok = digest && (!external->all || folder_state(folder, digest));
    for (size_t i = 0; ok && i < external->n; i++) {
        struct stat st = {0};
        int fd;
        if (!file_open_beneath(folder, external->paths[i], &fd, NULL)) {
            ok = fstat(fd, &st) == 0;
            close(fd);
        }
        state_add(digest, external->paths[i], &st);
    }
    ok = ok && digest_finish(digest, out);
    digest_free(digest);
    return ok ? STATUS_OK
              : error_set(err, STATUS_RESOURCE_EXHAUSTED, "the model's folder cannot be looked at");
}
