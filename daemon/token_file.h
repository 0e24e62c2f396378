/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of token hashes. A line is
 *
 *   NAME sha256:HEX [RIGHT...]
 *
 * with spaces or tabs between; '#' begins a comment, empty lines are skipped. A name may have
 * several tokens, so that a new one can be handed out before the old one goes. `inferctl token`
 * makes tokens and their lines. Refused: a token that stands there twice, a name that is none,
 * anything else on a line, more than 4,096 tokens or 1 MiB.
 */
#ifndef INFERD_DAEMON_TOKEN_FILE_H
#define INFERD_DAEMON_TOKEN_FILE_H

#include "base/token.h"

enum {
    TOKEN_FILE_LINES = 4096, /* tokens; comments do not count */
    TOKEN_FILE_BYTES = 1 << 20,
    TOKEN_NAME_MOST = 64,
};

struct token_line {
    char name[TOKEN_NAME_MOST + 1];
    uint32_t rights; /* a mask of RIGHT_BIT; 0: none stand there */
    uint32_t line;   /* from 1 */
    struct token_hash hash;
};

/* In the order of their lines. */
struct token_list {
    uint32_t n;
    struct token_line *items;
};

/* `file` stands for the file in errors, which name it and the line. */
enum status token_list_parse(const char *file, const char *text, size_t size,
                             struct token_list *out, struct error *err);

/*
 * The same from a file: `path` as the operator configured it, or a name without a slash, which lies
 * in $CREDENTIALS_DIRECTORY. As sshd does with keys, a file is refused that is not regular, that
 * belongs to somebody else than this process or root, or that group or others may read or write.
 * The modes are not checked in the credentials' folder, where the service manager sets them.
 */
enum status token_list_read(const char *path, struct token_list *out, struct error *err);
void token_list_deinit(struct token_list *list); /* {0} is fine; leaves {0} */

#endif
