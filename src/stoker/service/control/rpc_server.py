"""The dispatcher's end of the control plane: sessions and calls over gRPC."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from grpclib.protocol import Stream

from stoker.errors import StokerError, UnavailableError, to_record
from stoker.service import messages as m
from stoker.service.control.control_connection import PEER_TIMEOUT, listen
from stoker.service.control.control_server import ControlServer
from stoker.service.control.pending_connections import PendingConnections
from stoker.service.control.receiving import (
    HELLO_SECONDS,
    MAX_HELLO_BYTES,
    MAX_MESSAGE_BYTES,
    STALL_SECONDS,
    Receiver,
    send,
)
from stoker.service.control.rpc import BROKEN, CALL, SESSION, encode
from stoker.wire.addresses import format_address

logger = logging.getLogger("stoker.rpc")

FAREWELL_SECONDS = 2.0


class Handlers(Protocol):
    """Callbacks of a server, called on the loop."""

    def opened(self, peer: int, send: Callable[[bytes], None], close: Callable[[], None]) -> None:
        """Handle a new session; `send` and `close` may be called from the loop only."""

    def received(self, peer: int, data: bytes) -> None:
        """Handle a message of a session."""

    def closed(self, peer: int) -> None:
        """Handle the end of a session."""

    async def answer(self, data: bytes) -> bytes:
        """Return the reply to a call."""

    def refused(self, peer: str, reason: object, *, foreign: bool = False) -> None:
        """Handle a connection or call that ends because of what the peer at an address sent.

        A `foreign` peer has sent no message of stoker's.
        """


class RpcServer:
    """A gRPC server that passes sessions and calls to `handlers`. Use on the loop only.

    Args:
        handlers: called with each session, message and call; they must not raise.
        peer_timeout: seconds without a byte of a peer after which its session ends.
    """

    def __init__(self, handlers: Handlers, peer_timeout: float = PEER_TIMEOUT) -> None:
        self._handlers = handlers
        self._last_peer = 0
        self._sessions: dict[asyncio.Task[Any], asyncio.Queue[bytes | None]] = {}
        self._receiver = Receiver()
        self._pending = PendingConnections()
        methods = {SESSION: self._session, CALL: self._call}
        self._server = ControlServer(methods, peer_timeout, handlers.refused, self._pending)
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Bind the address and serve.

        Raises:
            UnavailableError: if the address cannot be bound.
        """
        try:
            listener = listen(host, port)
            await self._server.start(listener)
        except OSError as error:
            address = format_address(host, port)
            raise UnavailableError(
                f"cannot serve on {address}: {error.strerror or error}"
            ) from error
        self.port = listener.getsockname()[1]

    async def stop(self) -> None:
        """End all sessions and free the port.

        Sessions end regularly first, after what was sent on them.
        """
        for send_queue in self._sessions.values():
            send_queue.put_nowait(None)
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=FAREWELL_SECONDS)
        await self._server.stop()
        self._pending.stop()

    async def _session(self, stream: Stream, address: str) -> None:
        self._last_peer += 1
        peer = self._last_peer
        send_queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        this = asyncio.current_task()
        assert this is not None
        self._sessions[this] = send_queue
        sender = asyncio.ensure_future(_drain(send_queue, stream))
        self._handlers.opened(peer, send_queue.put_nowait, lambda: send_queue.put_nowait(None))
        receiver = asyncio.ensure_future(self._receive_all(peer, stream, address))
        try:
            await asyncio.wait({sender, receiver}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._sessions[this]
            self._handlers.closed(peer)
            for task in (sender, receiver):
                task.cancel()
            for ended in await asyncio.gather(sender, receiver, return_exceptions=True):
                if isinstance(ended, Exception):
                    logger.warning("session %d broke: %r", peer, ended)

    async def _receive_all(self, peer: int, stream: Stream, address: str) -> None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                data = await self._receiver.receive(stream, MAX_HELLO_BYTES)
            with self._pending.session(stream.connection):
                while data is not None:
                    self._handlers.received(peer, data)
                    data = await self._receiver.receive(stream, MAX_MESSAGE_BYTES)
        except TimeoutError:
            self._handlers.refused(address, "it sent no whole message in time", foreign=True)
        except StokerError as error:
            self._handlers.refused(address, error)
        except BROKEN:
            pass

    async def _call(self, stream: Stream, address: str) -> None:
        with self._pending.call(stream.connection):
            try:
                data = await self._receiver.receive(stream, MAX_MESSAGE_BYTES, STALL_SECONDS)
            except StokerError as error:
                self._handlers.refused(address, error)
                await send(stream, encode(m.Failed(to_record(error))))
                return
            if data is not None:
                await send(stream, await self._handlers.answer(data))


async def _drain(send_queue: "asyncio.Queue[bytes | None]", stream: Stream) -> None:
    with suppress(*BROKEN):
        while (data := await send_queue.get()) is not None:
            await send(stream, data)
