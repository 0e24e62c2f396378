/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the answers about the server and its models that answer.h makes, on a loop's thread. All
 * but settings are read-only (R16 of docs/operations.md). */
#ifndef INFERD_DAEMON_DESCRIBE_H
#define INFERD_DAEMON_DESCRIBE_H

#include "daemon/connection.h"

void describe_server_live(struct connection *c, const struct request *request);
void describe_server_ready(struct connection *c, const struct request *request);
void describe_model_ready(struct connection *c, const struct request *request);
void describe_server(struct connection *c, const struct request *request); /* a fact or setting */
void describe_model(struct connection *c, const struct request *request);  /* of one model */
void describe_statistics(struct connection *c, const struct request *request);
void describe_all(struct connection *c, const struct request *request); /* of all models */

#endif
