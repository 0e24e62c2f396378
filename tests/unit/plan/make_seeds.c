/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the seeds of fuzz_plan: make_plan_seeds FOLDER. Run by hand when the format changes.
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

int main(int argc, char **argv)
{
    char path[] = "/tmp/inferd-seed-XXXXXX";
    struct error err;
    struct file_map map;
    struct plan *plan = sample_plan();
    if (argc != 2 || !plan || mkstemp(path) < 0 || plan_write(path, plan, &err) ||
        file_map_path(path, 0, &map, &err))
        return EXIT_FAILURE;
    const struct plan_header *h = map.data;
    const unsigned char *bytes = map.data;
    const unsigned char units[3] = {1, (unsigned char)((h->weights_size + 63) / 64),
                                    (unsigned char)((h->code_size + 63) / 64 << 2)};
    int rc = put(argv[1], "file", "", 1, bytes, map.size);
    rc |= put(argv[1], "structure", units, 3, bytes + h->structure_offset, h->structure_size);
    rc |= put(argv[1], "header", "", 1, bytes, sizeof(*h));
    file_unmap(&map);
    plan_free(plan);
    remove(path);
    return rc;
}
