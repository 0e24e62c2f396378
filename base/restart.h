/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets environment variables that libraries read while they are loaded, before main. The program
 * must therefore start itself again with them.
 *
 * OpenMP is why. Threads that spin while they wait ruin everything else on the machine and the
 * program's own tail latency; threads that sleep at once are woken for every layer, which takes a
 * third of the time of a small network. So they sleep (OMP_WAIT_POLICY=passive) after about a tenth
 * of a millisecond (GOMP_SPINCOUNT), in which another thread has run a small layer alone.
 */
#ifndef INFERD_BASE_RESTART_H
#define INFERD_BASE_RESTART_H

/* Turns of the loop in which libgomp waits; a turn takes 11 ns where a pause takes 40 cycles, and
 * 45 where it takes 140. With 1000 turns MobileNet v3 took 5.4 ms on two threads instead of 3.6.
 * The systemd unit and the container's file set the same number. */
#define RESTART_SPINS "8000"

/* Called early in main, before anything that an exec would lose. Returns at once if the operator
 * has set one of the two, or if starting again does not work; else it does not return. */
void restart_for_openmp(char **argv);

#endif
