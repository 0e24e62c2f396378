/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets environment variables that libraries read while they are loaded, before main. The program
 * must therefore start itself again with them.
 *
 * OpenMP is why. Threads that spin while they wait ruin everything else on the machine and the
 * program's own tail latency; threads that sleep at once are woken for every layer, which takes a
 * third of the time of a small network. So they sleep (OMP_WAIT_POLICY=passive) after about a tenth
 * of a millisecond (GOMP_SPINCOUNT): as long as a layer takes that one thread runs alone.
 */
#ifndef INFERD_BASE_RESTART_H
#define INFERD_BASE_RESTART_H

/* Turns of the loop in which libgomp waits: 11 ns each where a pause takes 40 cycles, 45 where it
 * takes 140. With 1000, MobileNet v3 took 5.4 ms on two threads where it takes 3.6. */
#define RESTART_SPINS "8000"

/* Called early in main, before anything that an exec would lose. Returns at once if the operator
 * has set one of the two, or if starting again does not work; else it does not return. */
void restart_for_openmp(char **argv);

#endif
