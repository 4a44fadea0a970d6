"""Messages over a Unix socket, with the bodies of frames in memory that both sides map."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stoker.elements.codec.layout import ALIGNMENT, Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire import frames as f
from stoker.wire.buffers import BufferPool
from stoker.wire.transports import Connection
from stoker.wire.transports.poller import Poller, Ready
from stoker.wire.transports.shm import envelope as e
from stoker.wire.transports.shm.borrowing import Borrower
from stoker.wire.transports.shm.envelope import EnvelopeKind
from stoker.wire.transports.shm.lending import Lender, Plan
from stoker.wire.transports.shm.reading import SocketReader
from stoker.wire.transports.shm.segments import Segments
from stoker.wire.transports.stream_socket import StreamSocket, WithDescriptor
from stoker.wire.transports.tcp import MAX_BODY_BYTES, POOLED_BYTES


@dataclass(slots=True)
class _ArrivingEnvelope:
    """A message whose envelope was received, but not yet all its inline parts."""

    header: bytes
    body: list[memoryview]
    missing: list[memoryview] = field(default_factory=list)


class ShmConnection(Connection):
    """One end of a connected Unix socket, closed with the connection.

    Args:
        sock: connected.
        peer: for error messages.
        segments: the worker's pool, at the worker's end; None at the client's end.
        max_body_bytes: longer bodies are refused before memory is allocated.
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
        super().__init__(peer)
        self._max_body_bytes = max_body_bytes
        self._max_header_bytes = max_header_bytes
        self._on_map_error = on_map_error
        self._lender = None if segments is None else Lender(segments)
        self._borrower = Borrower() if segments is None else None
        self._stream = StreamSocket(sock, peer, self._release)
        self._reader = SocketReader(self._stream, wait=segments is None)
        self._pool = BufferPool(POOLED_BYTES)
        self._arriving: _ArrivingEnvelope | None = None

    @property
    def closed(self) -> bool:
        return self._stream.closed

    @property
    def shared_bytes(self) -> int:
        return 0 if self._borrower is None else self._borrower.bytes

    @property
    def has_ahead(self) -> bool:
        return self._reader.ahead > 0

    # Sending.

    def send_now(self, message: f.Message) -> bool:
        first, *body = f.encode(message)
        header = bytes(memoryview(first)[f.PREFIX.size :])
        unsent: list[Buffer | WithDescriptor] = []
        parts: Sequence[e.Part] = ()
        with self._stream:  # so that the loans do not end
            if self._lender is None:
                size = sum(memoryview(buffer).nbytes for buffer in body)
                parts = [e.Part(size)] if size else []
            elif body:
                shared = isinstance(message, f.Frame) and message.shared
                plan = self._lender.place(body, in_place=not shared)
                parts, body = plan.parts, plan.inline
                unsent = _announcements(plan)
            packed = e.pack(e.Envelope(EnvelopeKind.MESSAGE, header, tuple(parts), self._returns()))
            return self._stream.send([*unsent, packed, *body])

    def flush(self) -> bool:
        return self._stream.flush()

    def _returns(self) -> tuple[e.Return, ...]:
        return () if self._borrower is None else self._borrower.returns(e.MAX_RETURNS)

    # Receiving.

    def receive_now(self) -> f.Message | None:
        return self._stream.receive_with(self._receive, self.close)

    def _receive(self) -> f.Message | None:
        while self._arriving is None:
            envelope = self._receive_envelope()
            if envelope is None:
                return None
            self._arriving = self._begin(envelope)
        arrived = self._arriving
        if arrived.missing and not self._receive_missing(arrived.missing):
            return None
        self._arriving = None
        return f.decode(arrived.header, arrived.body or None, self.types)

    def _receive_envelope(self) -> e.Envelope | None:
        reader = self._reader
        if not reader.need(e.PREFIX.size):
            return None
        size = e.parse_prefix(reader.data, reader.start, self._max_header_bytes)
        if not reader.need(size):
            return None
        envelope = e.parse(reader.data, reader.start, size)
        reader.consume(size)
        return envelope

    def _begin(self, envelope: e.Envelope) -> _ArrivingEnvelope | None:
        """Return the message that an envelope begins; ``None`` for no message."""
        if envelope.returns:
            if self._lender is None:
                raise WireError(
                    f"the worker returned {len(envelope.returns)} loans, but only clients borrow"
                )
            self._lender.return_loans(envelope.returns)
        if envelope.kind is EnvelopeKind.MESSAGE:
            return self._begin_message(envelope)
        if envelope.kind is not EnvelopeKind.RETURNS:
            self._update_segments(envelope)
        return None

    def _begin_message(self, envelope: e.Envelope) -> _ArrivingEnvelope:
        size = sum(part.size for part in envelope.parts)
        if size > self._max_body_bytes:
            raise WireError(
                f"a body of {size} bytes is longer than the {self._max_body_bytes} bytes allowed"
            )
        arriving = _ArrivingEnvelope(envelope.header, [])
        position = 0
        for part in envelope.parts:
            if part.segment == e.INLINE:
                view = self._inline(part.size, position)
                arriving.missing.append(view)
            elif self._borrower is not None:
                view = self._borrower.view(part)
            else:
                raise WireError(
                    f"the client lent segment {part.segment}, but only workers lend memory"
                )
            arriving.body.append(view)
            position += part.size
        arriving.missing.reverse()  # so that the next part is popped from the end
        return arriving

    def _inline(self, size: int, position: int) -> memoryview:
        """Return memory for a part that follows on the socket."""
        if position == 0 and size <= self._reader.ahead:  # most are small; the rest is copied
            return memoryview(bytearray(size))
        # Keep the alignment inside the body: the arrays rely on the alignment.
        shift = position % ALIGNMENT
        return self._pool.take(shift + size)[shift:]

    def _receive_missing(self, missing: list[memoryview]) -> bool:
        """Receive inline parts; return whether all have arrived."""
        while missing:
            target = missing[-1]
            if target.nbytes and (rest := self._reader.into(target)):
                missing[-1] = rest
                return False
            missing.pop()
        return True

    def _update_segments(self, envelope: e.Envelope) -> None:
        if self._borrower is None or len(envelope.parts) != 1:
            raise WireError(
                f"received a {envelope.kind.name} envelope with {len(envelope.parts)} parts; only "
                f"workers send it, with one part"
            )
        (part,) = envelope.parts
        if envelope.kind is EnvelopeKind.FORGET:
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

    # Waiting and ending.

    def watch(self, poller: Poller, ready: Ready, *, writable: bool) -> None:
        self._reader.drained = False
        self._stream.watch(poller, ready, writable=writable)

    def wait(self, deadline: float | None, *, writable: bool) -> None:
        self._stream.wait(deadline, writable=writable)

    def close(self) -> None:
        self._stream.close(self._pack_returns)

    def _pack_returns(self) -> bytes:
        returns = self._returns()
        return e.pack(e.Envelope(EnvelopeKind.RETURNS, returns=returns)) if returns else b""

    def _release(self) -> None:
        """Release all resources; called once no thread uses the connection."""
        self._reader.close()
        if self._lender is not None:
            self._lender.close()
        if self._borrower is not None:
            self._borrower.close()


def _announcements(plan: Plan) -> list[Buffer | WithDescriptor]:
    """Return the envelopes that precede the message of a plan."""
    forgotten = [
        e.Envelope(EnvelopeKind.FORGET, parts=(e.Part(0, number),)) for number in plan.retired
    ]
    announced: list[Buffer | WithDescriptor] = [e.pack(envelope) for envelope in forgotten]
    for number, mapping in plan.segments:
        part = e.Part(mapping.memory.nbytes, number)
        data = e.pack(e.Envelope(EnvelopeKind.SEGMENT, parts=(part,)))
        announced.append(WithDescriptor(data, mapping.descriptor, mapping))
    return announced
