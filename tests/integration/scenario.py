# SPDX-License-Identifier: Apache-2.0
"""A server's whole life in a tenth of a second: started, asked on several connections, reloaded,
asked again, drained with requests in flight. It serves tests that break one thing on the way, and
`run()` judges the outcome. Whatever broke, nothing crashes, hangs or leaks; each request that was
sent is answered or its connection is closed; and one broken call does no lasting harm: a new
request afterwards is answered, unless the process has ended by then and said why.
"""
import re
import signal
import struct
import subprocess
import time

import harness
import wire
from wire import PATIENCE

X4 = struct.pack("<4f", 1, 2, 3, 4)
WIDTH = 1 << 16  # 256 KiB a request: such frames take slabs
# what a request may be told when something broke
EXCUSES = {wire.RESOURCE_EXHAUSTED, wire.UNAVAILABLE, wire.INTERNAL}
CRASHES = re.compile(r"Sanitizer|Assertion|runtime error|stack smashing"
                     r"|corrupted|double free|invalid pointer")

harness.MODELS["slab"] = lambda: harness.copy_model(WIDTH)


def small():
    return wire.infer_body("copy", [("x", "FP32", [1, 4], X4)]), X4


def large():
    data = struct.pack("<f", 7) * WIDTH
    return wire.infer_body("slab", [("x", "FP32", [1, WIDTH], data)]), data


class Broken(Exception):
    """Something that must not happen has happened."""


class Life:
    def __init__(self, models, config=None, more=(), **options):
        self.more = [(wire.INFER, body, None) for body in more]  # further requests
        settings = {"workers": 2, "io_threads": 2, "drain_timeout_ms": 10000}
        self.server = harness.Server(models, dict(settings, **(config or {})), wait=False,
                                     **options)

    # --- requests ---

    def connect(self):
        try:
            return wire.Client(self.server.address, timeout=PATIENCE)
        except (ConnectionError, OSError) as why:
            if isinstance(why, TimeoutError):
                raise Broken("connecting takes too long") from why
            return None

    def ask(self, client, kinds):
        """Sends all requests, then waits for an answer to each, or for the end of the connection.
        Returns True if all answers are OK."""
        if not client:
            return False
        sent, good = {}, True
        try:
            for kind, body, data in kinds:
                sent[client.start(kind, body)] = data
            while sent:
                reply = client.receive()
                if reply.id == 0:  # about the connection, which is closed then
                    good = False
                    continue
                if reply.id not in sent:
                    raise Broken(f"an answer that nobody waits for: {reply.id}")
                data = sent.pop(reply.id)
                if reply.status != wire.OK:
                    good = False
                    if reply.status not in EXCUSES:
                        raise Broken(f"status {reply.status}: {reply.message}")
                elif data is not None and reply.outputs()["y"][2] != data:
                    raise Broken("a wrong answer")
        except (EOFError, ConnectionError):
            return False
        except TimeoutError as why:
            raise Broken(f"{len(sent)} requests are not answered") from why
        return good

    def talk(self):
        """Talks over several connections at once; returns True if nothing went wrong."""
        infer = [(wire.INFER, *small())]
        others = [(kind, b"", None) for kind in (wire.STATUS, wire.SERVER_METADATA, wire.READY,
                                                 wire.STATISTICS, wire.INDEX)]
        plans = [infer * 3 + others, infer + [(wire.INFER, *large())] * 2, infer * 20 + self.more]
        clients = [self.connect() for _ in plans]
        good = [self.ask(c, kinds) for c, kinds in zip(clients, plans)]
        for c in clients:
            if c:
                c.close()
        return all(good)

    # --- stages ---

    def ended(self):
        return self.server.process.poll() is not None

    def until(self, pattern, count=1):
        """Waits until the log matches the pattern (True) or the process has ended (False)."""
        end = time.monotonic() + PATIENCE
        while True:
            over = self.ended()
            if len(re.findall(pattern, self.server.log())) >= count:
                return True
            if over:
                return False
            if time.monotonic() > end:
                raise Broken(f"hangs: no {pattern!r}")
            time.sleep(0.002)

    def live(self):
        s = self.server
        if not self.until(r"(?m)^ready \S+\n"):
            return
        s.addresses = re.findall(r"(?m)^ready (\S+)$", s.log())
        partly = "inferd: error: model " in s.log()  # one is not served until a reload
        if not self.talk() and not partly and not self.recovered():
            raise Broken("it does not recover")
        if not self.ended():
            s.signal(signal.SIGHUP)
            self.until(r"(?m)(inferd: reloaded|reload failed)")
        if not self.talk() and not self.recovered():
            raise Broken("it does not recover after the reload")
        self.drain()

    def recovered(self):
        """Since only one thing breaks, all must be well again by the third time."""
        for _ in range(3):
            if self.talk() or self.ended():
                return True
            time.sleep(0.2)
        return False

    def drain(self):
        if self.ended():
            return
        client = self.connect()
        kind, body, _ = (wire.INFER, *small())
        sent = 0
        try:
            for _ in range(10 if client else 0):
                client.start(kind, body)
                sent += 1
        except ConnectionError:
            sent = 0
        self.server.signal(signal.SIGTERM)
        try:
            for _ in range(sent):
                client.receive()
        except (EOFError, ConnectionError):
            pass
        except TimeoutError as why:
            raise Broken("requests are not answered in the drain") from why
        finally:
            if client:
                client.close()

    def end(self):
        """Its exit status, and whether it explains itself."""
        s = self.server
        try:
            code = s.process.wait(PATIENCE)
        except subprocess.TimeoutExpired as why:
            raise Broken("hangs: it does not end") from why
        log = s.log()
        if CRASHES.search(log):
            raise Broken("it crashes or leaks")
        if code not in (0, 1):
            raise Broken(f"exit code {code}")
        if code and not re.search(r"(?m)^(\S+ inferd|inferd|libgomp): .", log):
            raise Broken("it ends without a word")
        return code


def run(*arguments, **options):
    """(exit code or None, what is wrong or None, the log); arguments are those of a Server."""
    life = Life(*arguments, **options)
    try:
        life.live()
        return life.end(), None, life.server.log()
    except Broken as why:
        return None, str(why), life.server.log()
    finally:
        life.server.kill()
