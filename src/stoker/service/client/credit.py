"""How much each task's worker may send ahead of the user."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection

from stoker.service.client.account import BYTES, Account
from stoker.service.client.pace import FIRST, MEMORY_WINDOWS, Pace

ELEMENTS = 65_536
"""Elements that may be under way from one worker, at most: eight full frames of the smallest."""

BUFFER_BYTES = 256 << 20
"""Bytes that may be under way from all workers, about, if nothing else is said."""

WORKERS = 128
"""A client reads so many tasks at a time, at most."""


class Windows:
    """What the user takes in a tenth of a second is under way, over all workers together.

    Of it half is divided evenly among the workers that may have something, and half by what each
    has supplied lately: the fast ones are not held up by the share of the slow ones, and the slow
    ones can become faster. Of the bytes a quarter is divided evenly among as many workers as there
    can be, and the rest by supply. None are promised twice: what one worker was told last but may
    not have heard of yet, no other is given.

    Args:
        buffer_bytes: that may be sent and not taken, over all workers, about: each worker may
            exceed its part by one element.
    """

    metered = False
    """Whether credit is given for what is ready only, and workers must say what is."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._buffer_bytes = buffer_bytes
        self._pace = Pace()
        self._accounts: defaultdict[int, Account] = defaultdict(Account)
        self._supplied = 0.0

    def credit(self, task_id: int, now: float) -> tuple[int, int]:
        """What to tell the worker now: elements in all on this connection, and bytes."""
        account = self._accounts[task_id]
        elements, nbytes = self._elements(task_id), self._bytes(account)
        account.grant(elements, nbytes, now)
        return elements, nbytes

    @property
    def reserved(self) -> int:
        """Bytes that may be under way or held here, over all workers."""
        return sum(account.reserved for account in self._accounts.values())

    def opened(self, task_id: int, most_bytes: int = BYTES) -> None:
        """The task has a new connection, on which its worker sends ahead so many bytes at most."""
        self._accounts[task_id].open(most_bytes)

    def ended(self, task_id: int) -> None:
        """The worker has nothing more, unless another client gives some back."""
        self._accounts[task_id].end()

    def ready(self, task_id: int, elements: int, returned: int) -> list[int]:
        """The worker has something and no credit for it; or credit and nothing.

        Returns:
            The tasks that are to be told of new credit.
        """
        return []

    def received(self, task_id: int, positions: int, waited: float, now: float) -> None:
        """So much has come; the user has waited for it since `waited` seconds."""
        late = self._accounts[task_id].receive(positions, now)
        self._pace.stalled(min(late, waited))

    def consumed(
        self, task_id: int, positions: int, nbytes: int, seconds: float, now: float
    ) -> list[int]:
        """The user has taken these, of about so many bytes, and has worked on them for so long.

        Returns:
            The tasks that are to be told.
        """
        account = self._accounts[task_id]
        due = account.due(positions, nbytes, 4)
        account.take(positions, nbytes)
        self._pace.took(positions, seconds, now)
        self._supplied += positions
        if self._supplied > MEMORY_WINDOWS * (self._pace.window + FIRST):
            self._forget()
        return [task_id] if due else []

    def urgent(self, task_id: int, positions: int, nbytes: int) -> bool:
        """Whether the worker must be told at once when so much more is taken."""
        return self._accounts[task_id].due(positions, nbytes, 2)

    def gone(self, task_id: int) -> list[int]:
        """The task has no connection any more; returns as `ready`."""
        self._accounts[task_id].gone()
        return []

    def _bytes(self, account: Account) -> int:
        """How many may be under way from this worker: its even part, and of the rest what is free.

        Who has something to send makes room by and by; who has not holds what it was given.
        """
        even = max(1, self._buffer_bytes // (4 * WORKERS))
        others = (x for x in self._accounts.values() if x is not account)
        free = self._buffer_bytes * 3 // 4 - sum(max(0, x.reserved - even) for x in others)
        by_supply = int(self._supply(account) * (self._buffer_bytes * 3 // 4))
        return min(account.most_bytes, even + max(0, min(free, by_supply)))

    def _supply(self, account: Account) -> float:
        """The part of what was taken lately that came from this worker."""
        return account.supply / self._supplied if self._supplied else 0.0

    def _window(self, account: Account) -> int:
        live = max(1, sum(x.live for x in self._accounts.values()))
        share = (1 / live + self._supply(account)) / 2 if self._supplied else 1 / live
        return min(ELEMENTS, math.ceil(share * self._pace.window))

    def _elements(self, task_id: int) -> int:
        account = self._accounts[task_id]
        return max(account.granted, account.received - account.held + self._window(account))

    def _forget(self) -> None:
        """Gives what was supplied long ago less weight, and lets go of tasks that are over."""
        for task_id, account in list(self._accounts.items()):
            if account.live or account.held:
                account.supply /= 2
            else:
                del self._accounts[task_id]
        self._supplied = sum(account.supply for account in self._accounts.values())


class Metered(Windows):
    """At most `limit` elements outstanding over all workers (`max_outstanding_requests`).

    Credit is given only for what was announced as ready, is given back by workers that turn out to
    have nothing, and is taken back when the connection breaks: no slow or dead worker holds any.

    Args:
        limit: elements that may be outstanding.
        buffer_bytes: as of `Windows`.
        needed_first: which of the tasks that wait for credit gets it, as `Order.needed_first`.
    """

    metered = True

    def __init__(
        self,
        limit: int,
        buffer_bytes: int = BUFFER_BYTES,
        needed_first: Callable[[Collection[int]], int | None] = lambda tasks: next(iter(tasks)),
    ) -> None:
        super().__init__(buffer_bytes)
        self._needed_first = needed_first
        self._spare = limit
        self._granted: Counter[int] = Counter()
        self._under_way: Counter[int] = Counter()
        self._ready: dict[int, int] = {}

    def opened(self, task_id: int, most_bytes: int = BYTES) -> None:
        super().opened(task_id, most_bytes)
        self._granted[task_id] = 0

    def ready(self, task_id: int, elements: int, returned: int) -> list[int]:
        self._accounts[task_id].returned(returned)
        self._under_way[task_id] -= returned
        self._spare += returned
        self._ready.pop(task_id, None)
        if elements:
            self._ready[task_id] = elements
        return self._grant()

    def urgent(self, task_id: int, positions: int, nbytes: int) -> bool:
        return True

    def received(self, task_id: int, positions: int, waited: float, now: float) -> None:
        super().received(task_id, positions, waited, now)
        self._under_way[task_id] -= positions

    def consumed(
        self, task_id: int, positions: int, nbytes: int, seconds: float, now: float
    ) -> list[int]:
        super().consumed(task_id, positions, nbytes, seconds, now)
        self._spare += positions
        return [*self._grant(), task_id]

    def gone(self, task_id: int) -> list[int]:
        super().gone(task_id)
        self._ready.pop(task_id, None)
        self._spare += self._under_way.pop(task_id, 0)
        return self._grant()

    def _elements(self, task_id: int) -> int:
        return self._granted[task_id]

    def _grant(self) -> list[int]:
        """Give what is spare to the tasks that are needed first."""
        grown = []
        while self._spare > 0 and self._ready:
            task_id = self._needed_first(self._ready)
            if task_id is None:
                break
            granted = min(self._ready.pop(task_id), self._spare)
            self._spare -= granted
            self._under_way[task_id] += granted
            self._granted[task_id] += granted
            grown.append(task_id)
        return grown
