/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds files to a fuzz target, one by one: arguments are files, or folders of files. It stands in
 * for libFuzzer's main where there is no libFuzzer, so that every build replays the seed corpus.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_SIZE = 1 << 24 };

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(MAX_SIZE);
    if (!file || !data) {
        perror(path);
        exit(1);
    }
    size_t size = fread(data, 1, MAX_SIZE, file);
    fclose(file);
    /* A block of exactly this size, so that a read beyond it is seen. */
    uint8_t *exact = realloc(data, size ? size : 1);
    LLVMFuzzerTestOneInput(exact ? exact : data, size);
    free(exact ? exact : data);
    return 1;
}

static int replay(const char *path)
{
    struct stat st;
    char inner[4096];
    int n = 0;
    if (stat(path, &st)) {
        perror(path);
        exit(1);
    }
    if (!S_ISDIR(st.st_mode))
        return replay_file(path);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            n += replay_file(inner);
    }
    if (dir)
        closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++)
        n += replay(argv[i]);
    printf("%d inputs replayed\n", n);
    return n ? 0 : 1;
}
