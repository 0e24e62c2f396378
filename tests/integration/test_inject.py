#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each allocation, and each system call, of a server's life fails in turn (scenario.py judges).

    test_inject.py INFERD INFERCTL ALLOC SYSCALLS MODELS [TEST...]

ALLOC is the library of tests/inject/alloc.c, SYSCALLS the program of tests/inject/syscalls.c,
MODELS the folder with digits.onnx. INFERD_TEST_ALL=1 runs all there is to run, in minutes, instead
of a selection.
"""
import collections
import concurrent.futures
import errno
import os
import re
import subprocess
import sys
import unittest

import harness
import scenario
import wire

ALLOC, SYSCALLS, MODELS = sys.argv[3:6]
ALL = bool(os.environ.get("INFERD_TEST_ALL"))
AT_ONCE = 2
SKIP = 77  # of SYSCALLS
ABORTED = "a library called abort()"
# Our malloc comes before the sanitizer's. A run in which the sanitizer itself has no memory proves
# nothing.
BESIDE_ASAN = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
GAVE_UP = re.compile(r"Sanitizer: CHECK failed|Sanitizer has encountered a fatal"
                     r"|Sanitizer: allocator is out of memory|Sanitizer failed to (de)?allocate")
# so that the program does not start itself again
PASSIVE = {"OMP_WAIT_POLICY": "passive"}

# name -> errors that the kernel may give
ERRORS = {
    "accept4": "EMFILE ECONNABORTED ENOMEM EINTR",
    "bind": "EADDRINUSE ENOMEM",
    "clone": "EAGAIN",
    "clone3": "EAGAIN ENOMEM",
    "close": "EIO EINTR",
    "epoll_create1": "EMFILE",
    "epoll_ctl": "ENOMEM ENOSPC",
    "epoll_pwait": "EINTR",
    "epoll_wait": "EINTR",
    "eventfd2": "EMFILE",
    "fcntl": "EMFILE",
    "flock": "EINTR ENOLCK",
    "fsync": "EIO ENOSPC",
    "ftruncate": "EIO ENOSPC",
    "getdents64": "EIO",
    "getrandom": "EINTR EAGAIN",
    "getsockname": "ENOBUFS",
    "getsockopt": "ENOBUFS",
    "ioctl": "EIO",
    "listen": "EADDRINUSE",
    "madvise": "ENOMEM",
    "mkdir": "ENOSPC",
    "mmap": "ENOMEM",
    "mprotect": "ENOMEM",
    "munmap": "ENOMEM",
    "newfstatat": "EIO",
    "openat": "EMFILE EIO",
    "openat2": "EMFILE EIO",
    "pipe2": "EMFILE",
    "poll": "EINTR",
    "prlimit64": "EPERM",
    "read": "EIO EINTR",
    "readlink": "EIO",
    "renameat": "EIO ENOSPC",
    "sendmsg": "ENOBUFS ECONNRESET EAGAIN",
    "setsockopt": "ENOMEM",
    "shutdown": "ENOTCONN",
    "socket": "EMFILE",
    "timerfd_create": "EMFILE",
    "unlink": "EIO",
    "unlinkat": "EIO",
    "write": "EIO EPIPE EAGAIN",
    "writev": "EIO ECONNRESET EAGAIN",
}


def syscall_numbers():
    """Asks the compiler for the numbers of the calls above that this machine has: name ->
    number."""
    lines = "".join(f"#ifdef SYS_{n}\n{n} SYS_{n}\n#endif\n" for n in ERRORS)
    done = subprocess.run(["cc", "-E", "-P", "-"], input="#include <sys/syscall.h>\n" + lines,
                          capture_output=True, text=True, check=True)
    found = re.findall(r"(?m)^(\w+) (\d+)$", done.stdout)
    return {name: int(number) for name, number in found}


def serves_at_abort(log):
    """Whether a library called abort() while the server served. Once it stops, glibc may: it does
    if the stack of a thread that has ended cannot be unmapped."""
    before = log.partition(ABORTED)[0]
    return before != log and "\nready " in before and ": stopping" not in before


class Sweep:
    """Runs the scenario once for each of `jobs` and collects what is wrong."""

    def __init__(self, models, abort_while_serving=False, **options):
        self.models, self.options = models, options
        self.abort_while_serving = abort_while_serving
        self.outcomes = collections.Counter()
        self.wrong = []

    def run(self, job):
        """`job`: (name, added environment, prefix, file that has a line if something failed)"""
        name, env, prefix, hit = job
        code, why, log = scenario.run(self.models, env={**PASSIVE, **BESIDE_ASAN, **env},
                                      prefix=prefix, **self.options)
        if GAVE_UP.search(log):
            code, why = "not judged", None
        elif not why and serves_at_abort(log) and not self.abort_while_serving:
            why = "a library ends a server that serves"
        happened = hit.exists() and hit.stat().st_size > 0
        return name, code, why, log, happened

    def all(self, jobs):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for name, code, why, log, happened in pool.map(self.run, jobs):
                self.outcomes[code if happened else "did not happen"] += 1
                if why:
                    self.wrong.append(f"{name}: {why}\n{log[-2000:]}")
        print(f"{len(jobs)} runs, by exit code: {dict(self.outcomes)}, wrong: {len(self.wrong)}",
              file=sys.stderr)
        return self


class Injection(unittest.TestCase):
    def good(self, sweep, least):
        self.assertFalse(sweep.wrong, f"{len(sweep.wrong)} wrong:\n" + "\n".join(sweep.wrong[:10]))
        self.assertGreater(sweep.outcomes[0] + sweep.outcomes[1], least)

    # --- allocations ---

    def sites(self, sweep, depth, runs=3):
        """The sites that the scenario meets, from several runs together, since the timing of
        threads differs."""
        path, found = harness.folder() / f"sites-{depth}-{id(sweep)}", {}
        for _ in range(runs):
            env = {"LD_PRELOAD": ALLOC, "INJECT_SITES": str(path), "INJECT_DEPTH": str(depth)}
            name, code, why, log, _ = sweep.run(("counting", env, (), path))
            self.assertEqual((code, why), (0, None), f"{name}:\n{log}")
        for line in path.read_text().splitlines() if path.exists() else ():
            found.setdefault(line.split()[0])
        if not found:
            self.skipTest("this build's allocator lets none go before it")
        return list(found)

    def fail_allocations(self, sweep, depth, most=None):
        sites = self.sites(sweep, depth)
        if most and not ALL:
            sites = sorted(sites)[:most]  # sites are hashes, so a slice is a random choice
        jobs = []
        for site in sites:
            hit = harness.folder() / f"hit-{site}-{id(sweep)}"
            jobs.append((f"allocation {site}",
                         {"LD_PRELOAD": ALLOC, "INJECT_SITE": site, "INJECT_DEPTH": str(depth),
                          "INJECT_HIT": str(hit)}, (), hit))
        sweep.all(jobs)
        self.good(sweep, 0.8 * len(jobs))

    def test_each_allocation(self):
        plans = {"copy": harness.plan("copy"), "slab": harness.plan("slab")}
        self.fail_allocations(Sweep(plans), depth=16 if ALL else 6)

    def test_each_allocation_of_onednn(self):
        """oneDNN may end the process when it is out of memory, with one line."""
        plans = {name: harness.plan(name, reference=False) for name in ("copy", "slab")}
        plans["digits"] = harness.folder() / "digits.plan"
        subprocess.run([harness.INFERCTL, "build", f"{MODELS}/digits.onnx", "-o", plans["digits"],
                        "--batch", "1,4", "--no-tune", "--threads", "1", "--timing-cache", ""],
                       check=True, capture_output=True, timeout=harness.PATIENCE)
        more = [wire.infer_body("digits", [("image", "FP32", [n, 1, 8, 8], bytes(256 * n))])
                for n in (1, 3)]
        sweep = Sweep(plans, abort_while_serving=True, more=more)
        real, sweep.run = sweep.run, None
        sweep.run = lambda job: real((job[0], {"INFERD_REFERENCE_KERNELS": None, **job[1]},
                                      *job[2:]))
        self.fail_allocations(sweep, depth=6, most=40)

    # --- system calls ---

    def counted(self, sweep, numbers, runs=3):
        """name -> how often the scenario makes the call, at most"""
        most = collections.Counter()
        by_number = {number: name for name, number in numbers.items()}
        for k in range(runs):
            path = harness.folder() / f"calls-{k}"
            prefix = [SYSCALLS, "count", str(path), ",".join(map(str, by_number))]
            _, code, why, log, _ = sweep.run(("counting", {"AFTER": "prctl"}, prefix, path))
            if code is None and re.search(r"(?m)^syscalls: (seccomp|no_new_privs|clone)", log):
                self.skipTest("system calls cannot be watched here: " + log.strip())
            self.assertEqual((code, why), (0, None), log)
            calls = collections.Counter(by_number[int(n)] for n in path.read_text().split())
            for name, n in calls.items():
                most[name] = max(most[name], n)
        return most

    def test_the_judge_sees_a_killed_server(self):
        number = syscall_numbers()["sendmsg"]
        hit = harness.folder() / "killed"
        plans = {"copy": harness.plan("copy"), "slab": harness.plan("slab")}
        _, code, why, _, happened = Sweep(plans).run(
            ("killed", {}, [SYSCALLS, "kill", str(hit), str(number), "3"], hit))
        self.assertEqual((code, why, happened), (None, "exit code -9", True))

    def test_each_system_call(self):
        numbers = syscall_numbers()
        sweep = Sweep({"copy": harness.plan("copy"), "slab": harness.plan("slab")})
        jobs = []
        for name, n in sorted(self.counted(sweep, numbers).items()):
            for k, error in enumerate(ERRORS[name].split()):
                every = range(1, n + 1)
                if not ALL:  # the first ones start the server, the last ones stop it
                    every = sorted({*every[:4 >> k], *every[4::max(n // 3, 1)]})
                for nth in every:
                    hit = harness.folder() / f"hit-{name}-{error}-{nth}"
                    prefix = [SYSCALLS, "fail", str(hit), str(numbers[name]), str(nth),
                              str(getattr(errno, error))]
                    jobs.append((f"{name} {nth}: {error}", {"AFTER": "prctl"}, prefix, hit))
        sweep.all(jobs)
        self.good(sweep, 0.7 * len(jobs))  # others the sanitizer does not survive


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]])
