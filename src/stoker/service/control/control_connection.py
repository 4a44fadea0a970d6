"""HTTP/2 connections of the control plane: grpclib's, which also notice that a peer is silent.

grpclib's own keep-alive waits up to 300 s, counts only answers to its pings, and lets a connection
with unsent bytes linger. Here any byte from the peer counts; without one for half of the peer
timeout the connection sends a ping, and without one for all of it the connection is aborted. With
bytes that the peer does not acknowledge TCP itself does the same, where the system can
(TCP_USER_TIMEOUT).
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
from typing import Any

from grpclib.client import Channel
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError
from grpclib.protocol import H2Protocol

from stoker.wire.addresses import ipv4_of_localhost, unresolvable

logger = logging.getLogger("stoker.rpc")

# It logs every broken session at INFO; stoker logs them with more detail.
logging.getLogger("grpclib").setLevel(logging.WARNING)

# It logs every header of every message at DEBUG: thousands of lines, unless the user asks for them.
if logging.getLogger("hpack").level == logging.NOTSET:
    logging.getLogger("hpack").setLevel(logging.WARNING)

BACKLOG = 1024
"""Connections that wait to be accepted; asyncio listens again, with 100 by default."""

PEER_TIMEOUT = 10.0
"""Seconds in which a connection notices that its peer cannot be reached, by default."""

GRACE_SECONDS = 0.05
"""Time from the timeout to the abort, to receive what arrived while this process was busy."""

HAPPY_EYEBALLS_SECONDS = 0.25
"""Time after which the next address of a host is tried too: one family may not be routed."""

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
        base: grpclib's protocol for this connection, which is replaced by this one.
        peer_timeout: seconds.
        client: this end opened the connection.

    Attributes:
        failure: the reason that this end aborted the connection, if it did.
        answered: the peer has sent something.
    """

    def __init__(self, base: H2Protocol, peer_timeout: float, client: bool) -> None:
        super().__init__(base.handler, base.config, base.h2_config)
        self.failure: ConnectError | None = None
        self.answered = False
        self._peer_timeout = peer_timeout
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._received_at = self._loop.time()
        self._overdue = False
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
        self._received_at = self._loop.time()
        self._check_at(self._received_at + self._peer_timeout / 2)

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        self._overdue = False
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

    def _check_at(self, due: float) -> None:
        self._timer = self._loop.call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        now, half = self._loop.time(), self._peer_timeout / 2
        if now > due + half / 2:
            # This process was stopped, or its GIL held, and could not ask the peer in time.
            self._received_at = max(self._received_at, now - half)
        silent = now - self._received_at
        if silent >= self._peer_timeout and self._overdue:
            self._abort(ConnectError(f"nothing was received for {silent:.0f} s"))
        elif silent >= self._peer_timeout:
            self._overdue = True
            self._check_at(now + GRACE_SECONDS)
        elif silent >= half:
            self._ping()
            self._check_at(self._received_at + self._peer_timeout)
        else:
            self._check_at(self._received_at + half)

    def _ping(self) -> None:
        try:
            self.connection._connection.ping(bytes(8))
            self.connection.flush()
        except Exception as error:  # noqa: BLE001 - grpclib has closed the connection
            self._abort(ConnectError(f"the connection broke: {error!r}"))

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
        super().__init__(ipv4_of_localhost(host), port, codec=BytesCodec())
        self._peer_timeout = peer_timeout
        self._watched: WatchedProtocol | None = None

    def _protocol_factory(self) -> H2Protocol:
        self._watched = WatchedProtocol(super()._protocol_factory(), self._peer_timeout, True)
        return self._watched

    async def _create_connection(self) -> H2Protocol:
        try:
            async with asyncio.timeout(self._peer_timeout):
                _, protocol = await self._loop.create_connection(
                    self._protocol_factory,
                    self._host,
                    self._port,
                    happy_eyeballs_delay=_happy_eyeballs_delay(self._host),
                )
                return protocol
        except TimeoutError:
            raise ConnectError(f"the host did not answer for {self._peer_timeout:g} s") from None
        except (socket.gaierror, UnicodeError) as error:
            raise ConnectError(unresolvable(self._host, error)) from error

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


def _bindable(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the family and the address by which one socket is bound to `host`."""
    if not host:
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, address  # type: ignore[return-value]


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; accepted sockets inherit its options.

    "::" and "" accept IPv4 too, where the system can; a name is bound by one address, IPv4 if it
    has one.

    Raises:
        OSError: if the address cannot be bound.
    """
    family, address = _bindable(ipv4_of_localhost(host), port)
    dual = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    listener = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=dual)
    listener.setblocking(False)
    # grpclib sets it only on listeners that asyncio creates; without it the second of two small
    # messages waits 40 ms for the peer's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
