/* SPDX-License-Identifier: Apache-2.0 */
/* printf for names from outside; see show.h. */
#include "tools/show.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/escape.h"

static void put_escaped(FILE *to, const char *text, size_t len)
{
    size_t size = ESCAPE_GROWTH * len + 1;
    CLEANUP(cleanup_free) char *out = malloc(size);
    if (!out) {
        fputs("(no memory)", to);
        return;
    }
    escape_text(out, size, text);
    fputs(out, to);
}

static void show_list(FILE *to, const char *format, va_list args)
{
    CLEANUP(cleanup_free) char *text = NULL;
    size_t before = strspn(format, "\n"), after = 0, whole = strlen(format);
    while (after < whole - before && format[whole - after - 1] == '\n')
        after++;
    int len = vasprintf(&text, format, args);
    if (len < 0) {
        text = NULL; /* glibc leaves it undefined */
        fputs("(no memory)\n", to);
        return;
    }
    fprintf(to, "%.*s", (int)before, text);
    text[(size_t)len - after] = '\0';
    put_escaped(to, text + before, (size_t)len - after - before);
    for (; after; after--)
        fputc('\n', to);
}

void show_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    show_list(stdout, format, args);
    va_end(args);
}

void show_fprintf(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    show_list(to, format, args);
    va_end(args);
}
