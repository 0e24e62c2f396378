/* SPDX-License-Identifier: Apache-2.0 */
/* The fake server as a program, for tests of programs: runs a command with ADDRESS in its arguments
 * replaced by the server's, and exits with its code. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/client/fake_server.h"

int main(int argc, char **argv)
{
    struct fake_server *server = fake_server_start(false);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "ADDRESS") == 0)
            argv[i] = (char *)(size_t)fake_server_address(server);
    }
    pid_t child = fork();
    if (child == 0) {
        execv(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    fake_server_stop(server);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}
