/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said when a library gives up. libuv calls abort() where a system call or an allocation
 * fails that it has no answer to, and so does C++ for an exception that nobody can catch. None of
 * that can be survived; it ends the process as any other failure does: one line, exit status 1. A
 * process that is allowed to leave a core (ulimit -c) leaves one instead, after the same line.
 *
 * The daemon is closed to other processes of its account (main.c), and what is closed leaves no
 * core either. Whoever dies of a signal is past that: it is opened for its core, just before.
 *
 * oneDNN takes memory for its objects from posix_memalign and uses it unseen. The program has a
 * posix_memalign of its own, before that of the C library, which ends the process the same way
 * where oneDNN would write through NULL; what is larger than any object it looks at.
 */
#ifndef INFERD_DAEMON_LAST_WORDS_H
#define INFERD_DAEMON_LAST_WORDS_H

/* For the whole process, from now on. */
void last_words_install(void);

#endif
