/* SPDX-License-Identifier: Apache-2.0 */
/* TLS, see tls.h. */
#include "daemon/tls.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/compiler.h"

enum { RECORD = 16 * 1024 /* plain bytes of one record, at most */ };

struct tls {
    _Atomic uint32_t refs; /* released on the way down: the last user sees all that was done */
    SSL_CTX *ctx;
    uint32_t doors; /* a bit for each */
};

struct tls_peer {
    struct tls *tls; /* a reference */
    SSL *ssl;
    BIO *out;    /* records that wait for the socket; it belongs to `ssl` */
    size_t sent; /* bytes of them that have gone */
    int fd;
    enum config_door door;
    bool open, failed;
};

/* --- the snapshot --- */

/* Fails with what OpenSSL says of a file. */
static enum status file_failed(struct error *err, const char *key, const char *path)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return error_set(err, STATUS_INVALID_ARGUMENT, "listen.%s: '%s': %s", key, path,
                     reason ? reason : "it cannot be used");
}

/* A key that needs a passphrase is refused: nobody is there to be asked. */
static int no_passphrase(char *to UNUSED, int size UNUSED, int writing UNUSED, void *user UNUSED)
{
    return 0;
}

static bool offers(const unsigned char *list, unsigned size, const char *protocol)
{
    size_t len = strlen(protocol);
    for (unsigned i = 0; i < size && list[i] < size - i; i += list[i] + 1u)
        if (list[i] == len && memcmp(list + i + 1, protocol, len) == 0)
            return true;
    return false;
}

/* Chooses the application's protocol. The door of HTTP takes HTTP/2 from those that speak nothing
 * else, which means gRPC; browsers and curl would rather have HTTP/1.1 here. */
static int choose(SSL *ssl, const unsigned char **out, unsigned char *out_size,
                  const unsigned char *list, unsigned size, void *user UNUSED)
{
    static const char *const spoken[CONFIG_DOOR_COUNT_][2] = {
        [DOOR_http] = {"http/1.1", "h2"},
        [DOOR_grpc] = {"h2", NULL},
        [DOOR_metrics] = {"http/1.1", NULL},
    };
    const struct tls_peer *peer = SSL_get_app_data(ssl);
    for (uint32_t k = 0; k < 2 && spoken[peer->door][k]; k++)
        if (offers(list, size, spoken[peer->door][k])) {
            *out = (const unsigned char *)spoken[peer->door][k];
            *out_size = (unsigned char)strlen(spoken[peer->door][k]);
            return SSL_TLSEXT_ERR_OK;
        }
    return spoken[peer->door][0] ? SSL_TLSEXT_ERR_ALERT_FATAL : SSL_TLSEXT_ERR_NOACK;
}

/* A name without a slash lies in systemd's folder of credentials, if there is one. */
static void key_place(const char *named, char out[PATH_MAX])
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    if (folder && !strchr(named, '/'))
        snprintf(out, PATH_MAX, "%s/%s", folder, named);
    else
        snprintf(out, PATH_MAX, "%s", named);
}

static enum status certificate_read(SSL_CTX *ctx, const struct config_listen *listen,
                                    struct error *err)
{
    char key[PATH_MAX];
    const char *named = listen->certificate_key ? listen->certificate_key : listen->certificate;
    key_place(named, key);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(ctx, listen->certificate) != 1)
        return file_failed(err, "certificate", listen->certificate);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ctx) != 1)
        return file_failed(err, "certificate_key", named);
    return STATUS_OK;
}

static enum status authorities_read(SSL_CTX *ctx, const char *path, struct error *err)
{
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path);
    if (!names || SSL_CTX_load_verify_locations(ctx, path, NULL) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return file_failed(err, "client_ca", path);
    }
    SSL_CTX_set_client_CA_list(ctx, names);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return STATUS_OK;
}

static enum status ctx_fill(SSL_CTX *ctx, const struct config_listen *listen, struct error *err)
{
    static const unsigned char id[] = "inferd";
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF |
                                 SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY); /* one record at a time, whatever it is */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(ctx, id, sizeof(id) - 1);
    SSL_CTX_set_alpn_select_cb(ctx, choose, NULL);
    TRY(certificate_read(ctx, listen, err));
    return listen->client_ca ? authorities_read(ctx, listen->client_ca, err) : STATUS_OK;
}

enum status tls_new(const struct config *config, struct tls **out, struct error *err)
{
    if (!config->listen.certificate) {
        *out = NULL;
        return STATUS_OK;
    }
    struct tls *tls = calloc(1, sizeof(*tls));
    if (!tls || !(tls->ctx = SSL_CTX_new(TLS_server_method()))) {
        free(tls);
        return error_no_memory(err, "TLS");
    }
    atomic_init(&tls->refs, 1);
    tls->doors = config_tls_doors(&config->listen);
    enum status status = ctx_fill(tls->ctx, &config->listen, err);
    if (status)
        tls_unref(tls);
    else
        *out = tls;
    return status;
}

struct tls *tls_ref(struct tls *tls)
{
    if (tls)
        atomic_fetch_add_explicit(&tls->refs, 1, memory_order_relaxed);
    return tls;
}

void tls_unref(struct tls *tls)
{
    if (!tls || atomic_fetch_sub_explicit(&tls->refs, 1, memory_order_acq_rel) != 1)
        return;
    SSL_CTX_free(tls->ctx);
    free(tls);
}

bool tls_covers(const struct tls *tls, enum config_door door)
{
    return tls && tls->doors >> door & 1;
}

/* --- a connection --- */

struct tls_peer *tls_peer_new(struct tls *tls, int fd, enum config_door door)
{
    struct tls_peer *peer = calloc(1, sizeof(*peer));
    BIO *in = BIO_new_socket(fd, BIO_NOCLOSE), *out = BIO_new(BIO_s_mem());
    if (peer)
        peer->ssl = SSL_new(tls->ctx);
    if (!peer || !peer->ssl || !in || !out) {
        BIO_free(in);
        BIO_free(out);
        if (peer)
            SSL_free(peer->ssl);
        free(peer);
        ERR_clear_error();
        return NULL;
    }
    SSL_set_bio(peer->ssl, in, out);
    SSL_set_app_data(peer->ssl, peer);
    SSL_set_accept_state(peer->ssl);
    peer->tls = tls_ref(tls);
    peer->out = out;
    peer->fd = fd;
    peer->door = door;
    return peer;
}

void tls_peer_free(struct tls_peer *peer)
{
    if (!peer)
        return;
    SSL_free(peer->ssl);
    tls_unref(peer->tls);
    free(peer);
}

bool tls_is_open(const struct tls_peer *peer)
{
    return peer->open;
}

bool tls_pending(const struct tls_peer *peer)
{
    return SSL_pending(peer->ssl) > 0;
}

bool tls_unsent(const struct tls_peer *peer)
{
    return !peer->failed && BIO_pending(peer->out) > 0;
}

bool tls_flush(struct tls_peer *peer)
{
    char *bytes = NULL;
    long size = BIO_get_mem_data(peer->out, &bytes);
    while (!peer->failed && size > 0 && peer->sent < (size_t)size) {
        ssize_t n = send(peer->fd, bytes + peer->sent, (size_t)size - peer->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
            return true;
        if (n < 0)
            peer->failed = true;
        else
            peer->sent += (size_t)n;
    }
    if (size > 0 && (peer->failed || peer->sent == (size_t)size)) {
        (void)BIO_reset(peer->out);
        peer->sent = 0;
    }
    return !peer->failed;
}

enum tls_step tls_handshake(struct tls_peer *peer)
{
    ERR_clear_error();
    int r = SSL_do_handshake(peer->ssl);
    int why = r == 1 ? SSL_ERROR_NONE : SSL_get_error(peer->ssl, r);
    bool sent = tls_flush(peer); /* if it failed, the alert that says why */
    peer->open = r == 1;
    ERR_clear_error();
    if (r == 1)
        return sent ? TLS_DONE : TLS_FAILED;
    return sent && why == SSL_ERROR_WANT_READ ? TLS_WAITS : TLS_FAILED;
}

/* What a failed call of OpenSSL means to the caller. */
static ssize_t outcome(struct tls_peer *peer, int r)
{
    int why = SSL_get_error(peer->ssl, r);
    ERR_clear_error();
    if (why == SSL_ERROR_ZERO_RETURN)
        return 0;
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
}

ssize_t tls_recv(struct tls_peer *peer, void *at, size_t size)
{
    size_t n = 0;
    ERR_clear_error();
    int r = SSL_read_ex(peer->ssl, at, size, &n);
    if (!tls_flush(peer)) { /* a key update, an alert */
        errno = ECONNRESET;
        return -1;
    }
    return r == 1 ? (ssize_t)n : outcome(peer, r);
}

/* Copies up to a record's worth of what is left of the pieces. */
static size_t record_fill(const struct iovec **iov, const struct iovec *end, size_t *skip,
                          uint8_t record[RECORD])
{
    size_t have = 0;
    while (*iov < end && have < RECORD) {
        size_t n = MIN((*iov)->iov_len - *skip, RECORD - have);
        if (n)
            memcpy(record + have, (const uint8_t *)(*iov)->iov_base + *skip, n);
        have += n;
        *skip += n;
        if (*skip == (*iov)->iov_len) {
            ++*iov;
            *skip = 0;
        }
    }
    return have;
}

ssize_t tls_send(struct tls_peer *peer, const struct iovec *iov, uint32_t n)
{
    uint8_t record[RECORD];
    const struct iovec *end = iov + n;
    size_t skip = 0, taken = 0, size, written;
    ERR_clear_error();
    while (tls_flush(peer) && !tls_unsent(peer) &&
           (size = record_fill(&iov, end, &skip, record)) > 0) {
        int r = SSL_write_ex(peer->ssl, record, size, &written);
        if (r != 1)
            return outcome(peer, r) < 0 ? -1 : (ssize_t)taken;
        taken += size;
    }
    if (peer->failed) {
        errno = ECONNRESET;
        return -1;
    }
    if (!taken && n) {
        errno = EAGAIN;
        return -1;
    }
    return (ssize_t)taken;
}

void tls_goodbye(struct tls_peer *peer)
{
    ERR_clear_error();
    if (peer->open && !peer->failed && SSL_shutdown(peer->ssl) >= 0)
        tls_flush(peer);
    ERR_clear_error();
}
