"""The control plane over gRPC: the bytes of its messages, and calls to a dispatcher.

`rpc_session.py` has the sessions, `rpc_server.py` the dispatcher's end.

It uses grpclib, gRPC in pure Python on asyncio, not grpcio: trainers fork, as PyTorch's DataLoader
does, and in a forked child of a process with a busy grpcio stream a new channel hung or aborted in
4 of 27 forks with grpcio's fork support, in 16 of 30 without it, and in 0 of 60 with grpclib
(docs/decisions/001-grpclib-not-grpcio.md).
"""

import asyncio
import logging
from typing import Any

import msgspec
from grpclib.client import UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from stoker.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    StokerError,
    UnavailableError,
    from_record,
)
from stoker.service import messages as m
from stoker.service.control.control_connection import (
    PEER_TIMEOUT,
    ConnectError,
    ControlChannel,
    NotStokerError,
)
from stoker.service.control.control_loop import holding_control_loop, run_on
from stoker.service.control.foreign_server import recognize
from stoker.service.process.clock import CLOCK, Clock
from stoker.wire.addresses import parse_address
from stoker.wire.frames import UNDECODABLE

SESSION = "/stoker.Dispatcher/Session"
CALL = "/stoker.Dispatcher/Call"

logger = logging.getLogger("stoker.rpc")

WARN_SECONDS = 10.0

FIRST_PAUSE = 0.05
"""Seconds between the first two attempts to reach a dispatcher; they double."""

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


def call(
    dispatcher_address: str,
    request: m.Request,
    timeout: float,
    peer_timeout: float = PEER_TIMEOUT,
) -> m.Reply:
    """Send the dispatcher a request and return its reply, from any thread but the loop's.

    Raises:
        UnavailableError: if it cannot be reached, or does not answer within `timeout` seconds.
        FailedPreconditionError: if the server is no dispatcher.
        StokerError: the error with which it answered.
    """
    data = encode(request)
    try:
        with holding_control_loop() as loop:
            return run_on(loop, _ask_once(dispatcher_address, data, timeout, peer_timeout), None)
    except ConnectError as failure:
        raise _call_error(dispatcher_address, failure) from failure


def _call_error(dispatcher_address: str, failure: ConnectError) -> StokerError:
    if isinstance(failure, NotStokerError):
        return FailedPreconditionError(failure.describe(dispatcher_address))
    return UnavailableError(f"the dispatcher at {dispatcher_address} cannot be reached: {failure}")


async def _ask_once(
    dispatcher_address: str, request: bytes, seconds: float, peer_timeout: float
) -> m.Reply:
    try:
        async with asyncio.timeout(seconds):
            return await ask(dispatcher_address, request, peer_timeout)
    except TimeoutError:
        raise ConnectError(f"it did not answer for {seconds:g} s") from None


async def ask(dispatcher_address: str, request: bytes, peer_timeout: float) -> m.Reply:
    """Send the bytes of a request on a new connection; return the reply.

    Raises:
        ConnectError: if the dispatcher cannot be reached, or stops.
        StokerError: the error with which it answered.
    """
    data = await send_call(dispatcher_address, request, peer_timeout)
    try:
        reply: m.Reply = decode_reply(data)
    except UNDECODABLE as error:
        raise NotStokerError(f"not a reply of this version: {error}") from error
    if isinstance(reply, m.Failed):
        answer = from_record(reply.error)
        # It stops: the next one may answer.
        raise ConnectError(str(answer)) if isinstance(answer, UnavailableError) else answer
    return reply


def call_patiently(
    dispatcher_address: str,
    request: m.Request,
    timeout: float,
    peer_timeout: float = PEER_TIMEOUT,
    clock: Clock = CLOCK,
) -> m.Reply:
    """Call as `call` does, but wait for a dispatcher to start; warn every 10 s.

    Raises:
        UnavailableError: if no dispatcher answers within `timeout` seconds.
        FailedPreconditionError: if the server is no dispatcher, in 3 attempts.
        StokerError: the error with which the dispatcher answered.
    """
    data = encode(request)
    with holding_control_loop(clock) as loop:
        asking = _ask_patiently(dispatcher_address, data, timeout, peer_timeout)
        return run_on(loop, asking, None)


async def _ask_patiently(
    dispatcher_address: str, request: bytes, seconds: float, peer_timeout: float
) -> m.Reply:
    loop = asyncio.get_running_loop()
    began = warned = loop.time()
    pause = FIRST_PAUSE
    foreign_attempts = 0
    while True:
        try:
            return await _ask_once(dispatcher_address, request, seconds, peer_timeout)
        except ConnectError as failure:
            reason = failure
        now = loop.time()
        foreign_attempts += isinstance(reason, NotStokerError)
        if foreign_attempts >= FOREIGN_ATTEMPTS:
            raise _call_error(dispatcher_address, reason)
        if now - began + pause > seconds:
            raise UnavailableError(
                f"no dispatcher answered at {dispatcher_address} within {seconds:g} s ({reason}); "
                "start it with `stoker dispatcher`, or correct the address"
            )
        if now - warned >= WARN_SECONDS:
            warned = now
            logger.warning("waiting for the dispatcher at %s (%s)", dispatcher_address, reason)
        await asyncio.sleep(pause)
        pause = min(2 * pause, 1.0)


async def send_call(dispatcher_address: str, data: bytes, peer_timeout: float) -> bytes:
    """Send the bytes of a request on a new connection; return those of the reply.

    Raises:
        ConnectError: if the dispatcher cannot be reached.
    """
    host, port = parse_address(dispatcher_address)
    channel = ControlChannel(host, port, peer_timeout)
    try:
        async with channel:
            method: Any = UnaryUnaryMethod(channel, CALL, None, None)  # type: ignore[arg-type]
            reply: bytes = await method(data)
            return reply
    except Exception as error:  # grpclib raises anything on a broken connection
        raise await recognize(host, port, channel.explain(error)) from error
