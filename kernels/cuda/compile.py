#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a compiler and keeps what it says in a file, which the tests read; shows it if there are
warnings or errors.

    compile.py LOG COMPILER ARGUMENT...
"""
import pathlib
import subprocess
import sys


def main():
    done = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          check=False)
    pathlib.Path(sys.argv[1]).write_bytes(done.stderr)
    if done.returncode or b"warning" in done.stderr:
        sys.stderr.buffer.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
