# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: any number of tasks share its one connection."""
from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type, Union

import numpy.typing as npt

from . import messages, wire
from .messages import InferenceError, Model, ModelMetadata, Result, ServerMetadata


class AsyncClient:
    """A connection to a server, made by the first call. `in_flight` is how many requests may be on
    their way at a time; further ones wait for their turn. `timeout` is for a reply, in seconds."""

    def __init__(self, address: str = "127.0.0.1:8003", *, token: str = "", timeout: float = 60.0,
                 in_flight: int = 256, tls: Union[None, bool, ssl.SSLContext] = None) -> None:
        self._target = wire.target_of(address, tls)
        self._token, self._timeout = token, timeout
        self._ids = itertools.count(1)
        self._waiting: Dict[int, asyncio.Future[messages.Reply]] = {}
        self._turns = asyncio.Semaphore(max(in_flight, 1))
        self._connecting = asyncio.Lock()
        self._reader: Optional[asyncio.StreamReader] = None
        self._writer: Optional[asyncio.StreamWriter] = None
        self._task: Optional[asyncio.Task[None]] = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.close()

    async def close(self) -> None:
        self._drop(EOFError("the client was closed"))
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    # --- questions ---

    async def live(self) -> bool:
        return messages.is_true(messages.LIVE, await self._ask(messages.LIVE, [b""]))

    async def ready(self, model: str = "", version: str = "") -> bool:
        """Whether the server takes requests; with a name, whether that model does."""
        kind = messages.MODEL_READY if model else messages.READY
        body = wire.message((1, model), (2, version))
        return messages.is_true(kind, await self._ask(kind, [body]))

    async def server(self) -> ServerMetadata:
        reply = await self._ask(messages.SERVER_METADATA, [b""])
        return messages.server_metadata_of(reply)

    async def models(self) -> List[Model]:
        return messages.models_of(await self._ask(messages.INDEX, [b""]))

    async def metadata(self, model: str, version: str = "") -> ModelMetadata:
        body = wire.message((1, model), (2, version))
        return messages.model_metadata_of(await self._ask(messages.MODEL_METADATA, [body]))

    # --- inferences ---

    async def infer(self, model: str, inputs: Mapping[str, npt.ArrayLike], *, version: str = "",
                    outputs: Optional[Sequence[str]] = None, timeout: float = 0, priority: int = 0,
                    retries: int = 0) -> Result:
        """As Client.infer. The arrays must not change until the call returns."""
        body = messages.infer_pieces(model, inputs, version, outputs)
        for left in range(retries, -1, -1):
            try:
                reply = await self._ask(messages.INFER, body, timeout=timeout, priority=priority)
                return messages.result_of(reply)
            except InferenceError as error:
                if not left or not error.not_run:
                    raise
                await asyncio.sleep(error.retry_after_us / 1e6)
        raise AssertionError

    # --- the connection ---

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer:
                return self._writer
            target, limit = self._target, 1 << 20
            if isinstance(target.address, str):
                opening = asyncio.open_unix_connection(target.address, limit=limit)
            else:
                opening = asyncio.open_connection(*target.address, limit=limit, ssl=target.tls,
                                                  server_hostname=target.name)
            self._reader, self._writer = await asyncio.wait_for(opening, self._timeout)
            self._task = asyncio.get_running_loop().create_task(self._read(self._reader))
            return self._writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size, = wire.HEADER.unpack(await reader.readexactly(wire.HEADER.size))
                self._answer(messages.Reply(await reader.readexactly(size)))
        except (OSError, EOFError, ValueError, InferenceError) as error:
            if reader is self._reader:
                self._drop(error)

    def _answer(self, reply: messages.Reply) -> None:
        if not reply.id:
            reply.body(-1)  # an error of the connection: raises
        waiting = self._waiting.pop(reply.id, None)
        if waiting and not waiting.done():
            waiting.set_result(reply)

    def _drop(self, error: BaseException) -> None:
        """Gives the connection up, and tells all who wait; the next call makes another one."""
        if self._writer:
            self._writer.close()
        self._reader = self._writer = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)

    async def _ask(self, kind: int, body: Sequence[Any], **more: Any) -> messages.Reply:
        async with self._turns:
            writer = await self._connected()
            request_id = next(self._ids)
            pieces = messages.request_pieces(request_id, kind, body, token=self._token, **more)
            future = asyncio.get_running_loop().create_future()
            self._waiting[request_id] = future
            try:
                for piece in pieces:  # without a pause between them: frames do not mix
                    writer.write(piece)
                with contextlib.suppress(OSError):  # the future is told why
                    await writer.drain()
                return await asyncio.wait_for(future, self._timeout)
            finally:
                self._waiting.pop(request_id, None)
