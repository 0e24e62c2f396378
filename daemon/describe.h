/* SPDX-License-Identifier: Apache-2.0 */
/* Answers about the server and its models, on a loop's thread. All are read-only (R16 of
 * docs/operations.md). */
#ifndef INFERD_DAEMON_DESCRIBE_H
#define INFERD_DAEMON_DESCRIBE_H

#include "daemon/connection.h"

void describe_server_live(struct connection *c, const struct request *request);
void describe_server_ready(struct connection *c, const struct request *request);
void describe_model_ready(struct connection *c, const struct request *request);
void describe_server_metadata(struct connection *c, const struct request *request);
void describe_model_metadata(struct connection *c, const struct request *request);
void describe_statistics(struct connection *c, const struct request *request);
void describe_repository_index(struct connection *c, const struct request *request);
void describe_server_status(struct connection *c, const struct request *request);

#endif
