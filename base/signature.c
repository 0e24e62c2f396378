/* SPDX-License-Identifier: Apache-2.0 */
/* Ed25519 through libcrypto, see signature.h. */
#include "base/signature.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

static const char prefix[] = "inferd plan v1";

enum { PREFIX_BYTES = sizeof(prefix) - 1, KEYS_FILE_MAX = 16 << 10 };

struct signature_keys {
    uint32_t n;
    EVP_PKEY *list[SIGNATURE_KEYS_MAX];
};

static void message_make(const uint8_t digest[DIGEST_BYTES],
                         uint8_t out[PREFIX_BYTES + DIGEST_BYTES])
{
    memcpy(out, prefix, PREFIX_BYTES);
    memcpy(out + PREFIX_BYTES, digest, DIGEST_BYTES);
}

/* Reads at most `size` bytes from the start of a file; -1: errno. */
static ssize_t read_begin(int fd, void *out, size_t size)
{
    size_t n = 0;
    while (n < size) {
        ssize_t got = pread(fd, (char *)out + n, size - n, (off_t)n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

static void bio_cleanup(BIO **at)
{
    BIO_free(*at);
    ERR_clear_error(); /* left by the reads that failed */
}

/* Loads a file of keys into memory, and counts the objects that it seems to have. */
static enum status pem_open(int fd, const char *name, BIO **out, uint32_t *n_objects,
                            struct error *err)
{
    static const char begin[] = "-----BEGIN ";
    char text[KEYS_FILE_MAX];
    ssize_t n = read_begin(fd, text, sizeof(text));
    if (n < 0)
        return error_errno(err, errno, "%s", name);
    if (n == (ssize_t)sizeof(text))
        return error_set(err, STATUS_OUT_OF_RANGE, "%s: too long for a file of keys", name);
    text[n] = '\0';
    *n_objects = 0;
    for (const char *at = text; (at = strstr(at, begin)); at += sizeof(begin) - 1)
        ++*n_objects;
    BIO *bio = BIO_new(BIO_s_mem());
    bool ok = bio && (n == 0 || BIO_write(bio, text, (int)n) == (int)n);
    OPENSSL_cleanse(text, sizeof(text)); /* the text may be a private key */
    if (!ok) {
        BIO_free(bio);
        return error_no_memory(err, "keys of %s", name);
    }
    *out = bio;
    return STATUS_OK;
}

/* --- public keys --- */

static enum status keys_add(struct signature_keys *keys, const char *name, EVP_PKEY *key,
                            struct error *err)
{
    bool full = keys->n == SIGNATURE_KEYS_MAX;
    if (!full && EVP_PKEY_get_id(key) == EVP_PKEY_ED25519) {
        keys->list[keys->n++] = key;
        return STATUS_OK;
    }
    EVP_PKEY_free(key);
    if (full)
        return error_set(err, STATUS_OUT_OF_RANGE, "%s: more than %d keys", name,
                         SIGNATURE_KEYS_MAX);
    return error_set(err, STATUS_INVALID_ARGUMENT, "%s: key %u is no Ed25519 key", name,
                     keys->n + 1);
}

void signature_keys_free(struct signature_keys *keys)
{
    for (uint32_t i = 0; keys && i < keys->n; i++)
        EVP_PKEY_free(keys->list[i]);
    free(keys);
}

static void keys_cleanup(struct signature_keys **at)
{
    signature_keys_free(*at);
}

enum status signature_keys_read(int fd, const char *name, struct signature_keys **out,
                                struct error *err)
{
    CLEANUP(bio_cleanup) BIO *bio = NULL;
    CLEANUP(keys_cleanup) struct signature_keys *keys = calloc(1, sizeof(*keys));
    uint32_t n_objects = 0;
    if (!keys)
        return error_no_memory(err, "keys of %s", name);
    TRY(pem_open(fd, name, &bio, &n_objects, err));
    for (EVP_PKEY *key; (key = PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL));)
        TRY(keys_add(keys, name, key, err));
    if (keys->n == 0 || keys->n != n_objects)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%s: expected public keys in PEM (openssl pkey -pubout), number %u is "
                         "none",
                         name, keys->n + 1);
    *out = STEAL(keys);
    return STATUS_OK;
}

/* --- signatures --- */

enum status signature_read(int fd, uint8_t out[SIGNATURE_BYTES], struct error *err)
{
    uint8_t bytes[SIGNATURE_BYTES + 1];
    ssize_t n = read_begin(fd, bytes, sizeof(bytes));
    if (n < 0)
        return error_errno(err, errno, "read");
    if (n != SIGNATURE_BYTES)
        return error_set(err, STATUS_FAILED_PRECONDITION, "it is no signature: expected %d bytes",
                         SIGNATURE_BYTES);
    memcpy(out, bytes, SIGNATURE_BYTES);
    return STATUS_OK;
}

enum status signature_check(const struct signature_keys *keys, const uint8_t digest[DIGEST_BYTES],
                            const uint8_t signature[SIGNATURE_BYTES], struct error *err)
{
    uint8_t message[PREFIX_BYTES + DIGEST_BYTES];
    bool good = false, memory = true;
    message_make(digest, message);
    for (uint32_t i = 0; i < keys->n && !good && memory; i++) {
        EVP_MD_CTX *state = EVP_MD_CTX_new();
        memory = state && EVP_DigestVerifyInit(state, NULL, NULL, NULL, keys->list[i]) == 1;
        good = memory &&
               EVP_DigestVerify(state, signature, SIGNATURE_BYTES, message, sizeof(message)) == 1;
        EVP_MD_CTX_free(state);
    }
    ERR_clear_error();
    if (!memory)
        return error_no_memory(err, "checking it");
    return good ? STATUS_OK
                : error_set(err, STATUS_FAILED_PRECONDITION,
                            "it is by none of the %u keys, or the file is another one than was "
                            "signed",
                            keys->n);
}

/* Fails, where libcrypto would ask for a password on the terminal. */
static int no_password(char *out UNUSED, int size UNUSED, int writing UNUSED, void *user UNUSED)
{
    return -1;
}

static void key_cleanup(EVP_PKEY **at)
{
    EVP_PKEY_free(*at);
}

static void state_cleanup(EVP_MD_CTX **at)
{
    EVP_MD_CTX_free(*at);
}

enum status signature_make(int fd, const char *name, const uint8_t digest[DIGEST_BYTES],
                           uint8_t out[SIGNATURE_BYTES], struct error *err)
{
    uint8_t message[PREFIX_BYTES + DIGEST_BYTES];
    size_t size = SIGNATURE_BYTES;
    uint32_t n_objects;
    CLEANUP(bio_cleanup) BIO *bio = NULL;
    TRY(pem_open(fd, name, &bio, &n_objects, err));
    CLEANUP(key_cleanup) EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    if (!key || EVP_PKEY_get_id(key) != EVP_PKEY_ED25519)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%s: expected a private Ed25519 key in PEM that is not encrypted (openssl "
                         "genpkey -algorithm ed25519)",
                         name);
    message_make(digest, message);
    CLEANUP(state_cleanup) EVP_MD_CTX *state = EVP_MD_CTX_new();
    if (!state || EVP_DigestSignInit(state, NULL, NULL, NULL, key) != 1 ||
        EVP_DigestSign(state, out, &size, message, sizeof(message)) != 1)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "%s: libcrypto could not sign", name);
    return STATUS_OK;
}
