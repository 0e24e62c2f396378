/* SPDX-License-Identifier: Apache-2.0 */
/* Records of addresses and users; see peer.h. */
#include "daemon/peer.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "base/account.h"

enum { BUCKETS = 1024, SWEEP_EVERY = 256 };
enum { KIND_UNKNOWN, KIND_IPV4, KIND_IPV6, KIND_USER };

struct peers {
    uint64_t seed; /* so that nobody can choose addresses that share a bucket */
    uint32_t met;  /* since the last sweep */
    struct peer *buckets[BUCKETS];
};

struct peers *peers_new(void)
{
    struct peers *peers = calloc(1, sizeof(*peers));
    if (peers && getrandom(&peers->seed, sizeof(peers->seed), GRND_NONBLOCK) < 0)
        peers->seed = (uintptr_t)peers;
    return peers;
}

/* Forgets the records of a bucket that nobody uses; all of them if `all`. */
static void bucket_sweep(struct peer **at, bool all)
{
    while (*at) {
        struct peer *peer = *at;
        if (all || atomic_load_explicit(&peer->connections, memory_order_acquire) == 0) {
            *at = peer->next;
            free(peer);
        } else {
            at = &peer->next;
        }
    }
}

static void sweep(struct peers *peers, bool all)
{
    for (uint32_t i = 0; i < BUCKETS; i++)
        bucket_sweep(&peers->buckets[i], all);
    peers->met = 0;
}

void peers_free(struct peers *peers)
{
    if (!peers)
        return;
    sweep(peers, true);
    free(peers);
}

/* Fills the key. True: the address is this machine's. */
static bool key_of_ipv4(const struct in_addr *address, uint8_t key[PEER_KEY])
{
    key[0] = KIND_IPV4;
    memcpy(key + 1, address, sizeof(*address));
    return key[1] == 127;
}

static bool key_of_ipv6(const struct in6_addr *address, uint8_t key[PEER_KEY])
{
    struct in_addr inner;
    if (IN6_IS_ADDR_V4MAPPED(address)) {
        memcpy(&inner, address->s6_addr + 12, sizeof(inner));
        return key_of_ipv4(&inner, key);
    }
    bool local = IN6_IS_ADDR_LOOPBACK(address);
    key[0] = KIND_IPV6;
    memcpy(key + 1, address, 8);
    return local;
}

static bool key_of_user(int fd, uint8_t key[PEER_KEY])
{
    struct ucred cred;
    socklen_t size = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) == 0) {
        key[0] = KIND_USER;
        memcpy(key + 1, &cred.uid, sizeof(cred.uid));
    }
    return true;
}

static bool key_make(int fd, uint8_t key[PEER_KEY])
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    } address = {.any.sa_family = AF_UNSPEC};
    socklen_t size = sizeof(address);
    memset(key, 0, PEER_KEY);
    if (getpeername(fd, &address.any, &size) != 0)
        return false; /* the peer has gone already */
    if (address.any.sa_family == AF_INET)
        return key_of_ipv4(&address.v4.sin_addr, key);
    if (address.any.sa_family == AF_INET6)
        return key_of_ipv6(&address.v6.sin6_addr, key);
    return key_of_user(fd, key);
}

struct peer *peers_meet(struct peers *peers, int fd)
{
    uint8_t key[PEER_KEY];
    bool local = key_make(fd, key);
    if (++peers->met > SWEEP_EVERY)
        sweep(peers, false);
    struct peer **bucket =
        &peers->buckets[XXH3_64bits_withSeed(key, sizeof(key), peers->seed) % BUCKETS];
    struct peer *peer = *bucket;
    while (peer && memcmp(peer->key, key, sizeof(key)) != 0)
        peer = peer->next;
    if (!peer && (peer = calloc(1, sizeof(*peer)))) {
        memcpy(peer->key, key, sizeof(key));
        peer->local = local;
        peer->next = *bucket;
        *bucket = peer;
    }
    if (peer)
        atomic_fetch_add_explicit(&peer->connections, 1, memory_order_relaxed);
    return peer;
}

void peer_leave(struct peer *peer)
{
    if (peer)
        atomic_fetch_sub_explicit(&peer->connections, 1, memory_order_release);
}

uint64_t peer_most(const struct peer *peer, uint64_t configured, uint64_t total)
{
    if (configured)
        return configured;
    return peer->local ? UINT64_MAX : MAX(total / 2, UINT64_C(1));
}

bool peer_requests_in(struct peer *peer, uint64_t most)
{
    if (!peer)
        return true;
    uint32_t before = atomic_fetch_add_explicit(&peer->requests, 1, memory_order_relaxed);
    if (before < most)
        return true;
    peer_requests_out(peer);
    return false;
}

void peer_requests_out(struct peer *peer)
{
    if (peer)
        atomic_fetch_sub_explicit(&peer->requests, 1, memory_order_relaxed);
}

bool peer_bytes_in(struct peer *peer, uint64_t n, uint64_t most)
{
    return !peer || account_add(&peer->bytes, n, most);
}

void peer_bytes_force(struct peer *peer, uint64_t n)
{
    if (peer)
        account_force(&peer->bytes, n);
}

void peer_bytes_out(struct peer *peer, uint64_t n)
{
    if (peer)
        account_sub(&peer->bytes, n);
}
