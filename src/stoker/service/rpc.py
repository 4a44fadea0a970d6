"""The dispatcher's peers: sessions and calls over gRPC, with msgspec messages.

It uses grpclib, gRPC in pure Python on asyncio, not grpcio: trainers fork, as PyTorch's DataLoader
does, and in a forked child of a process with a busy grpcio stream a new channel hung or aborted in
4 of 27 forks with grpcio's fork support, in 16 of 30 without it, and in 0 of 60 with grpclib
(measured as described in docs/architecture.md).
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec
from grpclib.client import StreamStreamMethod, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from stoker.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    StokerError,
    UnavailableError,
    from_record,
)
from stoker.service import messages as m
from stoker.service.config import join_address, split_address
from stoker.service.control_connection import (
    PEER_TIMEOUT,
    ConnectError,
    ControlChannel,
    NotStokerError,
)
from stoker.service.control_loop import control_loop, run_on

SESSION = "/stoker.Dispatcher/Session"
CALL = "/stoker.Dispatcher/Call"

logger = logging.getLogger("stoker.rpc")

TICK_SECONDS = 0.05
WARN_SECONDS = 10.0

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
LONGEST_REFUSED_PAUSE = 10.0
"""Seconds between two attempts of a session that cannot be opened, or is refused."""

FOREIGN_ATTEMPTS = 3
"""Attempts after which a server that speaks another protocol is an error. Others may lie between:
such a server may close a connection before its answer is read."""

BROKEN = (OSError, GRPCError, ProtocolError, StreamTerminatedError, asyncio.TimeoutError)
"""Exceptions of a stream or call whose connection is broken; grpclib may raise others too."""


_ENCODE = msgspec.msgpack.Encoder().encode
decode_to_dispatcher = msgspec.msgpack.Decoder(m.ToDispatcher).decode
decode_from_dispatcher = msgspec.msgpack.Decoder(m.FromDispatcher).decode
decode_request = msgspec.msgpack.Decoder(m.Request).decode
decode_reply = msgspec.msgpack.Decoder(m.Reply).decode


def encode(message: Any) -> bytes:
    """Return the bytes of a message.

    Raises:
        InvalidArgumentError: if it contains a value that cannot be encoded, such as text with a
            lone surrogate or an int of more than 64 bits.
    """
    try:
        return _ENCODE(message)
    except (ValueError, OverflowError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidArgumentError(
            f"a {type(message).__name__} message cannot be encoded: {error}"
        ) from error


class Session:
    """A stream to the dispatcher that reconnects whenever it breaks, until closed.

    Callbacks are called on the loop. Each exception of one is logged. It ends the session for good
    if there is a `failed`, which is then called; otherwise the session goes on.

    Args:
        dispatcher_address: "host:port".
        opened: called when the stream is open.
        received: called with each message.
        lost: called when the stream breaks or cannot be opened.
        tick: called every `tick_seconds`, connected or not.
        failed: called at most once, after the last other callback, with the exception of a callback
            or with a `FailedPreconditionError`: a server that has never answered speaks another
            protocol. Without it, neither ends the session.
        peer_timeout: seconds without a byte from the dispatcher after which the stream is broken.

    Attributes:
        failure: the reason that the last stream broke or could not be opened, or "".
        tick_seconds: interval of `tick`; may be changed from the loop.
    """

    def __init__(
        self,
        dispatcher_address: str,
        opened: Callable[[], None],
        received: Callable[[m.FromDispatcher], None],
        lost: Callable[[], None],
        tick: Callable[[], None],
        failed: Callable[[Exception], None] | None = None,
        peer_timeout: float = PEER_TIMEOUT,
    ) -> None:
        self.failure = ""
        self._host, self._port = split_address(dispatcher_address)
        self.tick_seconds = TICK_SECONDS
        self._opened, self._received, self._lost, self._tick = opened, received, lost, tick
        self._failed = failed
        self._peer_timeout = peer_timeout
        self._control = control_loop()
        self._loop = self._control.acquire()
        self._send_queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._welcomed = self._refused = self._answered = False
        self._foreign_attempts = 0
        self._raised: Exception | None = None
        self._closed = False
        self._task = asyncio.run_coroutine_threadsafe(self._run(), self._loop)

    def send(self, message: m.ToDispatcher) -> None:
        """Send on the open stream, from any thread; without one the message is dropped.

        Raises:
            InvalidArgumentError: if the message cannot be encoded.
        """
        if not self._closed:
            self._loop.call_soon_threadsafe(self._send_queue.put_nowait, encode(message))

    def close(self, timeout: float = 2.0) -> None:
        """Send the queued messages and end the stream for good. Not from the loop's thread."""
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._send_queue.put_nowait, None)
        try:
            self._task.result(timeout)
        except Exception:  # noqa: BLE001 - close() ends the session after any error
            self._task.cancel()
        self._control.release()

    async def _run(self) -> None:
        try:
            await _until_first_ends(self._keep_ticking(), self._keep_open())
        except Exception as error:  # noqa: BLE001 - logged by `_end`, or before
            self._end(self._raised or error)

    def _end(self, error: Exception) -> None:
        """Call `failed`: a callback raised `error`, or the server is not a dispatcher."""
        if error is not self._raised and not isinstance(error, StokerError):
            logger.error("the session with %s ended", self._address, exc_info=error)
        try:
            if self._failed is not None:
                self._failed(error)
        except Exception:
            logger.exception("`failed` of the session with %s raised", self._address)

    def _notify(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call a callback of the owner.

        Raises:
            _CallbackError: if it raised, and the owner wants the session to end then.
        """
        try:
            callback(*arguments)
        except Exception as error:
            logger.exception("a callback of the session with %s raised", self._address)
            if self._failed is not None:
                self._raised = error
                raise _CallbackError from error

    async def _keep_ticking(self) -> None:
        while True:
            await asyncio.sleep(self.tick_seconds)
            self._notify(self._tick)

    async def _keep_open(self) -> None:
        pause = FIRST_PAUSE
        while not self._closed:
            self._welcomed = self._refused = False
            self._explain(await self._open())
            if self._closed:
                return
            self._notify(self._lost)
            # Not as soon as the stream is open: a dispatcher may refuse each of them.
            if self._welcomed:
                pause = FIRST_PAUSE
            # Many workers that lose one dispatcher do not come back at one moment.
            await self._pause(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_REFUSED_PAUSE if self._refused else LONGEST_PAUSE)

    async def _open(self) -> ConnectError:
        """Open a stream and use it until it ends; return the reason of its end."""
        channel = ControlChannel(self._host, self._port, self._peer_timeout)
        try:
            async with channel:
                method: Any = StreamStreamMethod(channel, SESSION, None, None)  # type: ignore[arg-type]
                async with method.open() as stream:
                    await stream.send_request()
                    self._send_queue = asyncio.Queue()
                    self._notify(self._opened)
                    await self._converse(stream)
        except Exception as error:
            if self._raised is not None:
                raise
            if not isinstance(error, BROKEN):
                logger.debug("a session with %s broke", self._address, exc_info=True)
            return channel.explain(error)
        return channel.explain(None)

    def _explain(self, failure: ConnectError) -> None:
        """Store the reason of the end of a stream.

        Raises:
            FailedPreconditionError: if the server has spoken another protocol 3 times, and stoker's
                never.
        """
        if not isinstance(failure, NotStokerError):
            self.failure = str(failure)
            return
        self.failure = not_stoker(self._address, failure)
        self._foreign_attempts += 1
        # A proxy may answer for a dispatcher that was there before.
        hopeless = self._foreign_attempts >= FOREIGN_ATTEMPTS and not self._answered
        if hopeless and self._failed is not None:
            raise FailedPreconditionError(self.failure)

    @property
    def _address(self) -> str:
        return join_address(self._host, self._port)

    async def _pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until closed."""
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(seconds):
                while await self._send_queue.get() is not None:
                    continue

    async def _converse(self, stream: Any) -> None:
        async def send_all() -> None:
            while (data := await self._send_queue.get()) is not None:
                await stream.send_message(data)
            await stream.end()

        async def receive_all() -> None:
            while (data := await stream.recv_message()) is not None:
                self._receive(data)

        await _until_first_ends(send_all(), receive_all())

    def _receive(self, data: bytes) -> None:
        try:
            message = decode_from_dispatcher(data)
        except msgspec.MsgspecError as error:
            raise NotStokerError(f"not a message of this version: {error}") from error
        self._answered = True
        if isinstance(message, m.Refused):
            self._refused = True
        else:
            self._welcomed = True
        self._notify(self._received, message)


class _CallbackError(Exception):
    """A callback of a session raised `Session._raised`."""


async def _until_first_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one ends, cancel the others, and raise the exception of the first."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def not_stoker(dispatcher_address: str, failure: NotStokerError) -> str:
    """Return the message of an error about a server that speaks another protocol."""
    return f"the server at {dispatcher_address} does not speak stoker's protocol: {failure}"


def call(
    dispatcher_address: str,
    request: m.Request,
    timeout: float,
    peer_timeout: float = PEER_TIMEOUT,
) -> m.Reply:
    """Send the dispatcher a request and return its reply, from any thread but the loop's.

    Raises:
        UnavailableError: if it cannot be reached, or does not answer within `timeout` seconds.
        FailedPreconditionError: if the server speaks another protocol.
        StokerError: the error with which it answered.
    """
    try:
        return _call_once(dispatcher_address, request, timeout, peer_timeout)
    except ConnectError as failure:
        raise _call_error(dispatcher_address, failure) from failure


def _call_error(dispatcher_address: str, failure: ConnectError) -> StokerError:
    if isinstance(failure, NotStokerError):
        return FailedPreconditionError(not_stoker(dispatcher_address, failure))
    return UnavailableError(f"the dispatcher at {dispatcher_address} cannot be reached: {failure}")


def _call_once(
    dispatcher_address: str, request: m.Request, timeout: float, peer_timeout: float
) -> m.Reply:
    control = control_loop()
    loop = control.acquire()
    try:
        data = run_on(loop, _call(dispatcher_address, encode(request), peer_timeout), timeout)
    except TimeoutError:
        raise ConnectError(f"it did not answer for {timeout:g} s") from None
    finally:
        control.release()
    try:
        reply: m.Reply = decode_reply(data)
    except msgspec.MsgspecError as error:
        raise NotStokerError(f"not a reply of this version: {error}") from error
    if isinstance(reply, m.Failed):
        raise from_record(reply.error)
    return reply


def call_patiently(
    dispatcher_address: str,
    request: m.Request,
    timeout: float,
    peer_timeout: float = PEER_TIMEOUT,
) -> m.Reply:
    """Call as `call` does, but wait for a dispatcher to start; warn every 10 s.

    Raises:
        UnavailableError: if no dispatcher answers within `timeout` seconds.
        FailedPreconditionError: if the server speaks another protocol, in 3 attempts.
        StokerError: the error with which the dispatcher answered.
    """
    began = warned = time.monotonic()
    pause = FIRST_PAUSE
    foreign_attempts = 0
    while True:
        try:
            return _call_once(dispatcher_address, request, timeout, peer_timeout)
        except ConnectError as failure:
            reason = failure
        now = time.monotonic()
        foreign_attempts += isinstance(reason, NotStokerError)
        if foreign_attempts >= FOREIGN_ATTEMPTS:
            raise _call_error(dispatcher_address, reason)
        if now - began + pause > timeout:
            raise UnavailableError(
                f"no dispatcher answered at {dispatcher_address} within {timeout:g} s ({reason}); "
                "start it with `stoker dispatcher`, or correct the address"
            )
        if now - warned >= WARN_SECONDS:
            warned = now
            logger.warning("waiting for the dispatcher at %s (%s)", dispatcher_address, reason)
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


async def _call(dispatcher_address: str, data: bytes, peer_timeout: float) -> bytes:
    host, port = split_address(dispatcher_address)
    channel = ControlChannel(host, port, peer_timeout)
    try:
        async with channel:
            method: Any = UnaryUnaryMethod(channel, CALL, None, None)  # type: ignore[arg-type]
            reply: bytes = await method(data)
            return reply
    except Exception as error:  # grpclib raises anything on a broken connection
        raise channel.explain(error) from error
