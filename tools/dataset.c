/* SPDX-License-Identifier: Apache-2.0 */
/* See dataset.h. */
#include "tools/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/cleanup.h"
#include "tools/tensor.h"

enum { PATH_LEN = 4096 };

/* The files of one input. */
struct stream {
    const char *name;
    char **files; /* paths, sorted */
    uint32_t n, cap;
    size_t stem; /* where in a path that begins which goes with the other inputs' files */
    uint32_t at; /* the next file */
    struct tensor_view now; /* of file at - 1; data NULL: none */
    size_t next, samples;   /* in `now` */
};

struct dataset {
    uint32_t n;
    struct stream streams[IR_MAX_IO];
    uint32_t others; /* entries of the folder that are no data */
};

static bool is_data(const char *file)
{
    const char *dot = strrchr(file, '.');
    return file[0] != '.' && dot && (!strcmp(dot, ".npy") || !strcmp(dot, ".pb"));
}

static int by_text(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static bool add_file(struct stream *s, const char *folder, const char *file)
{
    char path[PATH_LEN];
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? 2 * s->cap : 64;
        char **more = realloc(s->files, cap * sizeof(*more));
        if (!more)
            return false;
        s->files = more;
        s->cap = cap;
    }
    if (snprintf(path, sizeof(path), "%s/%s", folder, file) >= (int)sizeof(path))
        return false;
    s->files[s->n] = strdup(path);
    return s->files[s->n] && ++s->n;
}

/* Lists the data of a folder whose names begin with `prefix`, and a dot behind it; "": all. */
static enum status list(struct dataset *set, struct stream *s, const char *folder,
                        const char *prefix, struct error *err)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return error_errno(err, errno, "%s", folder);
    size_t n = strlen(prefix);
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(dir));) {
        bool data = is_data(e->d_name);
        set->others += !data && e->d_name[0] != '.';
        if (data && (!n || (!strncmp(e->d_name, prefix, n) && e->d_name[n] == '.')))
            ok = add_file(s, folder, e->d_name);
    }
    closedir(dir);
    if (!ok)
        return error_no_memory(err, "the files of %s", folder);
    if (s->n)
        qsort(s->files, s->n, sizeof(*s->files), by_text);
    s->stem = strlen(folder) + 1 + n;
    return STATUS_OK;
}

static enum status find_files(struct dataset *set, struct stream *s, const char *folder,
                              struct error *err)
{
    char name[256], sub[PATH_LEN];
    struct stat st;
    snprintf(name, sizeof(name), "%s", s->name);
    for (char *c = name; *c; c++)
        *c = (char)(*c == '/' ? '_' : *c);
    if (snprintf(sub, sizeof(sub), "%s/%s", folder, name) >= (int)sizeof(sub))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%.200s: the path is too long", folder);
    if (stat(sub, &st) == 0 && S_ISDIR(st.st_mode))
        TRY(list(set, s, sub, "", err));
    else
        TRY(list(set, s, folder, set->n == 1 ? "" : name, err));
    if (s->n)
        return STATUS_OK;
    if (set->n == 1)
        return error_set(err, STATUS_NOT_FOUND, "%s: no .npy file in it, %u other entries", folder,
                         set->others);
    return error_set(err, STATUS_NOT_FOUND,
                     "%s: no data for input '%s': neither %s.npy, %s.*.npy nor a folder %s", folder,
                     s->name, name, name, name);
}

/* Files of several inputs that go together end in the same letters. */
static enum status check_stems(const struct dataset *set, struct error *err)
{
    const struct stream *a = &set->streams[0];
    for (uint32_t i = 1; i < set->n; i++) {
        const struct stream *b = &set->streams[i];
        for (uint32_t k = 0; a->n == b->n && a->n > 1 && k < a->n; k++)
            if (strcmp(a->files[k] + a->stem, b->files[k] + b->stem) != 0)
                return error_set(err, STATUS_INVALID_ARGUMENT,
                                 "%s and %s would be one sample: files that go together differ in "
                                 "the input's name alone",
                                 a->files[k], b->files[k]);
    }
    return STATUS_OK;
}

enum status dataset_open(const char *folder, const char *const *inputs, uint32_t n_inputs,
                         uint32_t limit, struct dataset **out, struct error *err)
{
    if (n_inputs == 0 || n_inputs > IR_MAX_IO)
        return error_set(err, STATUS_INVALID_ARGUMENT, "the model has %u inputs", n_inputs);
    CLEANUP(dataset_cleanup) struct dataset *set = calloc(1, sizeof(*set));
    if (!set)
        return error_no_memory(err, "the data");
    set->n = n_inputs;
    for (uint32_t i = 0; i < n_inputs; i++) {
        set->streams[i].name = inputs[i];
        TRY(find_files(set, &set->streams[i], folder, err));
    }
    TRY(check_stems(set, err));
    for (uint32_t i = 0; limit && i < n_inputs; i++)
        while (set->streams[i].n > limit)
            free(set->streams[i].files[--set->streams[i].n]);
    *out = STEAL(set);
    return STATUS_OK;
}

void dataset_close(struct dataset *set)
{
    if (!set)
        return;
    for (uint32_t i = 0; i < set->n; i++) {
        struct stream *s = &set->streams[i];
        for (uint32_t k = 0; k < s->n; k++)
            free(s->files[k]);
        free(s->files);
        free(s->now.data);
    }
    free(set);
}

void dataset_cleanup(struct dataset **at)
{
    dataset_close(*at);
}

enum status dataset_peek(struct dataset *set, uint32_t input, struct tensor_view *out,
                         struct error *err)
{
    struct tensor_view t;
    TRY(tensor_read(set->streams[input].files[0], &t, err));
    free(t.data);
    *out = (struct tensor_view){.dtype = t.dtype, .shape = t.shape};
    return STATUS_OK;
}

/* --- samples --- */

/* How many samples of this shape the tensor holds; 0: it does not hold any. */
static size_t count_samples(const struct shape *have, const struct shape *want)
{
    uint32_t lead = have->rank == want->rank ? 1 : 0; /* dimensions that count */
    if (lead == 0 && (have->rank + 1 != want->rank || want->dim[0] != 1))
        return 0;
    for (uint32_t i = lead; i < have->rank; i++)
        if (have->dim[i] != want->dim[i + 1 - lead])
            return 0;
    if (lead == 0 || want->rank == 0)
        return 1;
    return want->dim[0] > 0 && have->dim[0] % want->dim[0] == 0
               ? (size_t)(have->dim[0] / want->dim[0])
               : 0;
}

static enum status check_finite(const char *file, const struct tensor_view *t, struct error *err)
{
    size_t n = 0, i = 0;
    if (!dtype_is_float(t->dtype) || !shape_elements(&t->shape, &n))
        return STATUS_OK;
    if (t->dtype == DTYPE_F32)
        while (i < n && isfinite(((const float *)t->data)[i]))
            i++;
    else
        while (i < n && isfinite(tensor_at(t, i)))
            i++;
    if (i == n)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT, "%s: element %zu is %g: data must be finite",
                     file, i, tensor_at(t, i));
}

static enum status check_file(const struct stream *s, const char *file, const struct tensor_view *t,
                              const struct dataset_want *want, struct error *err)
{
    char have_text[SHAPE_TEXT_MAX], want_text[SHAPE_TEXT_MAX];
    if (t->dtype != want->dtype || !count_samples(&t->shape, &want->shape))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%s: %s %s; input '%s' takes %s %s, or several of these one behind the "
                         "other",
                         file, dtype_name(t->dtype), shape_format(&t->shape, have_text), s->name,
                         dtype_name(want->dtype), shape_format(&want->shape, want_text));
    return check_finite(file, t, err);
}

/* Makes `now` hold the stream's next sample. *end: there is none. */
static enum status fetch(struct stream *s, const struct dataset_want *want, bool *end,
                         struct error *err)
{
    *end = false;
    while (s->next == s->samples) {
        struct tensor_view t;
        free(STEAL(s->now.data));
        s->next = s->samples = 0;
        *end = s->at == s->n;
        if (*end)
            return STATUS_OK;
        TRY(tensor_read(s->files[s->at], &t, err));
        s->now = t;
        TRY(check_file(s, s->files[s->at], &t, want, err));
        s->samples = count_samples(&t.shape, &want->shape);
        s->at++;
    }
    return STATUS_OK;
}

enum status dataset_next(struct dataset *set, const struct dataset_want *want, const void **data,
                         bool *end, struct error *err)
{
    size_t bytes;
    bool first = true;
    *end = true;
    for (uint32_t i = 0; i < set->n; i++) {
        struct stream *s = &set->streams[i];
        bool ended;
        if (want[i].dtype == DTYPE_NONE)
            continue;
        TRY(fetch(s, &want[i], &ended, err));
        if (!first && ended != *end)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s' has %s samples than input '%s'", s->name,
                             ended ? "fewer" : "more", set->streams[0].name);
        first = false;
        *end = ended;
        if (ended)
            continue;
        if (!shape_bytes(&want[i].shape, want[i].dtype, &bytes))
            return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s': too large", s->name);
        data[i] = (const char *)s->now.data + s->next++ * bytes;
    }
    return STATUS_OK;
}

const char *dataset_file(const struct dataset *set)
{
    const struct stream *s = &set->streams[0];
    return s->at ? s->files[s->at - 1] : s->files[0];
}

double dataset_part(const struct dataset *set)
{
    const struct stream *s = &set->streams[0];
    double within = s->samples ? (double)s->next / (double)s->samples : 1;
    return s->at ? ((double)(s->at - 1) + within) / s->n : 0;
}

void dataset_wants(const char *const *inputs, uint32_t n_inputs, const struct ir_graph *graph,
                   bool single, struct dataset_want *want, uint32_t *place)
{
    for (uint32_t i = 0; i < n_inputs; i++) {
        want[i] = (struct dataset_want){.name = inputs[i]};
        place[i] = IR_NONE;
        for (uint32_t k = 0; k < graph->n_inputs; k++) {
            const struct ir_tensor *t = ir_tensor(graph, graph->inputs[k]);
            if (strcmp(t->name, inputs[i]) != 0)
                continue;
            want[i].dtype = t->dtype;
            want[i].shape = t->shape;
            if (single)
                want[i].shape.dim[0] = 1;
            place[i] = k;
        }
    }
}
