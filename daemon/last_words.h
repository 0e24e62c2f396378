/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the process says when a library gives up. libuv calls abort() if a system call or an
 * allocation fails and libuv has no answer to that, and so does C++ for an exception that nobody
 * can catch. The process cannot survive either; it ends as after any other failure, with one line
 * and exit status 1. If it may leave a core (ulimit -c), it leaves one instead, after the same
 * line.
 *
 * The daemon is closed to other processes of its account (main.c), and a closed process leaves no
 * core. A process that dies of a signal is therefore opened just before, for its core.
 *
 * oneDNN takes memory for its objects from posix_memalign and uses it without a look at the result.
 * The program therefore has a posix_memalign of its own, in place of the C library's, which ends
 * the process the same way where oneDNN would write through NULL. It spares requests larger than
 * any of oneDNN's objects, because oneDNN checks the result of those.
 */
#ifndef INFERD_DAEMON_LAST_WORDS_H
#define INFERD_DAEMON_LAST_WORDS_H

/* For the whole process, from now on. */
void last_words_install(void);

#endif
