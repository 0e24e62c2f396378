/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose files are served. If "plan_keys" is configured, only a file is served that has a signature
 * by one of these keys beside it, FILE.sig (base/signature.h). The signature is checked against the
 * digest of the very bytes that are used, so that a file that changes in between is not used.
 */
#ifndef INFERD_DAEMON_TRUST_H
#define INFERD_DAEMON_TRUST_H

#include "base/digest.h"
#include "daemon/repository.h"

struct trust;

/* `path`: a file of public keys, which nobody but its owner may be able to write. */
enum status trust_new(const char *path, struct trust **out, struct error *err);
void trust_free(struct trust *trust); /* NULL is fine */

/* FAILED_PRECONDITION: there is no signature, or it is not one of these keys for this digest. A
 * `trust` of NULL trusts everything. */
enum status trust_check(const struct trust *trust, const struct wanted *wanted,
                        const uint8_t digest[DIGEST_BYTES], struct error *err);

#endif
