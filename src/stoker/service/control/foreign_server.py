"""Recognition of servers that are no dispatcher: ports of workers, and other programs.

A server that closes a connection often loses its answer, as a worker does, which expects a data
connection. So the server is asked again, as a client asks a worker (`frames.WorkerProbe`).
"""

import asyncio
from typing import Any

from grpclib.client import Channel, StreamStreamMethod

from stoker.errors import WireError
from stoker.service.control.control_connection import (
    BytesCodec,
    ConnectError,
    NoAnswerError,
    NotStokerError,
    OtherServiceError,
    begins_http2,
)
from stoker.wire.addresses import ipv4_of_localhost
from stoker.wire.frames import (
    PREFIX,
    Message,
    WorkerProbe,
    WorkerProbeReply,
    decode,
    encode,
    parse_prefix,
)
from stoker.wire.transports import GRPC_PATH

PROBE_SECONDS = 2.0
"""Time in which a server must answer to be recognized."""

_PROBE = b"".join(encode(WorkerProbe()))


class _PlainCodec(BytesCodec):
    """The codec of a worker's calls, whose content type names no encoding."""

    __content_subtype__ = "proto"


class WorkerPortError(NotStokerError):
    """A worker serves elements at the address.

    Args:
        worker: the worker's address.
        dispatcher: the address of its dispatcher, as the worker knows it.

    Attributes:
        dispatcher: the address of its dispatcher.
    """

    def __init__(self, worker: str, dispatcher: str) -> None:
        super().__init__(f"the worker {worker} serves elements there, not a dispatcher")
        self.dispatcher = dispatcher

    def describe(self, address: str) -> str:
        remedy = f"give the address of its dispatcher, which it reaches at {self.dispatcher}"
        return f"{address} is the port of a worker: {self}; {remedy}"


async def recognize(host: str, port: int, failure: ConnectError) -> ConnectError:
    """Return the error that says what server ended a control connection by `failure`, if known."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            if isinstance(failure, NoAnswerError):
                return await _ask_by_tcp(host, port) or failure
            if isinstance(failure, OtherServiceError):
                return await _ask_by_grpc(host, port) or failure
    except Exception:  # noqa: BLE001 - it is no worker, and may answer anything
        return failure
    return failure


async def _ask_by_tcp(host: str, port: int) -> NotStokerError | None:
    reader, writer = await asyncio.open_connection(ipv4_of_localhost(host), port)
    try:
        # The end of a line, for servers of text protocols; a worker has answered before.
        writer.write(_PROBE + b"\r\n")
        prefix = await _read(reader, PREFIX.size)
        # A dispatcher that has just started, behind a proxy or at the port of the one before.
        if not prefix or begins_http2(prefix):
            return None
        try:
            header_size, _ = parse_prefix(prefix.ljust(PREFIX.size), 0)
            return _of_worker(decode(await _read(reader, header_size)))
        except WireError:
            return NotStokerError(f"it answered {prefix!r}")
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, size: int) -> bytes:
    """Return `size` bytes, or fewer if the connection ends before."""
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        return error.partial


async def _ask_by_grpc(host: str, port: int) -> NotStokerError | None:
    async with Channel(ipv4_of_localhost(host), port, codec=_PlainCodec()) as channel:
        method: Any = StreamStreamMethod(channel, GRPC_PATH, None, None)  # type: ignore[arg-type]
        async with method.open() as stream:
            await stream.send_message(_PROBE)
            await stream.recv_message()  # the empty message that accepts the connection
            answer = await stream.recv_message()
            await stream.cancel()
            return _of_worker(decode(answer[PREFIX.size :]))


def _of_worker(answer: Message) -> WorkerPortError | None:
    if not isinstance(answer, WorkerProbeReply):
        return None
    return WorkerPortError(answer.worker, answer.dispatcher)
