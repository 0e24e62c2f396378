/* SPDX-License-Identifier: Apache-2.0 */
/* Handles the signals that end a process, see last_words.h. The handlers call only what is safe in
 * a signal handler. */
#include "daemon/last_words.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/compiler.h"

enum { OBJECT_MAX = 64 * 1024 /* oneDNN's are a few KiB at most */ };

static bool is_onednn(void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "/libdnnl");
}

int posix_memalign(void **out, size_t align, size_t size)
{
    void *memory = memalign(align, size);
    if (!memory && size < OBJECT_MAX && is_onednn(__builtin_return_address(0)))
        abort();
    if (memory)
        *out = memory;
    return memory ? 0 : ENOMEM;
}

/* Raises the signal once more, now with its default action and in a process that may leave a
 * core. */
static void on_fatal(int number)
{
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* NOLINT: a system call and no more */
    signal(number, SIG_DFL);
    raise(number);
}

static void on_abort(int number)
{
    static const char line[] = "inferd: error: a library called abort(): out of memory, or a "
                               "system call failed that must not\n";
    struct rlimit core = {.rlim_cur = 0};
    ssize_t written = write(STDERR_FILENO, line, sizeof(line) - 1);
    (void)written;
    getrlimit(RLIMIT_CORE, &core); /* NOLINT: in glibc a system call and no more */
    if (core.rlim_cur == 0)
        _exit(EXIT_FAILURE);
    on_fatal(number);
}

/* In a build with a sanitizer, the sanitizer handles all signals but SIGABRT. */
void last_words_install(void)
{
    signal(SIGABRT, on_abort);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGQUIT};
    for (size_t i = 0; i < ARRAY_LEN(fatal); i++)
        signal(fatal[i], on_fatal);
#endif
}
