# SPDX-License-Identifier: Apache-2.0
"""A running inferd for the length of a `with`: port 0, stopped with SIGTERM, exit code 0."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

START_SECONDS, STOP_SECONDS = 120, 60


def wait_ready(process, log):
    """The address of the first line "ready 127.0.0.1:PORT"."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        match = re.search(r"(?m)^ready (127\.0\.0\.1:\d+)$", log.read_text(errors="replace"))
        if match:
            return match.group(1)
        if process.poll() is not None:
            raise AssertionError(f"inferd ended with {process.returncode}:\n{log.read_text()}")
        time.sleep(0.02)
    raise AssertionError(f"inferd was not ready in {START_SECONDS} s:\n{log.read_text()}")


@contextlib.contextmanager
def inferd(*command, env=None):
    """Runs `command` + --listen 127.0.0.1:0 and gives the address."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log")
        with open(log, "wb") as sink:
            process = subprocess.Popen([*map(str, command), "--listen", "127.0.0.1:0"],
                                       env=dict(os.environ, **(env or {})), stdout=sink,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            yield wait_ready(process, log)
            process.send_signal(signal.SIGTERM)
            code = process.wait(STOP_SECONDS)
            if code != 0:
                raise AssertionError(f"inferd ended with {code}:\n{log.read_text()}")
        except BaseException:
            sys.stderr.write(log.read_text(errors="replace"))
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
