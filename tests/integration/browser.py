# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium, as far as a test of a page needs it: one page, driven over the DevTools
protocol by a WebSocket of our own (RFC 6455)."""
import base64
import contextlib
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

START_SECONDS = 60


def program():
    """Its path; None: it is not here (Debian's package chromium)."""
    return shutil.which("chromium")


class Socket:
    def __init__(self, url):
        host, _, path = url.removeprefix("ws://").partition("/")
        name, _, port = host.partition(":")
        self.socket = socket.create_connection((name, int(port)), timeout=30)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
                             f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                             "Sec-WebSocket-Version: 13\r\n\r\n").encode())
        self.reader = self.socket.makefile("rb")
        if b" 101 " not in self.reader.readline():
            raise AssertionError("no WebSocket")
        while self.reader.readline().strip():
            pass

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        length = (struct.pack("!B", 128 | len(data)) if len(data) < 126 else
                  struct.pack("!BH", 128 | 126, len(data)) if len(data) < 65536 else
                  struct.pack("!BQ", 128 | 127, len(data)))
        masked = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
        self.socket.sendall(b"\x81" + length + mask + masked)

    def receive(self):
        whole = b""
        while True:
            first, second = self.reader.read(2)
            length = second & 127
            if length >= 126:
                size = 2 if length == 126 else 8
                length = int.from_bytes(self.reader.read(size), "big")
            data = self.reader.read(length)
            if first & 15 == 8:
                raise AssertionError("the browser has closed")
            if first & 15 in (0, 1):
                whole += data
            if first & 128 and first & 15 in (0, 1):
                return whole.decode()

    def close(self):
        self.reader.close()
        self.socket.close()


class Browser:
    """`complaints` gathers what the page's console says in anger: errors, violations of the
    content-security policy, exceptions."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="inferd-browser-")
        self.next, self.complaints = 0, []
        self.process = subprocess.Popen(
            [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--disable-extensions",
             f"--user-data-dir={self.folder.name}", "--remote-debugging-port=0", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        try:
            self.socket = Socket(self.page_url())
            for domain in ("Page", "Runtime", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def page_url(self):
        """The first page's address; the file with the port may be there before it is whole."""
        file = pathlib.Path(self.folder.name, "DevToolsActivePort")
        end = time.time() + START_SECONDS
        while time.time() < end:
            with contextlib.suppress(OSError, IndexError, StopIteration, ValueError):
                port = int(file.read_text().split()[0])
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=5) as answer:
                    pages = json.load(answer)
                return next(p["webSocketDebuggerUrl"] for p in pages if p["type"] == "page")
            time.sleep(0.1)
        raise AssertionError("chromium does not start")

    def heed(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])

    def call(self, method, **params):
        self.next += 1
        self.socket.send(json.dumps({"id": self.next, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.receive())
            self.heed(message)
            if message.get("id") == self.next:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]

    def run(self, code):
        """The value of an expression in the page."""
        done = self.call("Runtime.evaluate", expression=code, returnByValue=True,
                         awaitPromise=True)
        if "exceptionDetails" in done:
            raise AssertionError(f"{code}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def until(self, code, seconds=20):
        end = time.time() + seconds
        while time.time() < end:
            with contextlib.suppress(AssertionError):  # the page may be about to change
                if self.run(code):
                    return
            time.sleep(0.1)
        raise AssertionError(f"not in time: {code}")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def window(self, width, height, scheme="light", factor=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=factor, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def javascript(self, on):
        self.call("Emulation.setScriptExecutionDisabled", value=not on)

    def picture(self, path, whole=True):
        done = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(path).write_bytes(base64.b64decode(done["data"]))

    def close(self):
        with contextlib.suppress(Exception):
            self.socket.close()
        self.process.kill()
        self.process.wait()
        for _ in range(20):  # its children may still write
            with contextlib.suppress(OSError):
                self.folder.cleanup()
                return
            time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
