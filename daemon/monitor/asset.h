/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the status page, compressed by gzip; embed.py makes the table of
 * daemon/monitor/assets and of Debian's libjs-chart.js. */
#ifndef INFERD_DAEMON_MONITOR_ASSET_H
#define INFERD_DAEMON_MONITOR_ASSET_H

#include <stddef.h>

struct asset {
    const char *path; /* "/page.js" */
    const unsigned char *data;
    size_t size;
};

extern const struct asset assets[];
extern const unsigned n_assets;

#endif
