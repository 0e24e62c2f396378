/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identities, see identity.h.
 *
 * Users and groups become numbers when the snapshot is made. The kernel shows one number (65534,
 * "nobody") for everybody who has no number in our user namespace. All strangers of the namespace
 * share it, so no entry may have it, and no peer fits an entry by it.
 */
#include "daemon/identity.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/token_file.h"

enum { OVERFLOW_ID = 65534, LOOKUP_BYTES = 1 << 16 };

struct identity {
    char name[TOKEN_NAME_MOST + 1];
    uint32_t rights, priority;
    uint64_t requests, bytes; /* its limits; 0: none */
    struct identity_use *use; /* if there are limits; a reference */
    bool all_models, has_user, has_group;
    uid_t user;
    gid_t group;
    uint32_t n_models;
    char **models;         /* the snapshot's own */
    _Atomic uint32_t told; /* rights whose refusal is in the log; relaxed: it guards nothing */
};

struct token_entry {
    struct token_hash hash;
    uint32_t identity;
};

struct identities {
    _Atomic uint32_t refs; /* release on the way down, so that who frees sees all that was done */
    bool required;
    bool by_peer; /* some entry names a user or group */
    struct identity local, anonymous;
    uint32_t n, n_configured; /* the configured ones come first, in order */
    struct identity *items;
    uint32_t n_tokens;
    struct token_entry *tokens;
};

enum {
    EVERYTHING = RIGHT_BIT(RIGHT_INFER) | RIGHT_BIT(RIGHT_DESCRIBE) | RIGHT_BIT(RIGHT_STATUS) |
                 RIGHT_BIT(RIGHT_MEMORY)
};

/* --- users and groups --- */

static bool parse_id(const char *text, uint32_t *out)
{
    char *end;
    if (!*text || strspn(text, "0123456789") != strlen(text) || strlen(text) > 10)
        return false;
    unsigned long long n = strtoull(text, &end, 10);
    if (n >= UINT32_MAX)
        return false;
    *out = (uint32_t)n;
    return true;
}

/* Returns 0 or an errno; ENOENT: there is no user of that name. */
static int find_user(const char *name, uint32_t *out)
{
    struct passwd entry, *found = NULL;
    char *buffer = malloc(LOOKUP_BYTES);
    int r = buffer ? getpwnam_r(name, &entry, buffer, LOOKUP_BYTES, &found) : ENOMEM;
    if (found)
        *out = found->pw_uid;
    free(buffer);
    return found ? 0 : r ? r : ENOENT;
}

static int find_group(const char *name, uint32_t *out)
{
    struct group entry, *found = NULL;
    char *buffer = malloc(LOOKUP_BYTES);
    int r = buffer ? getgrnam_r(name, &entry, buffer, LOOKUP_BYTES, &found) : ENOMEM;
    if (found)
        *out = found->gr_gid;
    free(buffer);
    return found ? 0 : r ? r : ENOENT;
}

static enum status id_find(const char *key, const char *name, const char *text,
                           int (*find)(const char *name, uint32_t *out), uint32_t *out,
                           struct error *err)
{
    int r = parse_id(text, out) ? 0 : find(text, out);
    if (r == ENOMEM)
        return error_no_memory(err, "looking up %s \"%s\"", key, text);
    if (r != 0)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "identity \"%s\": expected a %s of this machine or its number, got \"%s\"",
                         name, key, text);
    if (*out == OVERFLOW_ID)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "identity \"%s\": expected a %s, got \"%s\" (%d), which stands for "
                         "everybody who has no number here",
                         name, key, text, OVERFLOW_ID);
    return STATUS_OK;
}

static bool in_group(const struct credentials *peer, gid_t group)
{
    bool found = peer->gid == group;
    for (uint32_t i = 0; i < peer->n_groups && !found; i++)
        found = peer->groups[i] == group;
    return found;
}

static bool peer_fits(const struct identity *identity, const struct credentials *peer)
{
    if (!identity->has_user && !identity->has_group)
        return false;
    if (identity->has_user && peer->uid != identity->user)
        return false;
    return !identity->has_group || in_group(peer, identity->group);
}

/* --- making --- */

/* Finds what the identity of that name has in flight, in the snapshot before. */
static struct identity_use *use_before(const struct identities *before, const char *name)
{
    if (before && strcmp(name, CONFIG_ANONYMOUS) == 0)
        return before->anonymous.use;
    for (uint32_t i = 0; before && i < before->n_configured; i++)
        if (strcmp(before->items[i].name, name) == 0)
            return before->items[i].use;
    return NULL;
}

static enum status limits_make(const struct config_identity *from, const struct identities *before,
                               struct identity *out, struct error *err)
{
    out->requests = from->requests;
    out->bytes = from->bytes;
    if (!from->requests && !from->bytes)
        return STATUS_OK;
    struct identity_use *use = use_before(before, from->name);
    out->use = use ? identity_use_ref(use) : identity_use_new();
    return out->use ? STATUS_OK : error_no_memory(err, "identities");
}

static enum status identity_make(const struct config_identity *from,
                                 const struct identities *before, struct identity *out,
                                 struct error *err)
{
    TRY(limits_make(from, before, out, err));
    snprintf(out->name, sizeof(out->name), "%s", from->name);
    out->rights = from->rights;
    out->priority = from->priority;
    out->has_user = from->user != NULL;
    out->has_group = from->group != NULL;
    if (from->user)
        TRY(id_find("user", from->name, from->user, find_user, &out->user, err));
    if (from->group)
        TRY(id_find("group", from->name, from->group, find_group, &out->group, err));
    if (!from->models_count)
        return STATUS_OK;
    out->models = calloc(from->models_count, sizeof(*out->models));
    if (!out->models)
        return error_no_memory(err, "identities");
    for (uint32_t i = 0; i < from->models_count; i++) {
        out->models[i] = strdup(from->models[i]);
        if (!out->models[i])
            return error_no_memory(err, "identities");
        out->n_models++;
        out->all_models |= strcmp(from->models[i], "*") == 0;
    }
    return STATUS_OK;
}

static enum status configured_make(struct identities *all, const struct identities *before,
                                   const struct config *config, struct error *err)
{
    for (uint32_t i = 0; i < config->identities_count; i++) {
        const struct config_identity *from = &config->identities[i];
        bool nobody = strcmp(from->name, CONFIG_ANONYMOUS) == 0;
        struct identity *to = nobody ? &all->anonymous : &all->items[all->n++];
        TRY(identity_make(from, before, to, err));
        all->by_peer |= to->has_user || to->has_group;
    }
    all->n_configured = all->n;
    return STATUS_OK;
}

static struct identity *by_name(struct identities *all, const char *name, uint32_t from)
{
    for (uint32_t i = from; i < all->n; i++)
        if (strcmp(all->items[i].name, name) == 0)
            return &all->items[i];
    return NULL;
}

/*
 * Rights stand in one place: in the configuration, or on the token's line, where they are for all
 * models. A line without rights and without an entry would be a token for nothing; rights in both
 * places would leave open which of them hold.
 */
static enum status token_add(struct identities *all, const struct token_line *line,
                             struct error *err)
{
    struct identity *identity = by_name(all, line->name, 0);
    bool configured = identity && identity < all->items + all->n_configured;
    if (configured && line->rights)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "line %u: expected no rights, as \"%s\" has an entry in `identities`",
                         line->line, line->name);
    if (!configured && !line->rights)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "line %u: expected rights behind the hash (%s), or an entry \"%s\" in "
                         "`identities`",
                         line->line, right_names, line->name);
    if (identity && !configured && identity->rights != line->rights)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "line %u: expected the same rights as on the other lines of \"%s\"",
                         line->line, line->name);
    if (!identity) {
        identity = &all->items[all->n++];
        snprintf(identity->name, sizeof(identity->name), "%s", line->name);
        identity->rights = line->rights;
        identity->all_models = true;
    }
    all->tokens[all->n_tokens++] =
        (struct token_entry){line->hash, (uint32_t)(identity - all->items)};
    return STATUS_OK;
}

static enum status tokens_add(struct identities *all, const struct token_list *list,
                              struct error *err)
{
    struct token_hash first;
    /* libcrypto sets itself up at its first hash. That reads files, so it must happen here and not
     * on a loop's thread. */
    if (!token_hash_of("", 0, &first))
        return error_set(err, STATUS_INTERNAL, "libcrypto has no SHA-256");
    if (!list->n)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "expected at least one token (inferctl token makes one)");
    for (uint32_t i = 0; i < list->n; i++)
        TRY(token_add(all, &list->items[i], err));
    return STATUS_OK;
}

static enum status tokens_make(struct identities *all, const struct config *config,
                               const struct token_list *list, struct error *err)
{
    enum status status = tokens_add(all, list, err);
    if (status)
        error_prefix(err, "%s", config->tokens);
    return status;
}

static void identity_deinit(struct identity *identity)
{
    for (uint32_t i = 0; i < identity->n_models; i++)
        free(identity->models[i]);
    free(identity->models);
    identity_use_unref(identity->use);
}

static void identities_free(struct identities *all)
{
    for (uint32_t i = 0; i < all->n; i++)
        identity_deinit(&all->items[i]);
    identity_deinit(&all->anonymous);
    free(all->items);
    free(all->tokens);
    free(all);
}

static void identities_cleanup(struct identities **all)
{
    if (*all)
        identities_free(*all);
}

enum status identities_new(const struct config *config, const struct identities *before,
                           struct identities **out, struct error *err)
{
    CLEANUP(token_list_deinit) struct token_list list = {0};
    CLEANUP(identities_cleanup) struct identities *all = NULL;
    if (config->tokens)
        TRY(token_list_read(config->tokens, &list, err));
    all = calloc(1, sizeof(*all));
    if (!all)
        return error_no_memory(err, "identities");
    size_t n = (size_t)config->identities_count + list.n;
    atomic_init(&all->refs, 1);
    all->required = config->tokens || config->identities_count;
    all->local = (struct identity){.name = "local", .rights = EVERYTHING, .all_models = true};
    all->anonymous = (struct identity){.name = CONFIG_ANONYMOUS};
    all->items = calloc(n ? n : 1, sizeof(*all->items));
    all->tokens = calloc(list.n ? list.n : 1, sizeof(*all->tokens));
    if (!all->items || !all->tokens)
        return error_no_memory(err, "identities");
    TRY(configured_make(all, before, config, err));
    if (config->tokens)
        TRY(tokens_make(all, config, &list, err));
    *out = STEAL(all);
    return STATUS_OK;
}

struct identities *identities_ref(struct identities *all)
{
    atomic_fetch_add_explicit(&all->refs, 1, memory_order_relaxed);
    return all;
}

void identities_unref(struct identities *all)
{
    if (all && atomic_fetch_sub_explicit(&all->refs, 1, memory_order_acq_rel) == 1)
        identities_free(all);
}

/* --- asking --- */

bool identities_required(const struct identities *all)
{
    return all->required;
}

const struct identity *identities_anonymous(const struct identities *all)
{
    return all->required ? &all->anonymous : &all->local;
}

enum status identities_by_token(const struct identities *all, struct message_text token,
                                const struct identity **out, struct error *err)
{
    struct token_hash hash;
    const struct identity *found = NULL;
    if (!all->required) {
        *out = &all->local;
        return STATUS_OK;
    }
    if (token_ok(token.data, token.len)) {
        if (!token_hash_of(token.data, token.len, &hash))
            return error_no_memory(err, "looking at the token");
        for (uint32_t i = 0; i < all->n_tokens; i++)
            if (token_same(&hash, &all->tokens[i].hash, sizeof(hash)))
                found = &all->items[all->tokens[i].identity];
    }
    if (!found)
        return error_set(err, STATUS_UNAUTHENTICATED, "the token is not known");
    *out = found;
    return STATUS_OK;
}

const struct identity *identities_by_peer(const struct identities *all,
                                          const struct credentials *peer)
{
    if (!all->required)
        return &all->local;
    if (!peer->known)
        return &all->anonymous;
    for (uint32_t i = 0; i < all->n_configured; i++)
        if (peer_fits(&all->items[i], peer))
            return &all->items[i];
    return !all->by_peer && peer->by_mode ? &all->local : &all->anonymous;
}

const char *identity_name(const struct identity *identity)
{
    return identity->name;
}

/* `*` fits any characters. If the latest `*` took too few, the match goes on one character later.
 * Earlier ones need no second try, so the work is at most the product of the lengths. */
static bool pattern_fits(const char *pattern, struct message_text name)
{
    const char *star = NULL;
    size_t at = 0, from = 0;
    while (at < name.len) {
        if (*pattern == '*') {
            star = pattern++;
            from = at;
        } else if (*pattern == name.data[at]) {
            pattern++;
            at++;
        } else if (star) {
            pattern = star + 1;
            at = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

bool identity_may(const struct identity *identity, enum right right, struct message_text model)
{
    if (!(identity->rights & RIGHT_BIT(right)))
        return false;
    bool fits = identity->all_models || !model.len;
    for (uint32_t i = 0; i < identity->n_models && !fits; i++)
        fits = pattern_fits(identity->models[i], model);
    return fits;
}

bool identity_has_rights(const struct identity *identity)
{
    return identity->rights != 0;
}

bool identities_refusal_is_news(struct identities *all, const struct identity *identity,
                                enum right right)
{
    struct identity *mine = &all->local;
    if (identity == &all->anonymous)
        mine = &all->anonymous;
    else if (identity != &all->local)
        mine = &all->items[identity - all->items];
    uint32_t before = atomic_fetch_or_explicit(&mine->told, RIGHT_BIT(right), memory_order_relaxed);
    return !(before & RIGHT_BIT(right));
}

enum status identity_charge(const struct identity *identity, uint64_t size,
                            struct identity_use **out, struct error *err)
{
    if (identity->use &&
        !identity_use_take(identity->use, identity->requests, identity->bytes, size))
        return error_cause(err, CAUSE_IDENTITY_FULL, "'%s' has as much in flight as it may have",
                           identity->name);
    *out = identity->use;
    return STATUS_OK;
}

uint32_t identity_priority(const struct identity *identity, uint32_t asked)
{
    return MAX(asked, identity->priority);
}
