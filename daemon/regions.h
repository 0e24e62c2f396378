/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of shared memory that clients have registered: inputs are read from there, and outputs
 * written to there, in place of messages.
 *
 * The client goes on owning the memory, and may shorten it, remove it or change it at any moment.
 * So a region is never mapped, where a client that shortens it would kill the server (SIGBUS): it
 * is a descriptor, which is read and written by calls that fail. What is read is copied once,
 * before anybody looks at it.
 *
 * Which files can be registered: those under /dev/shm whose name begins with the operator's prefix,
 * regular, on tmpfs, with one name, and open to the user that the server runs as. A peer at a unix
 * socket must own the file as well. A region belongs to who registered it: nobody else can use, see
 * or unregister it, and names of different owners have nothing to do with each other.
 *
 * Number and bytes are limited, and of both an identity, a user at a unix socket and an address of
 * another machine have half at most. Only those that come from this machine, by TCP and without a
 * token, are told apart by nothing and share all. Where room is missing, regions whose file has no
 * name any more are dropped, unless a request uses them: their owner has most often ended. Nobody
 * but the client knows whether it has such a file mapped, so as long as there is room they stay.
 *
 * Regions of a GPU's memory are opened by the handle that their owner got for them from CUDA, if
 * the configuration says so, and are copied to and from the host's memory. The driver keeps them
 * for as long as they are open here.
 *
 * Threads: any, at any time; one lock, which is held for the search of a name. A region that is
 * unregistered is gone at once for new requests, and is closed by the last request that uses it.
 */
#ifndef INFERD_DAEMON_REGIONS_H
#define INFERD_DAEMON_REGIONS_H

#include <sys/types.h>

#include "base/arena.h"
#include "base/error.h"
#include "config/config.h"
#include "daemon/identity.h"
#include "daemon/peer.h"
#include "engine/engine.h"
#include "proto/body.h"

enum { REGIONS_OWNER_MAX = 96 };

struct region;
struct regions;

enum region_kind { REGION_SYSTEM, REGION_CUDA };

/* Whose regions: an identity's, and at a unix socket the user's at its other end. */
struct regions_owner {
    char name[REGIONS_OWNER_MAX];
    bool has_user; /* false: over TCP nobody knows */
    uid_t user;
    bool has_share;            /* at most half of all may be its own */
    uint8_t address[PEER_KEY]; /* whose share it is, if the name does not say; otherwise zeros */
};
/* `peer` may be NULL. */
void regions_owner_of(const struct identities *identities, const struct identity *who, int fd,
                      const struct peer *peer, struct regions_owner *out);

/* By the keys shared_memory and cuda_shared_memory and the limits beside them, but never more than
 * `most` regions, each of which holds a descriptor. *out is NULL if the configuration wants none.
 * The device must outlive it. */
enum status regions_new(const struct config *config, uint32_t most, struct device *device,
                        struct regions **out, struct error *err);
/* Whether regions of that kind can be registered; `regions` may be NULL. */
bool regions_offered(const struct regions *regions, enum region_kind kind);
/* When no region is in use any more. NULL is fine. */
void regions_free(struct regions *regions);

/*
 * Registers `wanted`, of a kind that is offered. INVALID_ARGUMENT: the file or handle is none that
 * may be registered, or has fewer bytes than offset and size say; ALREADY_EXISTS: the owner has a
 * region of that name; PERMISSION_DENIED: the file is another's; RESOURCE_EXHAUSTED: there are too
 * many regions, or too many bytes of them, of all or of this owner. Opens a file, but never waits
 * for one.
 */
enum status regions_register(struct regions *regions, enum region_kind kind,
                             const struct regions_owner *owner, const struct request_region *wanted,
                             struct error *err);
/* Unregisters the owner's region of that name; with an empty name all of them. None is fine. */
void regions_unregister(struct regions *regions, enum region_kind kind,
                        const struct regions_owner *owner, struct message_text name);
/* Describes the owner's region of that name; with an empty name all of them. NOT_FOUND. */
enum status regions_list(struct regions *regions, enum region_kind kind,
                         const struct regions_owner *owner, struct message_text name,
                         struct arena *arena, struct body_regions *out, struct error *err);

/* How many there are, and their bytes. */
void regions_count(struct regions *regions, uint32_t *n, uint64_t *bytes);

/* Finds the owner's region for a tensor, whose bytes must lie in it. INVALID_ARGUMENT: there is
 * none, or they do not. *out is to be given back. `regions` may be NULL: there are none. */
enum status region_take(struct regions *regions, const struct regions_owner *owner,
                        const struct message_region *place, struct region **out, struct error *err);
void region_give(struct region *region); /* NULL is fine */
const char *region_name(const struct region *region);

/* Reads from and writes to `at`, which counts from the region's beginning. INVALID_ARGUMENT: the
 * region has become shorter, or its file cannot be read or written. */
enum status region_read(const struct region *region, uint64_t at, void *to, size_t size,
                        struct error *err);
enum status region_write(const struct region *region, uint64_t at, const void *from, size_t size,
                         struct error *err);

#endif
