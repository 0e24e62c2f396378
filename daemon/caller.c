/* SPDX-License-Identifier: Apache-2.0 */
/* Who a connection's peer is, see caller.h. */
#include "daemon/caller.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/address.h"

void credentials_read(int fd, struct credentials *out)
{
    struct address address = {.length = sizeof(address.storage)};
    const struct sockaddr_un *sun = (const struct sockaddr_un *)(const void *)&address.storage;
    struct ucred credentials;
    socklen_t size = sizeof(credentials);
    out->known = false;
    if (getsockname(fd, (struct sockaddr *)&address.storage, &address.length) != 0 ||
        !address_is_unix(&address) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
        return;
    out->known = true;
    /* A name in the abstract namespace begins with a zero, and has no mode. */
    out->by_mode = address.length > offsetof(struct sockaddr_un, sun_path) && sun->sun_path[0];
    out->uid = credentials.uid;
    out->gid = credentials.gid;
    size = sizeof(out->groups);
    bool whole = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, out->groups, &size) == 0;
    out->n_groups = whole ? size / sizeof(out->groups[0]) : 0;
}

static void token_forget(struct caller *caller)
{
    explicit_bzero(caller->token, caller->token_len);
    caller->token_len = 0;
    caller->by_token = NULL;
}

void caller_deinit(struct caller *caller)
{
    token_forget(caller);
    identities_unref(caller->from);
    caller->from = NULL;
}

/* Asks everything again for a new snapshot: tokens may have gone, users may have got rights. */
__attribute__((noinline)) static void snapshot_change(struct caller *caller, struct identities *now,
                                                      int fd)
{
    struct credentials peer = {0}; /* 4 KiB: not for every request */
    token_forget(caller);
    identities_unref(caller->from);
    caller->from = identities_ref(now);
    caller->refused = 0;
    if (identities_required(now))
        credentials_read(fd, &peer);
    caller->silent = identities_by_peer(now, &peer);
    caller->accepted = identity_has_rights(caller->silent);
}

static void snapshot_follow(struct caller *caller, struct identities *now, int fd)
{
    if (caller->from != now)
        snapshot_change(caller, now, fd);
}

static bool token_is_last(const struct caller *caller, struct message_text token)
{
    return token.len == caller->token_len && token_same(token.data, caller->token, token.len);
}

static void token_remember(struct caller *caller, struct message_text token,
                           const struct identity *identity)
{
    token_forget(caller);
    memcpy(caller->token, token.data, token.len);
    caller->token_len = (uint32_t)token.len;
    caller->by_token = identity;
}

enum status caller_identify(struct caller *caller, struct identities *now, int fd,
                            struct message_text token, const struct identity **out,
                            struct error *err)
{
    snapshot_follow(caller, now, fd);
    if (!token.len || !identities_required(now)) {
        *out = caller->silent;
        return STATUS_OK;
    }
    if (token_is_last(caller, token)) {
        *out = caller->by_token;
        return STATUS_OK;
    }
    const struct identity *found = NULL;
    enum status status = identities_by_token(now, token, &found, err);
    caller->refused += status == STATUS_UNAUTHENTICATED;
    if (status)
        return status;
    token_remember(caller, token, found);
    caller->accepted |= identity_has_rights(found);
    *out = found;
    return STATUS_OK;
}

bool caller_is_stranger(struct caller *caller, struct identities *now, int fd)
{
    snapshot_follow(caller, now, fd);
    return !caller->accepted;
}
