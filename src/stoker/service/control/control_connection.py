"""HTTP/2 connections of the control plane: grpclib's, which also notice that a peer is silent.

grpclib's own keep-alive waits up to 300 s, counts only answers to its pings, and lets a connection
with unsent bytes linger; no public option changes that. Here any byte from the peer counts; without
one for half of the peer timeout the connection sends pings, and without one for all of it the
connection is aborted. With bytes that the peer does not acknowledge TCP itself does the same, where
the system can (TCP_USER_TIMEOUT).
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
from typing import Any

from grpclib.client import Channel, Handler
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError
from grpclib.protocol import AbstractHandler, H2Protocol
from h2.config import H2Configuration

from stoker.wire.addresses import ipv4_of_localhost, unresolvable

logger = logging.getLogger("stoker.rpc")

# It logs every broken session at INFO; stoker logs them with more detail.
logging.getLogger("grpclib").setLevel(logging.WARNING)

# It logs every header of every message at DEBUG: thousands of lines, unless the user asks for them.
if logging.getLogger("hpack").level == logging.NOTSET:
    logging.getLogger("hpack").setLevel(logging.WARNING)

PEER_TIMEOUT = 10.0
"""Seconds in which a connection notices that its peer cannot be reached, by default."""

TICKS = 4
"""Checks of a connection in its peer timeout. Time in which this process was stopped, or its GIL
held, is one tick at most, and what arrived meanwhile is received before the next."""

HAPPY_EYEBALLS_SECONDS = 0.25
"""Time after which the next address of a host is tried too: one family may not be routed."""

_PING = b"\0\0\x08\x06\0\0\0\0\0" + bytes(8)
"""A whole frame of HTTP/2, which may be written between those of grpclib, which has no ping."""

_SETTINGS = b"\x04"
"""Type of the frame with which every HTTP/2 server begins, in its byte 3."""


class ConnectError(ConnectionError):
    """A connection to a dispatcher was not opened, or has ended; the message is for the user."""


class NoAnswerError(ConnectError):
    """The server closed the connection before it sent anything."""


class NotStokerError(ConnectError):
    """The server at the address speaks another protocol, so another attempt would fail too."""

    def describe(self, address: str) -> str:
        """Return the message of an error about the server at an address."""
        return f"the server at {address} does not speak stoker's protocol: {self}"


class OtherServiceError(NotStokerError):
    """The server speaks HTTP/2, but is no dispatcher."""


def begins_http2(data: bytes) -> bool:
    """Return whether the first bytes from a server are those of HTTP/2."""
    return data[3:4] == _SETTINGS


class BytesCodec(CodecBase):
    """A codec that passes bytes through: messages are encoded in `rpc`."""

    __content_subtype__ = "msgpack"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


class WatchedProtocol(H2Protocol):
    """An HTTP/2 connection that is aborted when its peer is silent for too long.

    Args:
        handler: receives the requests of the peer.
        peer_timeout: seconds.
        client: this end opened the connection.

    Attributes:
        failure: the reason that this end aborted the connection, if it did.
        answered: the peer has sent something.
    """

    def __init__(self, handler: AbstractHandler, peer_timeout: float, client: bool) -> None:
        # As grpclib configures h2: grpclib, or this class, checks the headers of peers.
        h2_config = H2Configuration(
            client_side=client,
            header_encoding="ascii",
            validate_inbound_headers=False,
            validate_outbound_headers=False,
            normalize_inbound_headers=False,
            normalize_outbound_headers=False,
        )
        # grpclib's own keep-alive is off: that is the default of clients.
        super().__init__(handler, Configuration().__for_client__(), h2_config)
        self.failure: ConnectError | None = None
        self.answered = False
        self._peer_timeout = peer_timeout
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        if option is not None:
            milliseconds = round(self._peer_timeout * 1000)
            with contextlib.suppress(OSError):  # the connection is reset already
                transport.get_extra_info("socket").setsockopt(
                    socket.IPPROTO_TCP, option, milliseconds
                )
        self._tick_later()

    def data_received(self, data: bytes) -> None:
        self._silent_ticks = 0
        if self._client and not self.answered and len(data) > 3 and not begins_http2(data):
            self._abort(NotStokerError(f"it answered {data[:20]!r}"))
            return
        self.answered = True
        try:
            super().data_received(data)
        except Exception as error:  # grpclib fails on connections it has closed
            logger.debug("a control connection broke", exc_info=True)
            self._abort(ConnectError(f"the connection broke: {error!r}"))

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _tick_later(self) -> None:
        self._timer = self._loop.call_later(self._peer_timeout / TICKS, self._tick)

    def _tick(self) -> None:
        self._silent_ticks += 1
        if self._silent_ticks > TICKS:
            self._abort(ConnectError(f"nothing was received for {self._peer_timeout:g} s"))
            return
        if self._silent_ticks > TICKS // 2:
            self._transport.write(_PING)
        self._tick_later()

    def _abort(self, failure: ConnectError) -> None:
        self.failure = self.failure or failure
        # Not `close`, which waits until the peer has received all buffered bytes.
        self._transport.abort()


class ControlChannel(Channel):
    """A connection to a dispatcher.

    Args:
        host: its host.
        port: its port.
        peer_timeout: seconds to wait for the connection, and for bytes of a silent dispatcher.
    """

    def __init__(self, host: str, port: int, peer_timeout: float) -> None:
        self._address = ipv4_of_localhost(host), port
        super().__init__(*self._address, codec=BytesCodec())
        self._peer_timeout = peer_timeout
        self._watched: WatchedProtocol | None = None

    async def __connect__(self) -> WatchedProtocol:
        """Return the connection: the hook by which grpclib's requests get it."""
        if self._watched is None:
            loop = asyncio.get_running_loop()
            self._watched = WatchedProtocol(Handler(), self._peer_timeout, client=True)
            watched, host = self._watched, self._address[0]
            delay = _happy_eyeballs_delay(host)
            try:
                async with asyncio.timeout(self._peer_timeout):
                    await loop.create_connection(
                        lambda: watched, *self._address, happy_eyeballs_delay=delay
                    )
            except TimeoutError:
                raise ConnectError(
                    f"the host did not answer for {self._peer_timeout:g} s"
                ) from None
            except (socket.gaierror, UnicodeError) as error:
                raise ConnectError(unresolvable(host, error)) from error
        return self._watched

    def close(self) -> None:
        """Close the connection, if it was opened."""
        if self._watched is not None and hasattr(self._watched, "processor"):
            self._watched.processor.close()

    def explain(self, error: BaseException | None) -> ConnectError:
        """Return the reason that a session or call on this channel ended with `error`."""
        if isinstance(error, ConnectError):
            return error
        watched = self._watched
        if watched is not None and watched.failure is not None:
            return watched.failure
        if isinstance(error, GRPCError):
            return _explain_status(error)
        # grpclib raises it, in other words, when the server ends the stream first.
        if error is None or isinstance(error, ProtocolError):
            return ConnectError("the server ended the session")
        if watched is not None and not watched.answered and not isinstance(error, OSError):
            return NoAnswerError("the connection was closed before the server sent anything")
        if isinstance(error, OSError):
            # asyncio's own words are "Connect call failed" and the address.
            return ConnectError(os.strerror(error.errno) if error.errno else str(error))
        return ConnectError(str(error) or repr(error))


def _explain_status(error: GRPCError) -> ConnectError:
    """Return the reason in an answer over HTTP/2 that is not a dispatcher's."""
    text = error.message or error.status.name
    # Proxies answer so while their server is away.
    if error.status is Status.UNAVAILABLE:
        return ConnectError(text)
    foreign = error.status is Status.UNIMPLEMENTED or text.startswith(
        ("Received :status", "Missing content-type", "Invalid content-type")
    )
    return OtherServiceError(f"it answered {text!r}") if foreign else ConnectError(text)


def _happy_eyeballs_delay(host: str) -> float | None:
    """Return the delay for a host with several addresses; ``None`` if `host` is an address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return HAPPY_EYEBALLS_SECONDS
    return None
