"""Messages over a Unix socket, with the bodies of frames in memory that both sides map."""

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
from stoker.wire.transports.shm.reading import SocketReader
from stoker.wire.transports.shm.segments import Segments
from stoker.wire.transports.stream_socket import StreamSocket
from stoker.wire.transports.tcp import MAX_BODY_BYTES, POOLED_BYTES

_MAX_NONBLOCKING_BYTES = 64 << 10
"""Bytes a writable Unix socket accepts without blocking: at most 1/4 of its 208 KiB is used."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """An encoded message that is too large to be sent without blocking."""

    message: f.Message
    buffers: list[Buffer]


@dataclass(slots=True)
class _Arriving:
    """A message whose envelope was received, but not yet all its inline parts."""

    header: bytes
    body: list[memoryview]
    missing: list[memoryview] = field(default_factory=list)


class ShmConnection(Connection):
    """One end of a connected Unix socket, which it owns.

    Args:
        sock: blocking and connected.
        peer: for error messages.
        segments: the worker's pool, at the worker's end; None at the client's end.
        max_body_bytes: longer bodies are refused before memory is allocated for them.
        max_header_bytes: longer headers are refused.
        on_map_error: called with the reason when this process cannot map a received segment.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        segments: Segments | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_header_bytes: int = f.MAX_HEADER_BYTES,
        on_map_error: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.peer = peer
        self.types = TypeResolver()
        self._max_body_bytes = max_body_bytes
        self._max_header_bytes = max_header_bytes
        self._on_map_error = on_map_error
        self._lender = None if segments is None else Lender(segments)
        self._borrower = Borrower() if segments is None else None
        self._stream = StreamSocket(sock, peer, self._release)
        self._reader = SocketReader(self._stream)
        self._pool = BufferPool(POOLED_BYTES)
        self._arriving: _Arriving | None = None
        self._pending: _Pending | None = None

    @property
    def closed(self) -> bool:
        return self._stream.closed

    @property
    def shared_bytes(self) -> int:
        return 0 if self._borrower is None else self._borrower.bytes

    # Sending.

    def send(self, message: f.Message) -> None:
        pending, self._pending = self._pending, None
        if pending is not None and pending.message is message:
            self._stream.send_with(self._stream.send_all, pending.buffers)
        else:
            self._encode_and_send(message, now=False)

    def send_now(self, message: f.Message) -> bool:
        if not self._stream.writable():
            return False
        self._encode_and_send(message, now=True)
        return self._pending is None

    def _encode_and_send(self, message: f.Message, *, now: bool) -> None:
        first, *buffers = f.encode(message)
        header = bytes(memoryview(first)[f.PREFIX.size :])
        self._stream.send_with(self._send, message, header, buffers, now)

    def _send(self, message: f.Message, header: bytes, buffers: list[Buffer], now: bool) -> None:
        parts: Sequence[e.Part] = ()
        if self._lender is None:
            size = sum(memoryview(buffer).nbytes for buffer in buffers)
            parts = [e.Part(size)] if size else []
        elif buffers:
            shared = isinstance(message, f.Frame) and message.shared
            plan = self._lender.place(buffers, in_place=not shared)
            parts, buffers = plan.parts, plan.inline
            for number in plan.retired:
                forget = e.Envelope(e.Kind.FORGET, parts=(e.Part(0, number),))
                self._stream.send_all([e.pack(forget)])
            for number, mapping in plan.segments:
                part = e.Part(mapping.memory.nbytes, number)
                announced = e.pack(e.Envelope(e.Kind.SEGMENT, parts=(part,)))
                self._stream.send_descriptor(announced, mapping.descriptor)
        packed = e.pack(e.Envelope(e.Kind.MESSAGE, header, tuple(parts), self._returns()))
        if now and sum(memoryview(buffer).nbytes for buffer in buffers) > _MAX_NONBLOCKING_BYTES:
            self._pending = _Pending(message, [packed, *buffers])
        else:
            self._stream.send_all([packed, *buffers])

    def _returns(self) -> tuple[e.Return, ...]:
        return () if self._borrower is None else self._borrower.returns(e.MAX_RETURNS)

    # Receiving.

    def receive(self, timeout: float | None = None) -> f.Message:
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._stream.receive_with(self._receive, deadline)

    def _receive(self, deadline: float | None) -> f.Message:
        while self._arriving is None:
            self._arriving = self._receive_envelope(deadline)
        self._receive_missing(self._arriving, deadline)
        arrived, self._arriving = self._arriving, None
        return f.decode(arrived.header, arrived.body or None, self.types)

    def _receive_envelope(self, deadline: float | None) -> _Arriving | None:
        """Receive one envelope; return None if it carries no message."""
        reader = self._reader
        reader.need(e.PREFIX.size, deadline)
        sizes = e.parse_prefix(reader.data, reader.start, self._max_header_bytes)
        reader.need(sizes.total, deadline)
        envelope = e.parse(reader.data, reader.start, sizes)
        reader.consume(sizes.total)
        if envelope.returns:
            if self._lender is None:
                raise WireError(
                    f"the worker returned {len(envelope.returns)} loans, but only clients borrow"
                )
            self._lender.return_loans(envelope.returns)
        if envelope.kind is e.Kind.MESSAGE:
            return self._begin_message(envelope)
        if envelope.kind is not e.Kind.RETURNS:
            self._update_segments(envelope)
        return None

    def _begin_message(self, envelope: e.Envelope) -> _Arriving:
        size = sum(part.size for part in envelope.parts)
        if size > self._max_body_bytes:
            raise WireError(
                f"a body of {size} bytes is longer than the {self._max_body_bytes} bytes allowed"
            )
        arriving = _Arriving(envelope.header, [])
        position = 0
        for part in envelope.parts:
            if part.segment == e.INLINE:
                # Keep the alignment inside the body: the arrays rely on it.
                shift = position % ALIGNMENT
                view = self._pool.take(shift + part.size)[shift:]
                arriving.missing.append(view)
            elif self._borrower is not None:
                view = self._borrower.view(part)
            else:
                raise WireError(
                    f"the client lent segment {part.segment}, but only workers lend memory"
                )
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

    def _update_segments(self, envelope: e.Envelope) -> None:
        if self._borrower is None or len(envelope.parts) != 1:
            raise WireError(
                f"received a {envelope.kind.name} envelope with {len(envelope.parts)} parts; only "
                f"workers send it, with one part"
            )
        (part,) = envelope.parts
        if envelope.kind is e.Kind.FORGET:
            self._borrower.forget(part.segment)
            return
        try:
            self._borrower.add(part.segment, self._reader.descriptor(), part.size)
        except OSError as error:
            self._on_map_error(f"this process cannot map shared memory: {error}")
            raise UnavailableError(
                f"cannot read {self.peer} through shared memory: mapping {part.size} bytes failed: "
                f"{error}"
            ) from error

    # Ending.

    def close(self) -> None:
        self._stream.close(self._pack_returns)

    def _pack_returns(self) -> bytes:
        returns = self._returns()
        return e.pack(e.Envelope(e.Kind.RETURNS, returns=returns)) if returns else b""

    def _release(self) -> None:
        """Release all resources; called once no thread uses the connection."""
        self._reader.close()
        if self._lender is not None:
            self._lender.close()
        if self._borrower is not None:
            self._borrower.close()
