/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text of a table of ranges; see table.h. Nothing is guessed: what is not as it should be
 * is an error that names the line. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/names.h"
#include "engine/quant/method.h"
#include "engine/quant/table.h"

enum {
    WORDS_MAX = 8, /* more than any line has */
    WORD_MAX = QUANT_NAME_MAX,
    SAMPLES_DIGITS = 18,
};

struct parser {
    const char *at, *end;
    uint32_t line;
    struct quant_table *table; /* NULL until the model's line */
    bool headed;
    uint32_t n;
    char words[WORDS_MAX][WORD_MAX + 1]; /* of the line */
    bool quoted;                         /* the first word stood in quotes */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads what stands behind a backslash. */
static bool read_escape(struct parser *p, const char *end, char *out)
{
    if (p->at < end && (*p->at == '"' || *p->at == '\\')) {
        *out = *p->at++;
        return true;
    }
    if (end - p->at < 3 || *p->at != 'x')
        return false;
    int high = hex_digit(p->at[1]), low = hex_digit(p->at[2]);
    *out = (char)(high * 16 + low);
    p->at += 3;
    return high >= 0 && low >= 0 && *out;
}

static enum status wrong(struct error *err, const char *what)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "%s", what);
}

static enum status read_quoted(struct parser *p, const char *end, char *out, struct error *err)
{
    size_t n = 0;
    p->at++;
    while (p->at < end && *p->at != '"') {
        if (n == WORD_MAX)
            return wrong(err, "the name is too long");
        out[n] = *p->at++;
        if (out[n] == '\0')
            return wrong(err, "a zero byte");
        if (out[n] == '\\' && !read_escape(p, end, &out[n]))
            return wrong(err, "behind a backslash \\, \" or xNN was expected");
        n++;
    }
    if (p->at == end)
        return wrong(err, "the name has no closing quote");
    p->at++;
    if (p->at < end && !is_blank(*p->at))
        return wrong(err, "behind the name in quotes a space was expected");
    out[n] = '\0';
    return STATUS_OK;
}

static enum status read_plain(struct parser *p, const char *end, char *out, struct error *err)
{
    size_t n = 0;
    while (p->at < end && !is_blank(*p->at)) {
        if (n == WORD_MAX)
            return wrong(err, "a word is too long");
        out[n] = *p->at++;
        if (out[n] == '\0')
            return wrong(err, "a zero byte");
        if (out[n] == '"' || out[n] == '\\')
            return wrong(err, "a name with quotes or backslashes stands in quotes as a whole");
        n++;
    }
    out[n] = '\0';
    return STATUS_OK;
}

/* Splits the line into words. */
static enum status read_words(struct parser *p, struct error *err)
{
    const char *end = memchr(p->at, '\n', (size_t)(p->end - p->at));
    end = end ? end : p->end;
    p->n = 0;
    p->line++;
    p->quoted = false;
    for (;;) {
        while (p->at < end && is_blank(*p->at))
            p->at++;
        if (p->at == end || *p->at == '#')
            break;
        if (p->n == WORDS_MAX)
            return wrong(err, "more words than a line has");
        bool in_quotes = *p->at == '"';
        if (in_quotes && p->n)
            return wrong(err, "only the name, which comes first, may stand in quotes");
        p->quoted = p->quoted || in_quotes;
        char *word = p->words[p->n++];
        TRY(in_quotes ? read_quoted(p, end, word, err) : read_plain(p, end, word, err));
    }
    p->at = end + (end < p->end);
    return STATUS_OK;
}

/* --- numbers --- */

static enum status read_number(const char *word, const char *what, float *out, struct error *err)
{
    char *end;
    errno = 0;
    double value = strtod(word, &end);
    if (end == word || *end)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: a number was expected, not '%.40s'",
                         what, word);
    if (!isfinite(value) || fabs(value) > (double)FLT_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: '%.40s' is not finite", what, word);
    *out = (float)value;
    return STATUS_OK;
}

static enum status read_zero(const char *word, enum dtype dtype, int32_t *out, struct error *err)
{
    int32_t least = dtype == DTYPE_I8 ? INT8_MIN : 0;
    char *end;
    long value = strtol(word, &end, 10);
    if (end == word || *end || value < least || value > least + UINT8_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "the zero point is a whole number within %d..%d, not '%.40s'", least,
                         least + UINT8_MAX, word);
    *out = (int32_t)value;
    return STATUS_OK;
}

static enum status read_samples(const char *word, uint64_t *out, struct error *err)
{
    size_t n = strspn(word, "0123456789");
    *out = 0;
    if (strcmp(word, "-") == 0)
        return STATUS_OK;
    if (!n || word[n] || n > SAMPLES_DIGITS)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "the number of samples or - was expected, not '%.40s'", word);
    *out = strtoull(word, NULL, 10);
    return STATUS_OK;
}

/* --- rows --- */

static enum status read_range(char (*words)[WORD_MAX + 1], struct quant_row *row, struct error *err)
{
    float low = 0, high = 0;
    TRY(read_number(words[2], "the range's low end", &low, err));
    TRY(read_number(words[3], "the range's high end", &high, err));
    if (low > high)
        return error_set(err, STATUS_INVALID_ARGUMENT, "the range %g..%g begins behind its end",
                         (double)low, (double)high);
    if (!quant_row_set_range(row, low, high))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "the range %g..%g leaves no step above 0 from 0 on", (double)low,
                         (double)high);
    return STATUS_OK;
}

static enum status read_scale(char (*words)[WORD_MAX + 1], struct quant_row *row, struct error *err)
{
    row->dtype = strcmp(words[1], "int8") == 0 ? DTYPE_I8 : DTYPE_U8;
    TRY(read_number(words[2], "the step", &row->step, err));
    if (!(row->step >= FLT_MIN))
        return error_set(err, STATUS_INVALID_ARGUMENT, "the step is %s: it must be above 0",
                         words[2]);
    return read_zero(words[3], row->dtype, &row->zero, err);
}

static enum status read_keep(char (*words)[WORD_MAX + 1] UNUSED, struct quant_row *row,
                             struct error *err UNUSED)
{
    row->dtype = DTYPE_NONE;
    return STATUS_OK;
}

static const struct {
    const char *word;
    uint32_t values; /* words behind it */
    const char *form;
    enum status (*read)(char (*words)[WORD_MAX + 1], struct quant_row *row, struct error *err);
} kinds[] = {
    {"range", 2, "range LOW HIGH", read_range},
    {"int8", 2, "int8 STEP ZERO", read_scale},
    {"uint8", 2, "uint8 STEP ZERO", read_scale},
    {"keep", 0, "keep", read_keep},
};

/* What may stand behind the numbers: where they are from, and from how many samples. */
static enum status read_source(struct parser *p, uint32_t at, struct quant_row *row,
                               struct error *err)
{
    enum quant_method method;
    double percentile;
    if (at == p->n)
        return STATUS_OK;
    const char *word = p->words[at];
    if (p->n > at + 2)
        return error_set(err, STATUS_INVALID_ARGUMENT, "nothing was expected behind '%.40s'",
                         p->words[at + 1]);
    if (strlen(word) >= sizeof(row->source) ||
        (strcmp(word, "user") != 0 && quant_method_parse(word, &method, &percentile, err)))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "a method (entropy, minmax, percentile=P) or 'user' was expected, not "
                         "'%.40s'",
                         word);
    memcpy(row->source, word, strlen(word) + 1);
    return at + 1 < p->n ? read_samples(p->words[at + 1], &row->samples, err) : STATUS_OK;
}

static enum status read_row(struct parser *p, struct error *err)
{
    struct quant_row row = {.name = p->words[0], .line = p->line};
    struct names names;
    if (!p->words[0][0])
        return wrong(err, "the tensor's name is empty");
    if (p->n < 2)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "tensor '%.80s': a range was expected behind its name", row.name);
    names_init(&names, p->words[1], strlen(p->words[1]));
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        names_add(&names, kinds[i].word);
        if (strcmp(kinds[i].word, p->words[1]) != 0)
            continue;
        if (p->n < 2 + kinds[i].values)
            return error_set(err, STATUS_INVALID_ARGUMENT, "tensor '%.80s': the form is '%s'",
                             row.name, kinds[i].form);
        enum status status = kinds[i].read(p->words, &row, err);
        status = status ? status : read_source(p, 2 + kinds[i].values, &row, err);
        if (status) {
            error_prefix(err, "tensor '%.80s'", row.name);
            return status;
        }
        return quant_table_add(p->table, &row, err);
    }
    return error_set(err, STATUS_INVALID_ARGUMENT, "tensor '%.80s': '%.40s': there are %s",
                     row.name, p->words[1], names_text(&names));
}

/* --- the head --- */

static bool is_digest(const char *word)
{
    return strcmp(word, "any") == 0 || (strlen(word) == QUANT_DIGEST_MAX - 1 &&
                                        strspn(word, "0123456789abcdef") == strlen(word));
}

static enum status read_head(struct parser *p, struct error *err)
{
    char(*w)[WORD_MAX + 1] = p->words;
    if (!p->headed) {
        if (p->n != 3 || strcmp(w[0], "inferd") != 0 || strcmp(w[1], "ranges") != 0)
            return wrong(err, "no table of ranges: it begins with 'inferd ranges 1'");
        if (strcmp(w[2], "1") != 0)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "version '%.20s' of the format; this program reads version 1", w[2]);
        p->headed = true;
        return STATUS_OK;
    }
    if (p->n != 2 || p->quoted || strcmp(w[0], "model") != 0 || !is_digest(w[1]))
        return wrong(err, "'model' and the digest of the model's file (32 hexadecimal digits), or "
                          "'model any', were expected");
    p->table = quant_table_new(w[1]);
    return p->table ? STATUS_OK : error_no_memory(err, "ranges");
}

static enum status parse(struct parser *p, struct error *err)
{
    while (p->at < p->end) {
        TRY(read_words(p, err));
        if (p->n)
            TRY(p->table ? read_row(p, err) : read_head(p, err));
    }
    if (!p->headed)
        return wrong(err, "no table of ranges: it begins with 'inferd ranges 1'");
    return p->table ? STATUS_OK : wrong(err, "the line 'model DIGEST' is missing");
}

static void parser_cleanup(struct parser **p)
{
    if (*p)
        quant_table_free((*p)->table);
    free(*p);
}

enum status quant_table_parse(const char *name, const void *data, size_t size,
                              struct quant_table **out, struct error *err)
{
    if (size > QUANT_TABLE_MAX_BYTES)
        return error_set(err, STATUS_OUT_OF_RANGE, "%s: %zu bytes are too many for ranges", name,
                         size);
    CLEANUP(parser_cleanup) struct parser *p = calloc(1, sizeof(*p));
    if (!p)
        return error_no_memory(err, "ranges");
    p->at = data;
    p->end = p->at + size;
    enum status status = parse(p, err);
    if (status) {
        error_prefix(err, "%s: line %u", name, p->line);
        return status;
    }
    *out = STEAL(p->table);
    return STATUS_OK;
}

enum status quant_table_read(const char *path, struct quant_table **out, struct error *err)
{
    struct file_map map;
    TRY(file_map_path(path, QUANT_TABLE_MAX_BYTES, &map, err));
    enum status status = quant_table_parse(path, map.data, map.size, out, err);
    file_unmap(&map);
    return status;
}
