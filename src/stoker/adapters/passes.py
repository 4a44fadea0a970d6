"""Epoch numbers of a loader, or of the copies of a dataset in several processes."""

import fcntl
import functools
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, reduction
from typing import Any, NamedTuple

from stoker.adapters.ranks import Rank
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.service.api.consumers import dispatchers_of, named_jobs_of

_MOST = 64
"""Processes that are remembered, and passes of each; copies join only the last passes."""

_MOST_JOBS = 256
"""Named jobs whose counts are remembered; each has an open descriptor."""

_END = b"\n"
"""Ends the counts in the file."""

_lock = threading.Lock()


class Copy(NamedTuple):
    """A copy among the copies that read a pass together.

    Attributes:
        number: of the copy, in [0, copies).
        passes: passes that this process has begun before.
    """

    number: int
    passes: int


class PassCounter:
    """Count of the passes over a dataset, shared with its copies in child processes.

    PyTorch's loader makes a copy for each of its workers, and new copies for each pass unless the
    workers are persistent, and tells neither the dataset nor the copies that a pass begins. The
    count is therefore in an unlinked file that children inherit (fork) or receive (spawn,
    forkserver). Each process that trains has a count of its own, which goes on from that of the
    process that made the counter. A counter that is pickled for another purpose is copied with its
    values.
    """

    def __init__(self, epoch: int = 0, seeds: tuple[int, list[int]] | None = None) -> None:
        self._keep(_anonymous_file())
        trainers = {_trainer(): _values(epoch, seeds)}
        self._write({"maker": _trainer(), "trainers": trainers})

    def begin(self, copy: Copy | None = None) -> int:
        """Return the epoch that begins; for a copy, the epoch that its pass has begun.

        Args:
            copy: in a worker process of PyTorch's loader; ``None``: this process trains.
        """
        with self._exclusively() as values:
            passes: dict[str, int] = values["passes"]
            key = None if copy is None else self._pass_of(copy)
            if key in passes:
                return passes[key]
            epoch = int(values["next"])
            values["next"] = epoch + 1
            if key is not None:
                _add(passes, key, epoch)
            return epoch

    def set_next(self, epoch: Any) -> None:
        """Give the next pass a number; later passes continue from there.

        Raises:
            InvalidTypeError: if `epoch` is not an int.
            InvalidArgumentError: if `epoch` is negative.
        """
        number = arguments.integer("epoch", epoch, minimum=0, what="an int of 0 or more")
        with self._exclusively() as values:
            values["next"] = number

    def resume(self, epoch: int, seed: int, salts: list[int]) -> None:
        """Continue after a pass that a state describes.

        Args:
            epoch: number of that pass; the next pass has the next number.
            seed: of the copies from now on.
            salts: of the copies from now on; of `salts_of`.
        """
        with self._exclusively() as values:
            values |= {"next": epoch + 1, "seeds": (seed, salts)}

    def seeds(self) -> tuple[int, list[int]] | None:
        """Return the seed and the salts of the last state; ``None``: there was none."""
        with self._exclusively() as values:
            seeds = values["seeds"]
            return None if seeds is None else (seeds[0], seeds[1])

    def next(self) -> int:
        """Return the number of the next pass."""
        with self._exclusively() as values:
            return int(values["next"])

    def _pass_of(self, copy: Copy) -> str:
        """Return a key that only the copies of a pass have in common.

        A thread makes all copies in order: copy k of a pass is the k-th after the first.
        """
        process, thread, made = self._received
        if process != os.getpid():
            thread, made = _forked
        return f"{thread}:{made - copy.number}:{copy.passes}"

    @contextmanager
    def _exclusively(self) -> Iterator[dict[str, Any]]:
        # The lock of the file excludes processes, not threads. The kernel releases this lock with
        # the process; a killed process would leave the lock of multiprocessing locked.
        with _lock:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            try:
                data, trainer = os.pread(self._descriptor, 1 << 20, 0), _trainer()
                stored = json.loads(data.partition(_END)[0])
                trainers = stored["trainers"]
                if trainer not in trainers:
                    made = trainers[stored["maker"]]
                    _add(trainers, trainer, _values(made["next"], made["seeds"]))
                yield trainers[trainer]
                self._write(stored)
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _keep(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._received = (0, 0, 0)
        """The process that received this from another, and what that has sent: see `_forked`."""
        self._sent = threading.local()
        weakref.finalize(self, os.close, descriptor)

    def _write(self, stored: dict[str, Any]) -> None:
        # The rest of a longer text stays behind the end, so that one call writes everything.
        os.pwrite(self._descriptor, json.dumps(stored).encode() + _END, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        if context.get_spawning_popen() is None:
            return PassCounter, (self.next(), self.seeds())
        # Only a child process that is being started can receive a descriptor.
        _count(self._sent)
        descriptor = reduction.DupFd(self._descriptor)
        return _received, (descriptor, threading.get_ident(), self._sent.count)


def counter_of(dataset: Dataset, rank: Rank | None) -> PassCounter:
    """Return the counter of the passes over a dataset.

    The readers of a named job share the count, as they share the epochs; but ranks of a single
    process do not, because each rank reads every epoch.

    Args:
        dataset: the dataset.
        rank: as given by the user.
    """
    names = named_jobs_of(dataset)
    if not names:
        return PassCounter()
    return _counter_of_jobs(tuple(names), tuple(dispatchers_of(dataset)), rank)


@functools.lru_cache(_MOST_JOBS)
def _counter_of_jobs(*_jobs: Any) -> PassCounter:
    return PassCounter()


def _trainer() -> str:
    """Return the id of the process that trains: of a worker of PyTorch's loader, its parent."""
    pytorch = sys.modules.get("torch.utils.data")
    parent = multiprocessing.parent_process()
    if pytorch is None or parent is None or pytorch.get_worker_info() is None:
        return str(os.getpid())
    return str(parent.pid)


def _values(epoch: int, seeds: tuple[int, list[int]] | None) -> dict[str, Any]:
    return {"next": epoch, "seeds": seeds, "passes": {}}


def _add(entries: dict[str, Any], key: str, value: Any) -> None:
    """Add an entry, and remove the oldest but for the first."""
    entries[key] = value
    # The first trainer is the maker, whose counts later trainers take over.
    for old in list(entries)[1:-_MOST]:
        del entries[old]


def _anonymous_file() -> int:
    # PyTorch's loader tells neither the dataset nor its copies that a pass begins, so the copies
    # share an unlinked file with the count. (docs/decisions/093)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _received(descriptor: Any, thread: int, sent: int) -> PassCounter:
    counter = PassCounter.__new__(PassCounter)
    counter._keep(descriptor.detach())
    counter._received = os.getpid(), thread, sent
    return counter


_forks = threading.local()
_forked = (0, 0)
"""The thread that made this process, and the number of its forks so far."""


def _count(made: threading.local) -> None:
    made.count = getattr(made, "count", 0) + 1


def _begin_in_child() -> None:
    global _lock, _forked
    # A thread that holds the lock at a fork does not exist in the child.
    _lock = threading.Lock()
    _forked = threading.get_ident(), _forks.count


os.register_at_fork(before=lambda: _count(_forks), after_in_child=_begin_in_child)
