"""Messages over a Unix socket, the bodies of frames in memory that both sides have mapped."""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stoker.elements.codec.elements import TypeResolver
from stoker.elements.codec.layout import ALIGNMENT, Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire import frames as f
from stoker.wire.buffers import BufferPool
from stoker.wire.transports import Connection
from stoker.wire.transports.shm import envelope as e
from stoker.wire.transports.shm.borrowing import Borrower
from stoker.wire.transports.shm.lending import Lender
from stoker.wire.transports.shm.reading import Reader
from stoker.wire.transports.shm.segments import Segments
from stoker.wire.transports.stream_socket import StreamSocket
from stoker.wire.transports.tcp import MAX_BODY_BYTES, POOLED_BYTES

_AT_ONCE_BYTES = 64 << 10
"""What a Unix socket takes that says it takes more: a quarter of its 208 KiB at most is filled."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A message that is ready to be sent and too large to be sent without waiting."""

    message: f.Message
    buffers: list[Buffer]


@dataclass(slots=True)
class _Arriving:
    """A message of which the envelope is here, and not yet all inline parts."""

    header: bytes
    body: list[memoryview]
    missing: list[memoryview] = field(default_factory=list)


class ShmConnection(Connection):
    """One end of a connected Unix socket, which it owns.

    Args:
        sock: blocking and connected.
        peer: for error messages.
        segments: of the worker, whose end this is; None for the client's end.
        max_body_bytes: longer bodies are refused before memory is allocated for them.
        max_header_bytes: the same for headers.
        cannot_map: told why, when this process cannot map what it gets.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        segments: Segments | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_header_bytes: int = f.MAX_HEADER_BYTES,
        cannot_map: Callable[[str], None] = lambda _why: None,
    ) -> None:
        self.peer = peer
        self.types = TypeResolver()
        self._max_body_bytes = max_body_bytes
        self._max_header_bytes = max_header_bytes
        self._cannot_map = cannot_map
        self._lender = None if segments is None else Lender(segments)
        self._borrower = Borrower() if segments is None else None
        self._stream = StreamSocket(sock, peer, self._release)
        self._reader = Reader(self._stream)
        self._pool = BufferPool(POOLED_BYTES)
        self._arriving: _Arriving | None = None
        self._kept: _Kept | None = None

    @property
    def closed(self) -> bool:
        return self._stream.closed

    @property
    def shared_bytes(self) -> int:
        return 0 if self._borrower is None else self._borrower.bytes

    # Sending.

    def send(self, message: f.Message) -> None:
        kept, self._kept = self._kept, None
        if kept is not None and kept.message is message:
            self._stream.send_by(self._stream.send_all, kept.buffers)
        else:
            self._encode_and_send(message, now=False)

    def send_now(self, message: f.Message) -> bool:
        if not self._stream.takes_more():
            return False
        self._encode_and_send(message, now=True)
        return self._kept is None

    def _encode_and_send(self, message: f.Message, *, now: bool) -> None:
        first, *buffers = f.encode(message)
        header = bytes(memoryview(first)[f.PREFIX.size :])
        self._stream.send_by(self._send, message, header, buffers, now)

    def _send(self, message: f.Message, header: bytes, buffers: list[Buffer], now: bool) -> None:
        parts: Sequence[e.Part] = ()
        if self._lender is None:
            size = sum(memoryview(buffer).nbytes for buffer in buffers)
            parts = [e.Part(size)] if size else []
        elif buffers:
            shared = isinstance(message, f.Frame) and message.shared
            plan = self._lender.place(buffers, in_place=not shared)
            parts, buffers = plan.parts, plan.inline
            for number in plan.forgotten:
                forget = e.Envelope(e.Kind.FORGET, parts=(e.Part(0, number),))
                self._stream.send_all([e.pack(forget)])
            for number, mapping in plan.segments:
                part = e.Part(mapping.memory.nbytes, number)
                announced = e.pack(e.Envelope(e.Kind.SEGMENT, parts=(part,)))
                self._stream.send_descriptor(announced, mapping.descriptor)
        packed = e.pack(e.Envelope(e.Kind.MESSAGE, header, tuple(parts), self._returns()))
        if now and sum(memoryview(buffer).nbytes for buffer in buffers) > _AT_ONCE_BYTES:
            self._kept = _Kept(message, [packed, *buffers])
        else:
            self._stream.send_all([packed, *buffers])

    def _returns(self) -> tuple[e.Return, ...]:
        return () if self._borrower is None else self._borrower.returns(e.MAX_RETURNS)

    # Receiving.

    def receive(self, timeout: float | None = None) -> f.Message:
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._stream.receive_by(self._receive, deadline)

    def _receive(self, deadline: float | None) -> f.Message:
        while self._arriving is None:
            self._arriving = self._next_envelope(deadline)
        self._receive_missing(self._arriving, deadline)
        arrived, self._arriving = self._arriving, None
        return f.decode(arrived.header, arrived.body or None, self.types)

    def _next_envelope(self, deadline: float | None) -> _Arriving | None:
        """Takes in one envelope; None if it carries no message."""
        reader = self._reader
        reader.need(e.PREFIX.size, deadline)
        sizes = e.parse_prefix(reader.data, reader.start, self._max_header_bytes)
        reader.need(sizes.total, deadline)
        envelope = e.parse(reader.data, reader.start, sizes)
        reader.pass_(sizes.total)
        if envelope.returns:
            if self._lender is None:
                raise WireError(f"a client is given back {len(envelope.returns)} loans")
            self._lender.given_back(envelope.returns)
        if envelope.kind is e.Kind.MESSAGE:
            return self._arriving_message(envelope)
        if envelope.kind is not e.Kind.RETURNS:
            self._segment_news(envelope)
        return None

    def _arriving_message(self, envelope: e.Envelope) -> _Arriving:
        size = sum(part.size for part in envelope.parts)
        if size > self._max_body_bytes:
            raise WireError(
                f"a body of {size} bytes is longer than the {self._max_body_bytes} allowed"
            )
        arriving = _Arriving(envelope.header, [])
        position = 0
        for part in envelope.parts:
            if part.segment == e.INLINE:
                # Aligned as in the body, so that the arrays are.
                shift = position % ALIGNMENT
                view = self._pool.take(shift + part.size)[shift:]
                arriving.missing.append(view)
            elif self._borrower is not None:
                view = self._borrower.view(part)
            else:
                raise WireError(f"a worker is lent segment {part.segment}")
            arriving.body.append(view)
            position += part.size
        arriving.missing.reverse()
        return arriving

    def _receive_missing(self, arriving: _Arriving, deadline: float | None) -> None:
        missing = arriving.missing
        while missing:
            target = missing.pop()
            try:
                got = self._reader.into(target, deadline) if target.nbytes else 0
            except BaseException:
                missing.append(target)
                raise
            if got < target.nbytes:
                missing.append(target[got:])

    def _segment_news(self, envelope: e.Envelope) -> None:
        if self._borrower is None or len(envelope.parts) != 1:
            raise WireError(f"a {envelope.kind.name} envelope with {len(envelope.parts)} parts")
        (part,) = envelope.parts
        if envelope.kind is e.Kind.FORGET:
            self._borrower.forget(part.segment)
            return
        try:
            self._borrower.add(part.segment, self._reader.descriptor(), part.size)
        except OSError as error:
            self._cannot_map(f"this process cannot map shared memory: {error}")
            raise UnavailableError(
                f"cannot read {self.peer} through shared memory: mapping {part.size} bytes failed: "
                f"{error}"
            ) from error

    # Ending.

    def close(self) -> None:
        self._stream.close(self._last_returns)

    def _last_returns(self) -> bytes:
        returns = self._returns()
        return e.pack(e.Envelope(e.Kind.RETURNS, returns=returns)) if returns else b""

    def _release(self) -> None:
        """Let go of everything; nobody is inside, and nobody comes in any more."""
        self._reader.close()
        if self._lender is not None:
            self._lender.close()
        if self._borrower is not None:
            self._borrower.close()
