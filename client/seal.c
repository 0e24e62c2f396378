/* SPDX-License-Identifier: Apache-2.0 */
/* TLS of a client's connection, see seal.h. */
#include "client/seal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/compiler.h"

enum { HOST_MOST = 254, SEALED = SEAL_RECORD + 1024 /* a record with what is around it */ };

struct seal {
    SSL_CTX *ctx;
    SSL *ssl;
    BIO *in, *out; /* they belong to `ssl` */
    bool open;
    char host[HOST_MOST];
    size_t begin, end; /* of what is unsent */
    uint8_t unsent[SEALED], room[SEAL_RECORD];
};

/* --- addresses --- */

void seal_target_cleanup(struct seal_target *target)
{
    free(target->copy);
    target->copy = NULL;
}

static enum status option_take(char *pair, struct seal_target *out, struct error *err)
{
    const struct {
        const char *name;
        const char **to;
    } rows[] = {
        {"ca", &out->ca}, {"cert", &out->certificate}, {"key", &out->key}, {"name", &out->name}};
    char *value = strchr(pair, '=');
    for (size_t i = 0; value && i < ARRAY_LEN(rows); i++)
        if ((size_t)(value - pair) == strlen(rows[i].name) &&
            strncmp(pair, rows[i].name, strlen(rows[i].name)) == 0 && value[1] && !*rows[i].to) {
            *rows[i].to = value + 1;
            return STATUS_OK;
        }
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "address \"%.80s\": expected ca=FILE, cert=FILE, key=FILE or name=HOST, each "
                     "once, behind '?' and '&', got \"%.80s\"",
                     out->address, pair);
}

static enum status target_fill(struct seal_target *out, struct error *err)
{
    char *rest = strchr(out->copy, '?'), *pair;
    out->address = out->copy;
    out->tls = true;
    if (rest)
        *rest++ = '\0';
    while ((pair = strsep(&rest, "&")))
        TRY(option_take(pair, out, err));
    if (strncmp(out->address, "unix:", 5) == 0)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "address \"tls://%.80s\": TLS is spoken over TCP", out->address);
    if (out->key && !out->certificate)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "address \"tls://%.80s\": expected cert=FILE beside key=", out->address);
    return STATUS_OK;
}

enum status seal_target_parse(const char *text, struct seal_target *out, struct error *err)
{
    static const char scheme[] = "tls://";
    size_t n = sizeof(scheme) - 1;
    struct seal_target target = {.address = text};
    if (strncmp(text, scheme, n) == 0) {
        target.copy = strdup(text + n);
        if (!target.copy)
            return error_no_memory(err, "an address");
        enum status status = target_fill(&target, err);
        if (status) {
            seal_target_cleanup(&target);
            return status;
        }
    }
    *out = target;
    return STATUS_OK;
}

/* The host of "HOST:PORT" or "[IPV6]:PORT". */
static bool host_copy(const char *address, char out[HOST_MOST])
{
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : strlen(address);
    if (n > 1 && address[0] == '[' && address[n - 1] == ']') {
        address++;
        n -= 2;
    }
    if (!n || n >= HOST_MOST)
        return false;
    memcpy(out, address, n);
    out[n] = '\0';
    return true;
}

/* --- life --- */

/* Fails with what OpenSSL says of a file. */
static enum status file_failed(struct error *err, const char *what, const char *path)
{
    unsigned long code = ERR_peek_error(); /* later ones say less and less of it */
    const char *reason = ERR_reason_error_string(code);
    ERR_clear_error();
    if (ERR_SYSTEM_ERROR(code))
        return error_errno(err, ERR_GET_REASON(code), "%s '%.150s'", what, path);
    return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%.150s': %s", what, path,
                     reason ? reason : "it cannot be used");
}

/* A key that needs a passphrase is refused: a library asks nobody. */
static int no_passphrase(char *to UNUSED, int size UNUSED, int writing UNUSED, void *user UNUSED)
{
    return 0;
}

static enum status host_set(struct seal *s, const struct seal_target *target, struct error *err)
{
    if (!target->name && host_copy(target->address, s->host))
        return STATUS_OK;
    if (!target->name || strlen(target->name) >= HOST_MOST)
        return error_set(err, STATUS_INVALID_ARGUMENT, "address \"tls://%.80s\": expected a host",
                         target->address);
    memcpy(s->host, target->name, strlen(target->name) + 1);
    return STATUS_OK;
}

static enum status ctx_make(struct seal *s, const struct seal_target *target, struct error *err)
{
    const char *key = target->key ? target->key : target->certificate;
    SSL_CTX *ctx = s->ctx = SSL_CTX_new(TLS_client_method());
    if (!ctx)
        return error_no_memory(err, "TLS");
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    if (!target->ca && SSL_CTX_set_default_verify_paths(ctx) != 1)
        return file_failed(err, "the system's authorities", "");
    if (target->ca && SSL_CTX_load_verify_file(ctx, target->ca) != 1)
        return file_failed(err, "authorities", target->ca);
    if (!target->certificate)
        return STATUS_OK;
    if (SSL_CTX_use_certificate_chain_file(ctx, target->certificate) != 1)
        return file_failed(err, "certificate", target->certificate);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ctx) != 1)
        return file_failed(err, "key", key);
    return STATUS_OK;
}

/* Makes the connection's state, and says whom its server's certificate must name. */
static enum status ssl_make(struct seal *s, struct error *err)
{
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    s->ssl = SSL_new(s->ctx);
    if (!s->ssl || !in || !out) {
        BIO_free(in);
        BIO_free(out);
        ERR_clear_error();
        return error_no_memory(err, "TLS");
    }
    SSL_set_bio(s->ssl, in, out);
    SSL_set_connect_state(s->ssl);
    s->in = in;
    s->out = out;
    bool number = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s->ssl), s->host) == 1;
    ERR_clear_error();
    if (number ||
        (SSL_set1_host(s->ssl, s->host) == 1 && SSL_set_tlsext_host_name(s->ssl, s->host) == 1))
        return STATUS_OK;
    ERR_clear_error();
    return error_set(err, STATUS_INVALID_ARGUMENT, "\"%s\" cannot be a certificate's name",
                     s->host);
}

static enum status seal_make(struct seal *s, const struct seal_target *target, struct error *err)
{
    TRY(host_set(s, target, err));
    TRY(ctx_make(s, target, err));
    return ssl_make(s, err);
}

enum status seal_new(const struct seal_target *target, struct seal **out, struct error *err)
{
    if (!target->tls)
        return STATUS_OK;
    struct seal *s = calloc(1, sizeof(*s));
    if (!s)
        return error_no_memory(err, "TLS");
    enum status status = seal_make(s, target, err);
    if (status)
        seal_free(s);
    else
        *out = s;
    return status;
}

void seal_free(struct seal *seal)
{
    if (!seal)
        return;
    SSL_free(seal->ssl);
    SSL_CTX_free(seal->ctx);
    free(seal);
}

/* --- failures --- */

/* What a call of OpenSSL says that can go no further. */
static enum status ssl_failed(struct seal *s, int why, struct error *err)
{
    enum { ALERT = SSL_AD_REASON_OFFSET }; /* reasons from here on are alerts of the server */
    unsigned long code = ERR_peek_error();
    const char *reason = ERR_reason_error_string(code);
    long verified = SSL_get_verify_result(s->ssl);
    ERR_clear_error();
    if (why == SSL_ERROR_ZERO_RETURN)
        return error_set(err, STATUS_UNAVAILABLE, "the server closed the connection");
    if (!s->open && verified != X509_V_OK)
        return error_set(err, STATUS_UNAUTHENTICATED,
                         "TLS: the certificate of the server, expected for \"%s\": %s", s->host,
                         X509_verify_cert_error_string(verified));
    if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) >= ALERT)
        return error_set(err, STATUS_UNAUTHENTICATED, "TLS: the server refuses: %s", reason);
    if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
        return error_set(err, STATUS_UNAVAILABLE, "TLS: what answers there does not speak it");
    return error_set(err, STATUS_UNAVAILABLE, "TLS: %s", reason ? reason : "the connection failed");
}

static bool waits(int why)
{
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
}

/* --- bytes --- */

void seal_room(struct seal *seal, void **at, size_t *size)
{
    *at = seal->room;
    *size = sizeof(seal->room);
}

enum status seal_filled(struct seal *seal, size_t size, struct error *err)
{
    size_t n = 0;
    if (BIO_write_ex(seal->in, seal->room, size, &n) == 1 && n == size)
        return STATUS_OK;
    ERR_clear_error();
    return error_no_memory(err, "TLS");
}

enum status seal_shake(struct seal *seal, struct error *err)
{
    ERR_clear_error();
    int r = SSL_do_handshake(seal->ssl);
    int why = r == 1 ? SSL_ERROR_NONE : SSL_get_error(seal->ssl, r);
    if (r != 1 && !waits(why))
        return ssl_failed(seal, why, err);
    ERR_clear_error();
    seal->open = r == 1;
    return STATUS_OK;
}

bool seal_is_open(const struct seal *seal)
{
    return seal->open;
}

enum status seal_read(struct seal *seal, void *at, size_t size, size_t *got, struct error *err)
{
    *got = 0;
    ERR_clear_error();
    int r = SSL_read_ex(seal->ssl, at, size, got);
    int why = r == 1 ? SSL_ERROR_NONE : SSL_get_error(seal->ssl, r);
    if (r != 1 && !waits(why))
        return ssl_failed(seal, why, err);
    ERR_clear_error();
    return STATUS_OK;
}

enum status seal_write(struct seal *seal, const void *data, size_t size, struct error *err)
{
    size_t n = 0;
    ERR_clear_error();
    int r = SSL_write_ex(seal->ssl, data, size, &n);
    if (r != 1 || n != size) /* the memory that it writes to is never full */
        return ssl_failed(seal, SSL_get_error(seal->ssl, r), err);
    return STATUS_OK;
}

bool seal_goodbye(struct seal *seal)
{
    if (!seal->open || seal->begin != seal->end) /* in the middle of a record */
        return false;
    ERR_clear_error();
    bool said = SSL_shutdown(seal->ssl) >= 0;
    ERR_clear_error();
    return said;
}

size_t seal_unsent(struct seal *seal, const void **at)
{
    if (seal->begin == seal->end) {
        seal->begin = seal->end = 0;
        if (BIO_read_ex(seal->out, seal->unsent, sizeof(seal->unsent), &seal->end) != 1)
            seal->end = 0;
    }
    *at = seal->unsent + seal->begin;
    return seal->end - seal->begin;
}

void seal_sent(struct seal *seal, size_t size)
{
    seal->begin += size;
}
