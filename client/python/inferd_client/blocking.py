# SPDX-License-Identifier: Apache-2.0
"""The client that blocks."""
from __future__ import annotations

import itertools
import socket
import ssl
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import (Any, Deque, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Type,
                    Union)

import numpy.typing as npt

from . import messages, wire
from .messages import InferenceError, Model, ModelMetadata, Result, ServerMetadata

IOV_MOST = 512  # buffers in one sendmsg


def _progress(wanted: bool, total: Optional[int]) -> Any:
    """Something with update() and close(): tqdm's bar, or a line on stderr."""
    if not wanted:
        return None
    try:
        from tqdm.auto import tqdm
        return tqdm(total=total, unit="req")
    except ImportError:
        return _Line(total)


class _Line:
    def __init__(self, total: Optional[int]) -> None:
        self.n, self.total, self.shown = 0, total, 0.0

    def update(self, n: int) -> None:
        self.n += n
        if time.monotonic() - self.shown > 0.2:
            self.show("\r")

    def show(self, end: str) -> None:
        self.shown = time.monotonic()
        of = f" of {self.total}" if self.total else ""
        print(f"{self.n}{of} requests", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        self.show("\n")


class Client:
    """A connection to a server. Several threads may share it; they take turns.

    `timeout` is for each wait for the server, in seconds. After an error of the connection
    (OSError, EOFError) the next call connects anew.
    """

    def __init__(self, address: str = "127.0.0.1:8003", *, token: str = "", timeout: float = 60.0,
                 tls: Union[None, bool, ssl.SSLContext] = None) -> None:
        self._target = wire.target_of(address, tls)
        self._token, self._timeout = token, timeout
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._socket: Optional[socket.socket] = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            try:  # says goodbye, and does not wait for an answer
                self._socket.settimeout(0)
                self._socket.unwrap()
            except (OSError, ValueError):
                pass
        if self._socket:
            self._socket.close()
        self._socket = None

    # --- questions ---

    def live(self) -> bool:
        return messages.is_true(messages.LIVE, self._ask(messages.LIVE))

    def ready(self, model: str = "", version: str = "") -> bool:
        """Whether the server takes requests; with a name, whether that model does."""
        kind = messages.MODEL_READY if model else messages.READY
        return messages.is_true(kind, self._ask(kind, wire.message((1, model), (2, version))))

    def server(self) -> ServerMetadata:
        return messages.server_metadata_of(self._ask(messages.SERVER_METADATA))

    def models(self) -> List[Model]:
        return messages.models_of(self._ask(messages.INDEX))

    def metadata(self, model: str, version: str = "") -> ModelMetadata:
        body = wire.message((1, model), (2, version))
        return messages.model_metadata_of(self._ask(messages.MODEL_METADATA, body))

    # --- inferences ---

    def infer(self, model: str, inputs: Mapping[str, npt.ArrayLike], *, version: str = "",
              outputs: Optional[Sequence[str]] = None, timeout: float = 0, priority: int = 0,
              retries: int = 0) -> Result:
        """One inference. `outputs`: those that are wanted; None: all. `timeout`: the server's for
        this request, in seconds. `retries`: how often to send what was not run again."""
        body = messages.infer_pieces(model, inputs, version, outputs)
        for left in range(retries, -1, -1):
            try:
                reply = self._ask_pieces(messages.INFER, body, timeout=timeout, priority=priority)
                return messages.result_of(reply)
            except InferenceError as error:
                if not left or not error.not_run:
                    raise
                if error.name == "UNAVAILABLE":
                    with self._lock:  # behind a balancer a new connection leads elsewhere
                        self.close()
                time.sleep(error.retry_after_us / 1e6)
        raise AssertionError

    def infer_many(self, model: str, inputs: Iterable[Mapping[str, npt.ArrayLike]], *,
                   version: str = "", outputs: Optional[Sequence[str]] = None, in_flight: int = 64,
                   priority: int = 0, progress: bool = False) -> Iterator[Result]:
        """Yields the results in the order of the inputs, with `in_flight` requests on their way, so
        that the server can batch them. The first failure is raised; whoever stops early gives the
        connection up. The client takes no other call until all results are taken."""
        total = len(inputs) if hasattr(inputs, "__len__") else None
        with self._lock:
            bar = _progress(progress, total)
            try:
                yield from self._stream(model, iter(inputs), version, outputs, max(in_flight, 1),
                                        priority, bar)
            except InferenceError:
                self.close()  # other replies are still on their way
                raise
            finally:
                if bar is not None:
                    bar.close()

    def _stream(self, model: str, inputs: Iterator[Mapping[str, npt.ArrayLike]], version: str,
                outputs: Optional[Sequence[str]], in_flight: int, priority: int,
                bar: Any) -> Iterator[Result]:
        waiting: Deque[int] = deque()
        there: Dict[int, messages.Reply] = {}
        more = True
        done = False
        try:
            while more or waiting:
                while more and len(waiting) < in_flight:
                    given = next(inputs, None)
                    if given is None:
                        more = False
                        break
                    body = messages.infer_pieces(model, given, version, outputs)
                    waiting.append(self._send(messages.INFER, body, priority=priority))
                if not waiting:
                    break
                while waiting[0] not in there:
                    reply = self._receive()
                    there[reply.id] = reply
                result = messages.result_of(there.pop(waiting.popleft()))
                if bar is not None:
                    bar.update(1)
                yield result
            done = True
        finally:
            if not done:
                self.close()

    # --- the connection ---

    def _connected(self) -> socket.socket:
        if self._socket:
            return self._socket
        target = self._target
        if isinstance(target.address, str):
            new = socket.socket(socket.AF_UNIX)
            new.settimeout(self._timeout)
            new.connect(target.address)
        else:
            new = socket.create_connection(target.address, self._timeout)
            new.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if target.tls:
            try:
                new = target.tls.wrap_socket(new, server_hostname=target.name)
            except OSError:
                new.close()
                raise
        self._socket = new
        return new

    def _send(self, kind: int, body: Sequence[Any], **more: Any) -> int:
        request_id = next(self._ids)
        pieces = messages.request_pieces(request_id, kind, body, token=self._token, **more)
        try:
            self._put(self._connected(), pieces)
        except OSError:
            self.close()
            raise
        return request_id

    def _put(self, to: socket.socket, pieces: List[Any]) -> None:
        if self._target.tls:
            for piece in pieces:
                to.sendall(piece)
            return
        left = [memoryview(piece) for piece in pieces if len(piece)]
        while left:
            sent = to.sendmsg(left[:IOV_MOST])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def _receive(self) -> messages.Reply:
        try:
            size, = wire.HEADER.unpack(self._take(wire.HEADER.size))
            return messages.Reply(self._take(size))
        except (OSError, EOFError, ValueError):
            self.close()
            raise

    def _take(self, size: int) -> bytearray:
        """The next bytes of the connection. Memory grows with what comes in."""
        data, at, source = bytearray(min(size, 1 << 20)), 0, self._connected()
        while at < size:
            if at == len(data):
                data.extend(bytes(min(size - at, len(data))))
            with memoryview(data) as view:
                n = source.recv_into(view[at:])
            if not n:
                raise EOFError("the server has closed the connection")
            at += n
        return data

    def _ask(self, kind: int, body: bytes = b"") -> messages.Reply:
        return self._ask_pieces(kind, [body])

    def _ask_pieces(self, kind: int, body: Sequence[Any], **more: Any) -> messages.Reply:
        with self._lock:
            request_id = self._send(kind, body, **more)
            reply = self._receive()
            if reply.id != request_id:
                self.close()
                reply.body(kind)  # an error of the connection has no id
                raise ValueError("the server's reply is for another request")
            return reply
