"""Sessions with a dispatcher, which reconnect."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from grpclib.client import StreamStreamMethod

from stoker.errors import FailedPreconditionError, StokerError
from stoker.service import messages as m
from stoker.service.control.control_connection import (
    PEER_TIMEOUT,
    ConnectError,
    ControlChannel,
    NotStokerError,
)
from stoker.service.control.control_loop import control_loop, run_on, until_first_ends
from stoker.service.control.foreign_server import recognize
from stoker.service.control.rpc import (
    BROKEN,
    FIRST_PAUSE,
    FOREIGN_ATTEMPTS,
    SESSION,
    ask,
    decode_from_dispatcher,
    encode,
)
from stoker.service.process.clock import CLOCK, Clock
from stoker.wire.addresses import format_address, parse_address
from stoker.wire.frames import UNDECODABLE

logger = logging.getLogger("stoker.rpc")

TICK_SECONDS = 0.05

FAREWELL_SECONDS = 2.0
"""Longest time in which the last messages of a session are sent, also if it is broken."""

LONGEST_PAUSE = 2.0
LONGEST_REFUSED_PAUSE = 10.0
"""Longest seconds between two attempts of a session that cannot be opened, or is refused."""


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
        clock: times the ticks, pauses and timeouts.

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
        clock: Clock = CLOCK,
    ) -> None:
        self.failure = ""
        self._host, self._port = parse_address(dispatcher_address)
        self.tick_seconds = TICK_SECONDS
        self._opened, self._received, self._lost, self._tick = opened, received, lost, tick
        self._failed = failed
        self._peer_timeout = peer_timeout
        self._control = control_loop(clock)
        self._loop = self._control.acquire()
        self._send_queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._welcomed = self._refused = self._answered = False
        self._foreign_attempts = 0
        self._raised: Exception | None = None
        self._is_open = self._closed = self._said_farewell = False
        self._task = asyncio.run_coroutine_threadsafe(self._run(), self._loop)

    def send(self, message: m.ToDispatcher) -> None:
        """Send on the open stream, from any thread; without one the message is dropped.

        Raises:
            InvalidArgumentError: if the message cannot be encoded.
        """
        if not self._closed:
            self._loop.call_soon_threadsafe(self._send_queue.put_nowait, encode(message))

    def close(self, timeout: float = FAREWELL_SECONDS, farewell: m.Request | None = None) -> None:
        """Send the queued messages and end the stream for good. Not from the loop's thread.

        Args:
            timeout: the longest wait, in seconds.
            farewell: a call that is made, until it is answered, unless `ClientClosed` is received:
                messages are lost with a stream that breaks.
        """
        if self._closed:
            return
        self._closed = True
        run_on(self._loop, self._finish(timeout, farewell), None)
        self._control.release()

    async def _finish(self, seconds: float, farewell: m.Request | None) -> None:
        """End the stream after the queued messages; without a stream, end immediately."""
        self._send_queue.put_nowait(None)
        if not self._is_open:
            self._task.cancel()
        # A task of its own, and no `asyncio.timeout` around the call: grpclib cancels the task of a
        # call whose connection breaks, and a timeout would take this for the caller's cancellation.
        saying = asyncio.ensure_future(self._say_farewell(farewell))
        await asyncio.wait({saying}, timeout=seconds)
        saying.cancel()
        self._task.cancel()
        await asyncio.gather(saying, return_exceptions=True)  # the session ends after any error

    async def _say_farewell(self, farewell: m.Request | None) -> None:
        await asyncio.wait({asyncio.wrap_future(self._task)})
        if farewell is not None and not self._said_farewell:
            await self._insist(encode(farewell))

    async def _insist(self, data: bytes) -> None:
        """Make a call until it is answered, and not by a dispatcher that stops."""
        pause = FIRST_PAUSE
        with suppress(StokerError):  # an error is an answer too
            while True:
                try:
                    await ask(self._address, data, self._peer_timeout)
                except ConnectError as error:
                    logger.debug("no farewell to %s yet: %s", self._address, error)
                else:
                    return
                await asyncio.sleep(pause)
                pause *= 2

    async def _run(self) -> None:
        try:
            await until_first_ends(self._keep_ticking(), self._keep_open())
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
        """Call a callback of the owner; raise what it raises if the session must end then."""
        try:
            callback(*arguments)
        except Exception as error:
            logger.exception("a callback of the session with %s raised", self._address)
            if self._failed is not None:
                self._raised = error
                raise

    async def _keep_ticking(self) -> None:
        while True:
            await asyncio.sleep(self.tick_seconds)
            self._notify(self._tick)

    async def _keep_open(self) -> None:
        pause = FIRST_PAUSE
        while not self._closed:
            self._welcomed = self._refused = False
            failure = await self._open()
            self._explain(await recognize(self._host, self._port, failure))
            if self._closed:
                return
            self._notify(self._lost)
            # Not as soon as the stream is open: a dispatcher may refuse each of them.
            if self._welcomed:
                pause = FIRST_PAUSE
            # Many workers that lose one dispatcher do not come back at one moment. The global
            # generator is the user's: a retry must not change what a trainer draws.
            await self._pause(pause * random.SystemRandom().uniform(0.5, 1.0))
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
                    self._is_open = True
                    self._notify(self._opened)
                    await self._converse(stream)
        except Exception as error:
            # grpclib may have replaced the exception of a callback by another one.
            if self._raised is not None:
                raise
            if not isinstance(error, BROKEN):
                logger.debug("a session with %s broke", self._address, exc_info=True)
            return channel.explain(error)
        finally:
            self._is_open = False
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
        self.failure = failure.describe(self._address)
        self._foreign_attempts += 1
        # A proxy may answer for a dispatcher that was there before.
        hopeless = self._foreign_attempts >= FOREIGN_ATTEMPTS and not self._answered
        if hopeless and self._failed is not None:
            raise FailedPreconditionError(self.failure)

    @property
    def _address(self) -> str:
        return format_address(self._host, self._port)

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
            await asyncio.Event().wait()  # the dispatcher ends it too, when it has received all

        async def receive_all() -> None:
            while (data := await stream.recv_message()) is not None:
                self._receive(data)

        await until_first_ends(send_all(), receive_all())

    def _receive(self, data: bytes) -> None:
        try:
            message = decode_from_dispatcher(data)
        except UNDECODABLE as error:
            raise NotStokerError(f"not a message of this version: {error}") from error
        self._answered = True
        self._said_farewell = isinstance(message, m.ClientClosed)
        if isinstance(message, m.Refused):
            self._refused = True
        else:
            self._welcomed = True
        self._notify(self._received, message)
