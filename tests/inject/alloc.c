/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that fail, for LD_PRELOAD or to be linked into a test. Calls are told apart by their
 * *site*: a hash of the innermost return addresses, each counted from the start of its module, so
 * that it is the same in every run whatever other threads do meanwhile.
 *
 * From the environment, once main begins:
 *   INJECT_SITES=FILE  appends "SITE N" for each site when it is first met, at the Nth allocation
 *   INJECT_SITE=SITE   the first allocation at that site fails with ENOMEM
 *   INJECT_NTH=N       the Nth allocation fails (from 1)
 *   INJECT_HIT=FILE    the backtrace of each failure, as module+offset, in one line
 *   INJECT_DEPTH=D     how many return addresses make a site (6)
 *
 * It goes before a sanitizer's allocator, to which everything else is passed on. Memory that C++
 * takes by `operator new` comes here too, except under ASan, which has its own.
 */
#include "tests/inject/alloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

enum { DEPTH_MAX = 24, SITES = 1 << 16, EARLY = 1 << 16 };

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
} real;

/* Memory for the requests of dlsym itself; never freed. */
static _Alignas(16) char early[EARLY];
static atomic_size_t early_used;

static uint64_t fail_site, fail_nth; /* written only while not armed */
static int depth, sites_fd = -1, hit_fd = -1;
static atomic_bool armed;
static _Atomic uint64_t count, failures;
static _Atomic uint64_t seen[SITES]; /* a hash table without removal */

static _Thread_local bool inside; /* the unwinder may allocate */

/* --- what is behind --- */

static void *early_take(size_t size)
{
    size_t at = atomic_fetch_add(&early_used, (size + 15) / 16 * 16);
    return at + size <= EARLY ? early + at : NULL;
}

static void *function_find(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (!f)
        _exit(3);
    return f;
}

/* Returns false while the functions are being looked up. */
static bool real_found(void)
{
    static atomic_bool begun, found;
    if (atomic_load(&found))
        return true;
    if (atomic_exchange(&begun, true))
        return false;
    *(void **)&real.malloc = function_find("malloc");
    *(void **)&real.calloc = function_find("calloc");
    *(void **)&real.realloc = function_find("realloc");
    *(void **)&real.posix_memalign = function_find("posix_memalign");
    *(void **)&real.aligned_alloc = function_find("aligned_alloc");
    *(void **)&real.memalign = function_find("memalign");
    atomic_store(&found, true);
    return true;
}

/* --- sites --- */

struct trace {
    const void *caller; /* frames before this one are ours */
    int n, max;
    uintptr_t pc[DEPTH_MAX];
};

static _Unwind_Reason_Code trace_add(struct _Unwind_Context *context, void *arg)
{
    struct trace *t = arg;
    uintptr_t pc = _Unwind_GetIP(context);
    if (!pc || t->n == t->max)
        return _URC_END_OF_STACK;
    if (t->n || pc == (uintptr_t)t->caller)
        t->pc[t->n++] = pc;
    return _URC_NO_REASON;
}

/* The offset of an address in its module, which is the same in every process. */
static uintptr_t place(uintptr_t pc, const char **module)
{
    struct dl_find_object o;
    if (_dl_find_object((void *)pc, &o) != 0)
        return pc;
    *module = o.dlfo_link_map->l_name;
    return pc - (uintptr_t)o.dlfo_link_map->l_addr;
}

static uint64_t site_of(const struct trace *t)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (int i = 0; i < t->n && i < depth; i++) {
        const char *module;
        hash = (hash ^ place(t->pc[i], &module)) * 0x100000001b3;
        hash ^= hash >> 29;
    }
    return hash | 1;
}

static bool site_is_new(uint64_t site)
{
    for (size_t i = site % SITES;; i = (i + 1) % SITES) {
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&seen[i], &there, site))
            return true;
        if (there == site)
            return false;
    }
}

static void line_write(int fd, const char *text, int length)
{
    ssize_t n = fd >= 0 ? write(fd, text, (size_t)length) : 0;
    (void)n;
}

static void hit_write(const struct trace *t, uint64_t site, uint64_t n)
{
    char text[8192];
    int at = snprintf(text, sizeof(text), "%016llx %llu", (unsigned long long)site,
                      (unsigned long long)n);
    for (int i = 0; i < t->n && at < (int)sizeof(text) - 512; i++) {
        const char *module = "";
        uintptr_t offset = place(t->pc[i], &module);
        const char *base = strrchr(module, '/');
        at += snprintf(text + at, sizeof(text) - (size_t)at, " %.200s+0x%lx",
                       base      ? base + 1
                       : *module ? module
                                 : "main",
                       (unsigned long)offset);
    }
    text[at++] = '\n';
    line_write(hit_fd, text, at);
}

static bool fails(const void *caller)
{
    if (!atomic_load(&armed) || inside)
        return false;
    inside = true;
    uint64_t n = atomic_fetch_add(&count, 1) + 1, site = 0;
    struct trace t = {.caller = caller, .max = DEPTH_MAX};
    bool hit = n == fail_nth;
    if (hit || sites_fd >= 0 || fail_site) {
        _Unwind_Backtrace(trace_add, &t);
        site = site_of(&t);
    }
    if (sites_fd >= 0 && site_is_new(site)) {
        char text[64];
        line_write(sites_fd, text,
                   snprintf(text, sizeof(text), "%016llx %llu\n", (unsigned long long)site,
                            (unsigned long long)n));
    }
    if (fail_site && site == fail_site)
        hit |= site_is_new(site);
    if (hit) {
        atomic_fetch_add(&failures, 1);
        hit_write(&t, site, n);
        errno = ENOMEM;
    }
    inside = false;
    return hit;
}

/* --- allocating --- */

#define CALLER __builtin_return_address(0)

void *malloc(size_t size)
{
    if (!real_found())
        return early_take(size);
    return fails(CALLER) ? NULL : real.malloc(size);
}

void *calloc(size_t n, size_t size)
{
    if (!real_found())
        return early_take(n * size);
    return fails(CALLER) ? NULL : real.calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    if (!real_found())
        return early_take(size);
    return fails(CALLER) ? NULL : real.realloc(old, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    if (!real_found())
        return ENOMEM;
    return fails(CALLER) ? ENOMEM : real.posix_memalign(out, align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    if (!real_found())
        return NULL;
    return fails(CALLER) ? NULL : real.aligned_alloc(align, size);
}

void *memalign(size_t align, size_t size)
{
    if (!real_found())
        return NULL;
    return fails(CALLER) ? NULL : real.memalign(align, size);
}

/* --- when --- */

void inject_arm(uint64_t nth)
{
    fail_nth = nth;
    atomic_store(&count, 0);
    atomic_store(&failures, 0);
    atomic_store(&armed, true);
}

bool inject_disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&failures) != 0;
}

static int file_of(const char *variable)
{
    const char *path = getenv(variable);
    return path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
}

static uint64_t number_of(const char *variable, int base)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, base) : 0;
}

static int (*program_main)(int, char **, char **);

static int armed_main(int argc, char **argv, char **envp)
{
    sites_fd = file_of("INJECT_SITES");
    hit_fd = file_of("INJECT_HIT");
    fail_site = number_of("INJECT_SITE", 16);
    fail_nth = number_of("INJECT_NTH", 10);
    depth = (int)number_of("INJECT_DEPTH", 10);
    depth = depth ? depth : 6;
    if (sites_fd >= 0 || fail_site || fail_nth)
        atomic_store(&armed, true);
    return program_main(argc, argv, envp);
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *end);

/* glibc starts every program here, so this runs just before main. */
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *end)
{
    __typeof__(&__libc_start_main) start;
    *(void **)&start = function_find("__libc_start_main");
    program_main = main;
    return start(armed_main, argc, argv, init, fini, rtld_fini, end);
}
