/* SPDX-License-Identifier: Apache-2.0 */
/* See files.h. */
#include "tests/fuzz/files.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_SIZE = 1 << 24, MAX_PATH = 4096 };

void files_try(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        abort();
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

struct walk {
    const char *suffix;
    void (*each)(uint8_t *data, size_t size);
};

static uint32_t read_file(const struct walk *walk, const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(MAX_SIZE);
    if (!file || !data) {
        perror(path);
        exit(1);
    }
    size_t size = fread(data, 1, MAX_SIZE, file);
    fclose(file);
    walk->each(data, size);
    free(data);
    return 1;
}

static bool is_wanted(const struct walk *walk, const char *path)
{
    size_t len = strlen(path), end = strlen(walk->suffix);
    return len >= end && strcmp(path + len - end, walk->suffix) == 0;
}

static uint32_t folder_walk(const struct walk *walk, const char *path)
{
    struct dirent **entries;
    char inner[MAX_PATH];
    uint32_t n = 0;
    int n_entries = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n_entries; i++) {
        int len = snprintf(inner, sizeof(inner), "%s/%s", path, entries[i]->d_name);
        bool skip = entries[i]->d_name[0] == '.' || len >= MAX_PATH;
        bool folder = entries[i]->d_type == DT_DIR;
        free(entries[i]);
        if (!skip && folder)
            n += folder_walk(walk, inner);
        else if (!skip && is_wanted(walk, inner))
            n += read_file(walk, inner);
    }
    if (n_entries >= 0)
        free(entries);
    return n;
}

uint32_t files_walk(int argc, char **argv, void (*each)(uint8_t *data, size_t size))
{
    static const char option[] = "--suffix=";
    struct walk walk = {"", each};
    struct stat st;
    uint32_t n = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], option, sizeof(option) - 1) == 0) {
            walk.suffix = argv[i] + sizeof(option) - 1;
            continue;
        }
        if (stat(argv[i], &st)) {
            perror(argv[i]);
            exit(1);
        }
        n += S_ISDIR(st.st_mode) ? folder_walk(&walk, argv[i]) : read_file(&walk, argv[i]);
    }
    return n;
}
