"""The worker's half: puts the bodies of frames where the client can see them."""

from dataclasses import dataclass, field

import numpy as np

from stoker.elements.codec.layout import ALIGNMENT, Buffer
from stoker.errors import WireError
from stoker.wire.transports.shm.envelope import MAX_PARTS, Part, Return
from stoker.wire.transports.shm.mapping import Mapping
from stoker.wire.transports.shm.segments import Block, Loans, Segments

SHARED_FROM_BYTES = 32 << 10
"""Less is sent over the socket, which costs less than a loan."""

_COPY_HOLDING_GIL_BYTES = 1 << 20
"""Copies up to this size keep the interpreter: with a busy Python thread in the process, letting go
of it costs 5 ms, and copying 1 MiB 0.1 ms."""

_MAX_IN_PLACE = MAX_PARTS // 2 - 1  # between them, and after the last, lie parts of other buffers


@dataclass(slots=True)
class Plan:
    """How one body travels.

    Attributes:
        parts: where it lies.
        inline: the buffers that are sent behind the envelope.
        segments: those the client has not been told of, to be sent before.
        forgotten: those it need not remember any more.
    """

    parts: list[Part] = field(default_factory=list)
    inline: list[Buffer] = field(default_factory=list)
    segments: list[tuple[int, Mapping]] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)


class Lender:
    """What one connection has lent out of a pool.

    Args:
        segments: the pool.
    """

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._loans = Loans()
        segments.client_came()
        self._known: set[int] = set()

    def place(self, buffers: list[Buffer], *, in_place: bool = True) -> Plan:
        """Finds a place for each of the `buffers` of a body; by one thread at a time.

        Arrays that lie in the pool stay there if nobody else was ever shown them and they may be
        written to; the others are copied into the pool, or go inline where there is no room.
        Without `in_place` all are copied: other clients are sent the same elements.
        """
        plan = Plan()
        run: list[memoryview] = []
        position = start = 0
        left = _MAX_IN_PLACE if in_place and self._segments.viewed else 0
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
        self._forget(plan)
        return plan

    def given_back(self, returns: tuple[Return, ...]) -> None:
        """The client has no more views of these loans.

        Raises:
            WireError: there is no such loan.
        """
        for back in returns:
            if not self._segments.given_back(self._loans, back.loan, seen=back.seen):
                raise WireError(f"loan {back.loan} is given back, which there is none of")

    def close(self) -> None:
        """The connection is over. Idempotent."""
        self._segments.ended(self._loans)

    def _place_copy(self, plan: Plan, run: list[memoryview], start: int) -> None:
        """Place buffers that follow each other from `start` of the body, as one part."""
        size = sum(view.nbytes for view in run)
        if not size:
            return
        # Aligned as in the body, so that the arrays are.
        shift = start % ALIGNMENT
        loan = None
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

    def _add(self, plan: Plan, part: Part, block: Block) -> None:
        plan.parts.append(part)
        if part.segment not in self._known:
            self._known.add(part.segment)
            plan.segments.append((part.segment, block.segment.mapping))

    def _forget(self, plan: Plan) -> None:
        plan.forgotten = sorted(self._known - self._segments.numbers)
        self._known.difference_update(plan.forgotten)


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
