"""Many sessions of workers, as raw HTTP/2 connections in one thread.

Their end must cost less than the dispatcher's, which shares the machine: frames are made by hand,
and of what the dispatcher sends only settings, pings and the first message are read.
"""

import heapq
import selectors
import socket
import struct
import time
from typing import Any

import msgspec
from hpack import Encoder

from stoker.service import messages as m

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_ACK, _END_HEADERS = 1, 4
_decode = msgspec.msgpack.Decoder(m.FromDispatcher).decode
_encode = msgspec.msgpack.Encoder().encode


class _StampedHeartbeat(m.Heartbeat, frozen=True, tag="Heartbeat"):
    """A heartbeat with the time at which it was due; the dispatcher ignores the field."""

    at: float = 0.0


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _message(message: Any) -> bytes:
    data = _encode(message)
    return _frame(_DATA, 0, 1, struct.pack(">?I", False, len(data)) + data)


def _request(host: str) -> bytes:
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/stoker.Dispatcher/Session"),
        (":authority", host),
        ("te", "trailers"),
        ("content-type", "application/grpc+msgpack"),
    ]
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, Encoder().encode(headers))
    )


class RawSession:
    """One worker's session.

    Attributes:
        welcome: the dispatcher's first message.
        ended: the dispatcher or the network has ended it.
        interval: seconds between two heartbeats.
    """

    def __init__(self, address: tuple[str, int], number: int) -> None:
        self.welcome: m.WorkerWelcome | None = None
        self.ended = False
        self.interval = 1.0
        self._received = b""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(address)
        worker = f"10.0.{number >> 8}.{number & 255}:5051"
        hello = m.WorkerHello(1, 1, worker, {"tcp": worker}, m.Versions("3.11", "2"))
        self._opening = _request(address[0]) + _message(hello)

    def open(self) -> None:
        """Send the hello; call it when the connection is made."""
        self._send(self._opening)

    def heartbeat(self, due: float) -> None:
        """Send a heartbeat that was due at a time of the monotonic clock."""
        self._send(_message(_StampedHeartbeat(at=due)))

    def receive(self) -> None:
        """Handle what has arrived."""
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            data = b""
        self.ended = self.ended or not data
        self._received += data
        while len(self._received) >= 9:
            length = int.from_bytes(self._received[:3])
            kind, flags = self._received[3:5]
            if len(self._received) < 9 + length:
                return
            payload, self._received = self._received[9 : 9 + length], self._received[9 + length :]
            self._handle(kind, flags, payload)

    def _handle(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self._send(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, payload))
        elif kind in (_RESET, _GOAWAY):
            self.ended = True
        elif kind == _DATA and len(payload) > 5:
            message = _decode(payload[5:])
            if isinstance(message, m.WorkerWelcome):
                self.welcome = message
            if isinstance(message, m.WorkerWelcome | m.HeartbeatInterval):
                self.interval = message.heartbeat_ms / 1000

    def _send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            self.ended = True


class RawSessions:
    """Sessions that send heartbeats at the interval that the dispatcher asks for.

    Args:
        address: host and port of the dispatcher.
        count: the number of sessions.
        at_a_time: the number of those that wait for their welcome.
    """

    def __init__(self, address: tuple[str, int], count: int, at_a_time: int) -> None:
        self.sessions: list[RawSession] = []
        self._address = address
        self._count = count
        self._at_a_time = at_a_time
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int]] = []
        self._waiting: set[int] = set()

    @property
    def ended(self) -> int:
        """The number of sessions that have ended."""
        return sum(session.ended for session in self.sessions)

    def open_all(self, deadline: float) -> None:
        """Open the sessions, and send heartbeats on those that are open.

        Raises:
            TimeoutError: if one has no welcome at the time `deadline`.
        """
        while len(self.sessions) < self._count or self._waiting:
            while len(self.sessions) < self._count and len(self._waiting) < self._at_a_time:
                number = len(self.sessions)
                session = RawSession(self._address, number)
                self.sessions.append(session)
                self._waiting.add(number)
                self._selector.register(session.socket, selectors.EVENT_WRITE, number)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.sessions)} opened, {len(self._waiting)} wait")
            self._step()

    def run(self, until: float) -> None:
        """Send heartbeats until a time of the monotonic clock."""
        while time.monotonic() < until:
            self._step()

    def close(self) -> None:
        """Close the connections."""
        for session in self.sessions:
            session.socket.close()
        self._selector.close()

    def _step(self) -> None:
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            due, number = heapq.heappop(self._due)
            session = self.sessions[number]
            if not session.ended:
                session.heartbeat(due)
                heapq.heappush(self._due, (due + session.interval, number))
        wait = min(0.05, self._due[0][0] - now) if self._due else 0.05
        for key, events in self._selector.select(max(0.0, wait)):
            self._serve(key.data, events)

    def _serve(self, number: int, events: int) -> None:
        session = self.sessions[number]
        if events & selectors.EVENT_WRITE:
            session.open()
            self._selector.modify(session.socket, selectors.EVENT_READ, number)
            return
        session.receive()
        if session.ended:
            self._selector.unregister(session.socket)
            self._waiting.discard(number)
        elif session.welcome is not None and number in self._waiting:
            self._waiting.discard(number)
            # Spread over the interval, as those of processes that start at any time.
            first = time.monotonic() + session.interval * (number % 97) / 97
            heapq.heappush(self._due, (first, number))
