/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backends in modules of their own: shared objects that are opened when one of their devices is
 * asked for, so that a machine without such a device needs none of its libraries.
 */
#ifndef INFERD_ENGINE_RUNTIME_MODULE_H
#define INFERD_ENGINE_RUNTIME_MODULE_H

#include "engine/backend.h"

/*
 * Opens "inferd-<name>.so" and checks its table. The module is looked for in $INFERD_MODULE_DIR if
 * that is set, and else beside the program, where the build leaves it, and where it is installed,
 * with the program or with the shared library that this function is part of.
 * It is never unloaded; opening it again gives the same table.
 *
 * `title`: what texts call the module ("CUDA"). UNIMPLEMENTED: there is no such module;
 * FAILED_PRECONDITION: it does not load (a library that it needs is missing), or is of another
 * version.
 */
enum status module_open(const char *name, const char *title, const struct backend **out,
                        struct error *err);

#endif
