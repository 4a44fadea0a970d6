"""The worker's half: places the bodies of frames in memory that the client maps."""

from dataclasses import dataclass, field

import numpy as np

from stoker.elements.codec.layout import ALIGNMENT, Buffer
from stoker.errors import WireError
from stoker.wire.transports.shm.envelope import MAX_PARTS, Part, Return
from stoker.wire.transports.shm.mapping import Mapping
from stoker.wire.transports.shm.segments import Loans, Segments, SharedBlock

SHARED_FROM_BYTES = 32 << 10
"""Smaller bodies are sent over the socket, which costs less than a loan."""

_COPY_HOLDING_GIL_BYTES = 1 << 20
"""Copies up to this size keep the GIL: with a busy Python thread in the process, releasing it costs
5 ms, and copying 1 MiB 0.1 ms."""

_MAX_IN_PLACE = MAX_PARTS // 2 - 1  # a part of copied buffers may precede and follow each


@dataclass(slots=True)
class Plan:
    """Placement of a body.

    Attributes:
        parts: locations of its parts, in order.
        inline: buffers to send after the envelope.
        segments: segments unknown to the client, to be announced before.
        retired: segments the client can unmap.
    """

    parts: list[Part] = field(default_factory=list)
    inline: list[Buffer] = field(default_factory=list)
    segments: list[tuple[int, Mapping]] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)


class Lender:
    """Loans of a pool to a client.

    Args:
        segments: the pool.
    """

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._loans = Loans()
        segments.add_client()
        self._known: set[int] = set()

    def place(self, buffers: list[Buffer], *, in_place: bool = True) -> Plan:
        """Return the placement of the `buffers` of a body; not thread-safe.

        Writable arrays of the pool that were never lent are lent in place; all remaining arrays
        are copied into the pool, or sent inline if the pool is full. Without `in_place` all arrays
        are copied, because several clients are sent the same elements.
        """
        plan = Plan()
        run: list[memoryview] = []
        position = start = 0
        left = _MAX_IN_PLACE if in_place and self._segments.has_local_views else 0
        for buffer in buffers:
            view = memoryview(buffer)
            position += view.nbytes
            if left and view.nbytes >= SHARED_FROM_BYTES and not view.readonly:
                address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
                loan = self._segments.lend_in_place(self._loans, address, view.nbytes)
                if loan is not None:
                    self._place_copy(plan, run, start)
                    number, block = loan
                    offset = address - block.segment.mapping.address
                    self._add(plan, Part(view.nbytes, block.segment.number, number, offset), block)
                    run, start, left = [], position, left - 1
                    continue
            run.append(view)
        self._place_copy(plan, run, start)
        self._retire(plan)
        return plan

    def return_loans(self, returns: tuple[Return, ...]) -> None:
        """End loans of which the client has no more views.

        Raises:
            WireError: if the client returned a loan that does not exist.
        """
        for returned in returns:
            if not self._segments.return_loan(self._loans, returned.loan, leaked=returned.leaked):
                raise WireError(f"the client returned loan {returned.loan}, which was never lent")

    def close(self) -> None:
        """End all loans of the connection. Idempotent."""
        self._segments.remove_client(self._loans)

    def _place_copy(self, plan: Plan, run: list[memoryview], start: int) -> None:
        """Place consecutive buffers, which begin at `start` of the body, as a single part."""
        size = sum(view.nbytes for view in run)
        if not size:
            return
        # Keep the alignment inside the body: the arrays rely on the alignment.
        shift = start % ALIGNMENT
        loan = None
        # A run of small buffers is one part, with one loan to return.
        if size >= SHARED_FROM_BYTES:
            loan = self._segments.lend_copy(self._loans, shift + size)
        if loan is None:
            plan.parts.append(Part(size))
            plan.inline.extend(run)
            return
        number, block = loan
        _copy(run, block.memory[shift : shift + size])
        offset = block.start + shift
        self._add(plan, Part(size, block.segment.number, number, offset), block)

    def _add(self, plan: Plan, part: Part, block: SharedBlock) -> None:
        plan.parts.append(part)
        if part.segment not in self._known:
            self._known.add(part.segment)
            plan.segments.append((part.segment, block.segment.mapping))

    def _retire(self, plan: Plan) -> None:
        plan.retired = sorted(self._known - self._segments.numbers)
        self._known.difference_update(plan.retired)


def _copy(sources: list[memoryview], target: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
    memory = target.data
    position = 0
    for source in sources:
        end = position + source.nbytes
        if source.nbytes <= _COPY_HOLDING_GIL_BYTES:
            memory[position:end] = source.cast("B")
        else:
            np.copyto(target[position:end], np.frombuffer(source, np.uint8))
        position = end
