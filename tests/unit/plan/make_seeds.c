/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the seeds of fuzz_plan: make_plan_seeds FOLDER [PLAN]... Run by hand when the format
 * changes. The structures of the given plans become seeds too, each named after its file; their
 * weights are left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/format.h"
#include "tests/unit/plan/sample.h"

static int put(const char *folder, const char *name, const void *head, size_t head_size,
               const void *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f)
        return 1;
    fwrite(head, 1, head_size, f);
    fwrite(data, 1, size, f);
    return fclose(f);
}

/* Writes a seed from a plan's file: a 2, the sizes of weights and code, and the structure. Or a 3,
 * these sizes and the tail's, structure and tail. */
static int put_structure(const char *folder, const char *plan)
{
    struct error err;
    struct file_map map;
    const char *slash = strrchr(plan, '/');
    if (file_map_path(plan, 0, &map, &err))
        return 1;
    const struct plan_header *h = map.data;
    const unsigned char *from = map.data;
    uint64_t weights = (h->weights_size + 63) / 64, code = (h->code_size + 63) / 64;
    unsigned char units[5] = {h->tail_size ? 3 : 2, (unsigned char)weights,
                              (unsigned char)(weights >> 8 | code << 2),
                              (unsigned char)h->tail_size, (unsigned char)(h->tail_size >> 8)};
    size_t size = h->structure_size + h->tail_size;
    unsigned char *both = malloc(size + 1);
    int rc = weights >> 10 || code >> 6 || h->tail_size >> 16 || !both;
    if (!rc) {
        memcpy(both, from + h->structure_offset, h->structure_size);
        memcpy(both + h->structure_size, from + h->tail_offset, h->tail_size);
        rc = put(folder, slash ? slash + 1 : plan, units, h->tail_size ? 5 : 3, both, size);
    }
    free(both);
    file_unmap(&map);
    return rc;
}

int main(int argc, char **argv)
{
    char path[] = "/tmp/inferd-seed-XXXXXX";
    struct error err;
    struct file_map map;
    struct plan *plan = sample_plan();
    if (argc < 2 || !plan || mkstemp(path) < 0 || plan_write(path, plan, &err) ||
        file_map_path(path, 0, &map, &err))
        return EXIT_FAILURE;
    const struct plan_header *h = map.data;
    const unsigned char *bytes = map.data;
    const unsigned char units[3] = {1, (unsigned char)((h->weights_size + 63) / 64),
                                    (unsigned char)((h->code_size + 63) / 64 << 2)};
    int rc = put(argv[1], "file", "", 1, bytes, map.size);
    rc |= put(argv[1], "structure", units, 3, bytes + h->structure_offset, h->structure_size);
    rc |= put(argv[1], "header", "", 1, bytes, sizeof(*h));
    for (int i = 2; i < argc; i++)
        rc |= put_structure(argv[1], argv[i]);
    file_unmap(&map);
    plan_free(plan);
    remove(path);
    return rc;
}
