"""The client's half: views of what the worker lent, and the news that they are gone."""

import threading
from collections import deque
from functools import partial

from stoker.errors import WireError
from stoker.wire.buffers import lend
from stoker.wire.transports.shm import forking
from stoker.wire.transports.shm.envelope import Part, Return
from stoker.wire.transports.shm.mapping import Mapping, received_mapping

MAX_SEGMENTS = 1024
"""What one worker may have a client map."""


class Borrower:
    """What one connection has borrowed.

    Views may outlive it; the memory stays mapped as long as they live.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mappings: dict[int, Mapping] = {}
        self._living: dict[int, int] = {}  # loans and their sizes
        self._seen: set[int] = set()
        self._seen_at_fork: set[int] = set()
        self._dead: deque[int] = deque()
        forking.watch(self)

    @property
    def bytes(self) -> int:
        """How many bytes are borrowed: the loans of which there are views."""
        with self._lock:
            dead = set(self._dead.copy())
            return sum(size for loan, size in self._living.items() if loan not in dead)

    def add(self, number: int, descriptor: int, size: int) -> None:
        """Maps a segment the worker sent; owns `descriptor`.

        Raises:
            WireError: it is not what it is said to be.
            OSError: it cannot be mapped here.
        """
        mapping = received_mapping(descriptor, size)
        if not number or number in self._mappings or len(self._mappings) >= MAX_SEGMENTS:
            raise WireError(f"segment {number} is one too many, next to {len(self._mappings)}")
        self._mappings[number] = mapping

    def forget(self, number: int) -> None:
        """The worker uses a segment no more; what is still seen of it stays mapped until it is not.

        Raises:
            WireError: there is no such segment.
        """
        if self._mappings.pop(number, None) is None:
            raise WireError(f"segment {number} is to be forgotten, which there is none of")

    def view(self, part: Part) -> memoryview:
        """A view of a part of a body, given back when it and all that is made of it are gone.

        Raises:
            WireError: there is no such part, or it is lent already.
        """
        mapping = self._mappings.get(part.segment)
        if mapping is None or part.offset + part.size > mapping.memory.nbytes or not part.size:
            raise WireError(
                f"{part.size} bytes at {part.offset} of segment {part.segment}, which "
                + ("is none" if mapping is None else f"has {mapping.memory.nbytes}")
            )
        with self._lock:
            if part.loan in self._living:
                raise WireError(f"loan {part.loan} is made twice")
            self._living[part.loan] = part.size
        # The mapping is needed as long as the view: for the child of a fork.
        on_dead = partial(_gone, self._dead, part.loan, mapping)
        return lend(mapping.memory[part.offset : part.offset + part.size], on_dead)

    def returns(self, limit: int) -> tuple[Return, ...]:
        """Takes up to `limit` loans that are to be given back."""
        if not self._dead:
            return ()
        found: list[Return] = []
        with self._lock:
            while self._dead and len(found) < limit:
                loan = self._dead.popleft()
                self._living.pop(loan, None)
                found.append(Return(loan, loan in self._seen))
                self._seen.discard(loan)
        return tuple(found)

    def close(self) -> None:
        """Let go of the segments that nobody sees. Idempotent."""
        self._mappings.clear()

    def before_fork(self) -> None:
        """Holds still: nothing is borrowed or given back."""
        self._lock.acquire()
        self._seen_at_fork = set(self._living).difference(self._dead.copy())

    def after_fork_in_parent(self) -> None:
        """What was seen at the fork is seen by the child too, and never used again."""
        self._seen |= self._seen_at_fork
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """The views stay, with private memory under them; nothing is given back by this process."""
        self._lock.release()


def _gone(dead: "deque[int]", loan: int, _mapping: Mapping) -> None:
    dead.append(loan)
