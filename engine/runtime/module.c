/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/runtime/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "engine/plugin/plugin.h"

/* Places of modules, from the folder of the program, or of the library that this is part of: beside
 * it, in a build folder, installed with the program, installed with the library. */
static const char *const beside[] = {"", "../engine/cuda", ("../" MODULE_LIBDIR)};
static const char beside_library[] = "inferd";

enum { LOOKED_MAX = 300 }; /* bytes of the list of places in an error's text */

struct search {
    char path[PATH_MAX];     /* the place that was looked at last */
    char looked[LOOKED_MAX]; /* all places so far */
};

static bool cut_name(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}

/* *out: the folder of the running program. False: it cannot be known. */
static bool program_folder(char out[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    return cut_name(out);
}

/* *out: the folder of the shared library that has this function. False: it is in no library. */
static bool library_folder(char out[PATH_MAX])
{
    static const char here = 0;
    Dl_info info;
    return dladdr(&here, &info) && info.dli_fname && strstr(info.dli_fname, ".so") &&
           realpath(info.dli_fname, out) && cut_name(out);
}

static void add_text(char *text, size_t size, const char *more)
{
    size_t len = strlen(text);
    snprintf(text + len, size - len, "%s%s", len ? ", " : "", more);
}

/* Whether the module's file is in `folder`, or in its subfolder `below` if that is not "". */
static bool look_in(struct search *search, const char *folder, const char *below, const char *name)
{
    int n = snprintf(search->path, sizeof(search->path), "%s/%s%sinferd-%s.so", folder, below,
                     *below ? "/" : "", name);
    if (n < 0 || (size_t)n >= sizeof(search->path))
        return false;
    add_text(search->looked, sizeof(search->looked), search->path);
    return access(search->path, F_OK) == 0;
}

static bool look(struct search *search, const char *name)
{
    const char *given = secure_getenv("INFERD_MODULE_DIR");
    char folder[PATH_MAX];
    if (given && *given)
        return look_in(search, given, "", name);
    if (program_folder(folder))
        for (size_t i = 0; i < ARRAY_LEN(beside); i++)
            if (look_in(search, folder, beside[i], name))
                return true;
    if (library_folder(folder) && look_in(search, folder, beside_library, name))
        return true;
    return look_in(search, MODULE_PREFIX, MODULE_LIBDIR, name);
}

enum status module_open(const char *name, const char *title, const struct backend **out,
                        struct error *err)
{
    struct search search = {0};
    backend_module module = NULL;
    if (!look(&search, name))
        return error_set(err, STATUS_UNIMPLEMENTED, "this build has no %s module (looked for %s)",
                         title, search.looked);
    void *handle = dlopen(search.path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return error_set(err, STATUS_FAILED_PRECONDITION, "the %s module does not load: %s", title,
                         dlerror());
    *(void **)(void *)&module = dlsym(handle, BACKEND_MODULE_SYMBOL);
    const struct backend *table = module ? module() : NULL;
    if (!table)
        return error_set(err, STATUS_FAILED_PRECONDITION, "%s is no module of inferd", search.path);
    if (table->abi != BACKEND_ABI)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the %s module has ABI %u, expected %d: %s is of another version", title,
                         table->abi, BACKEND_ABI, search.path);
    if (table->plugins)
        table->plugins(plugin_registry());
    *out = table;
    return STATUS_OK;
}
