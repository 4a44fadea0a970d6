"""Flow control of one worker connection."""

from dataclasses import dataclass

CONNECTION_BYTES = 64 << 20
"""Bytes in flight from one worker, at most, apart from one element.

With 64 MiB shared memory carried 288 batches of 9.6 MB a second to a busy trainer, with 32 MiB 196
(docs/decisions/024-frames-of-4-mib.md).
"""


@dataclass
class FlowControl:
    """Flow-control state of one worker connection.

    Elements are counted from the beginning of the connection, so that a credit and a frame that
    cross cannot be misunderstood.

    Attributes:
        granted: elements that the worker may send in all.
        nbytes: bytes that may be in flight, as granted last.
        max_bytes: bound on `nbytes`: the worker's own buffer.
        received: elements received on this connection.
        buffered: elements received, on any connection, and not consumed.
        unreported: elements consumed since the last credit.
        unreported_bytes: their approximate size.
        live: the worker may have something to send.
    """

    granted: int = 0
    nbytes: int = 0
    max_bytes: int = CONNECTION_BYTES
    received: int = 0
    buffered: int = 0
    unreported: int = 0
    unreported_bytes: int = 0
    live: bool = False
    _promised: int = 0

    @property
    def reserved(self) -> int:
        """Bytes that may be in flight or buffered here, at most."""
        return self._promised if self.live or self.buffered else 0

    def open(self, max_bytes: int) -> None:
        """Begin a new connection: nothing is granted, buffered elements stay."""
        self.max_bytes = min(CONNECTION_BYTES, max_bytes or CONNECTION_BYTES)
        self._promised = self.reserved
        # Counts begin anew with the connection, on which the worker counts anew too.
        self.granted = self.received = self.unreported = self.unreported_bytes = 0
        self.live = True

    def grant(self, elements: int, nbytes: int) -> None:
        """Record a credit that is sent.

        If it grants fewer bytes than before, the worker may have sent all those of before. Only the
        consumed bytes, which this credit reports, are known not to be in flight.
        """
        self._promised = max(nbytes, self._promised - self.unreported_bytes)
        self.granted, self.nbytes = elements, nbytes
        self.unreported = self.unreported_bytes = 0

    def receive(self, elements: int) -> None:
        """Record elements that have arrived."""
        self.live = True
        self.buffered += elements
        self.received += elements

    def consume(self, elements: int, nbytes: int) -> None:
        """Record elements that the consumer is done with."""
        self.buffered -= elements
        self.unreported += elements
        self.unreported_bytes += nbytes

    def due(self, elements: int, nbytes: int, parts: int) -> bool:
        """Return whether 1/`parts` of what may be in flight is consumed and not reported.

        Args:
            elements: elements consumed besides those recorded.
            nbytes: their approximate size.
            parts: 4 for a report when there is occasion, as earlier would cost messages; 2 for an
                urgent one, as the worker might have to wait.
        """
        window = self.granted - self.received + self.buffered + self.unreported
        return (
            parts * (self.unreported + elements) >= window
            or parts * (self.unreported_bytes + nbytes) >= self.nbytes
        )
