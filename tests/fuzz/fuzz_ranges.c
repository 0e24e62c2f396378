/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a table of ranges. What is accepted has sane numbers and each name once, and is the
 * same after it was written and read. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/quant/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_row(const struct quant_table *table, uint32_t i)
{
    const struct quant_row *row = quant_table_at(table, i);
    uint32_t index;
    if (quant_table_find(table, row->name, &index) != row || index != i || !row->name[0])
        abort();
    if (row->dtype == DTYPE_NONE)
        return;
    int32_t least = row->dtype == DTYPE_I8 ? INT8_MIN : 0;
    if (!isfinite(row->step) || !(row->step > 0) || row->zero < least || row->zero > least + 255)
        abort();
}

static enum status write_and_read(int fd, const struct quant_table *table, struct quant_table **out,
                                  struct error *err)
{
    CLEANUP(file_writer_cleanup) struct file_writer *writer = NULL;
    struct file_map map;
    TRY(file_writer_new_fd(fd, "ranges", &writer, err));
    TRY(quant_table_write(writer, table, NULL, err));
    TRY(file_map_fd(fd, "ranges", 0, &map, err));
    enum status status = quant_table_parse("ranges", map.data, map.size, out, err);
    file_unmap(&map);
    return status;
}

/* NULL: no memory. */
static struct quant_table *again(const struct quant_table *table)
{
    struct quant_table *back = NULL;
    struct error err;
    int fd = memfd_create("ranges", MFD_CLOEXEC);
    if (fd < 0)
        abort();
    enum status status = write_and_read(fd, table, &back, &err);
    close(fd);
    if (status && status != STATUS_RESOURCE_EXHAUSTED)
        abort();
    return back;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct quant_table *table = NULL, *back;
    struct error err = {0};
    enum status status = quant_table_parse("fuzz", data, size, &table, &err);
    if (status) {
        if (table || err.status != status || !err.text[0])
            abort();
        return 0;
    }
    back = again(table);
    if (!back) {
        quant_table_free(table);
        return 0;
    }
    if (quant_table_size(back) != quant_table_size(table))
        abort();
    for (uint32_t i = 0; i < quant_table_size(table); i++) {
        const struct quant_row *a = quant_table_at(table, i), *b = quant_table_at(back, i);
        check_row(table, i);
        if (strcmp(a->name, b->name) != 0 || a->dtype != b->dtype || a->step != b->step ||
            a->zero != b->zero || a->samples != b->samples || strcmp(a->source, b->source) != 0)
            abort();
    }
    quant_table_free(back);
    quant_table_free(table);
    return 0;
}
