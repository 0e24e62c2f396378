#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_connections: two bytes for limits and end, then events.

The numbers of events are their rows in tests/unit/daemon/played_script.c.
"""
import pathlib

(CONNECT, CROWD, SMALL, MANY, WIDE, TALL, OTHER, ODD, MORE, READ, READ_ALL, LEAVE, LEAVE_MANY, TIME,
 BATCHES, ORDER, LIMITS) = 0, 3, 4, 6, 9, 12, 14, 16, 17, 20, 22, 23, 25, 26, 28, 30, 31
TURNS = 32  # added to an event: this many turns follow
UNIX, TCP = 3, 0
APART, DELAY, CLOSED, TWO = 1, 2, 4, 32  # own device; batches wait; none ends; two loops
ALL_LEAVE, ONE_STAYS, ALL_IDLE, ALL_READ = 0, 8, 16, 24
ALL, HALF, ALL_BUT_ONE = 4, 1, 2  # of what a peer has to send; first bytes: 3 * (row of `first`)

STARVED = [BATCHES, 1, *[CROWD + TURNS, 15] * 3]  # nothing ends, the budget is full
LARGE = [CONNECT, UNIX | 192, *sum(([WIDE + TURNS, peer, 15, 24] for peer in range(4)), [])]

SEEDS = {
    "served": [0, ALL_READ, CONNECT, UNIX, SMALL, 0, 1, SMALL, 0, 2, READ_ALL + TURNS],
    "served_apart": [0, ALL_READ | APART | CLOSED, CONNECT, TCP, WIDE, 0, 9, ALL, WIDE, 0, 31, ALL,
                     BATCHES, 8, BATCHES, 8, READ_ALL],
    "starved_leave": [1, ALL_LEAVE | CLOSED, *STARVED, LEAVE_MANY + TURNS, 0],
    "starved_stay": [1, ALL_IDLE, *STARVED, TIME, 5, BATCHES, 0],
    "starved_read": [4, ALL_READ, *STARVED, READ_ALL + TURNS, BATCHES, 0],
    "large_held": [0, ONE_STAYS, *LARGE, *STARVED, TIME, 7, TIME, 7],
    "large_held_apart": [3, ALL_IDLE | APART, *LARGE, LEAVE_MANY, 1, *LARGE, TIME, 9],
    "two_loops": [4, ALL_LEAVE | APART | TWO, *LARGE, TIME, 6, LEAVE_MANY + TURNS, 3, *LARGE],
    "two_loops_starved": [1, ALL_IDLE | CLOSED | TWO, *STARVED, LEAVE_MANY + TURNS, 0, *STARVED],
    # The first loop has the peers with even numbers; it keeps memory that the second loop then
    # needs.
    "kept_by_another": [4, ALL_LEAVE | APART | TWO, CONNECT, UNIX | 192, CONNECT, UNIX | 192,
                        *sum(([WIDE + 3 * TURNS, peer, 15, ALL_BUT_ONE, MORE + 3 * TURNS, peer, 2,
                               MORE + 3 * TURNS, peer, 2] for peer in (0, 2, 4, 6)), [])],
    "slow_reader": [2, ALL_IDLE, CONNECT, UNIX, TALL + TURNS, 0, 255, TIME, 6, READ, 0, 200],
    "reset_in_flight": [0, ALL_LEAVE | CLOSED, CONNECT, TCP | 64, MANY + TURNS, 0, 60, ALL,
                        LEAVE, 0, 1, LEAVE, 1, 1, BATCHES, 0],
    "half_closed": [0, ALL_READ | CLOSED, CONNECT, UNIX, MANY + TURNS, 0, 60, ALL, LEAVE, 0, 0,
                    BATCHES, 255],
    "cancelled": [0, ALL_READ | CLOSED, CONNECT, UNIX, MANY + TURNS, 0, 40, ALL + 3, OTHER, 0, 1,
                  OTHER, 0, 5, BATCHES, 0],
    "drained": [0, ALL_READ | CLOSED, CONNECT, UNIX, MANY + TURNS, 0, 20, ALL, ORDER, 110, ORDER,
                130, ORDER, 160],
    "smaller_limits": [0, ALL_READ, CONNECT, UNIX, WIDE, 0, 15, HALF, LIMITS, 201, MORE, 0, ALL,
                       LIMITS, 203],
    "odd": [0, ALL_IDLE, CONNECT, UNIX | 192,
            *sum(([ODD + TURNS, peer, peer] for peer in range(4)), [])],
    "evicted": [0, ALL_READ, CONNECT, UNIX | 64, TIME, 9, ORDER, 1, SMALL, 1, 1],
}


def main():
    folder = pathlib.Path(__file__).parent / "corpus/connections"
    folder.mkdir(parents=True, exist_ok=True)
    for name, events in SEEDS.items():
        (folder / name).write_bytes(bytes(events))


if __name__ == "__main__":
    main()
