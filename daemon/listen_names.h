/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names among the addresses to listen on. They are looked up once, at the start: a reload asks no
 * resolver, and a name that means something else by then takes a restart (R17 of
 * docs/operations.md).
 */
#ifndef INFERD_DAEMON_LISTEN_NAMES_H
#define INFERD_DAEMON_LISTEN_NAMES_H

#include "config/config.h"

/* Gives the same addresses with numbers for names. A name may stand for several addresses; those
 * that this machine does not have are left out, unless none would remain. Blocks while names are
 * looked up. The list belongs to the caller: listen_names_free. */
enum status listen_names_resolve(const struct config_listen *config, struct config_listen *out,
                                 struct error *err);
void listen_names_free(struct config_listen *resolved);

#endif
