"""Epoch numbers that the copies of one dataset in several processes agree on."""

import fcntl
import json
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, reduction
from typing import Any, NamedTuple

_MOST_PASSES = 64
"""Passes that are remembered; copies join only the last ones."""

_lock = threading.Lock()


class Copy(NamedTuple):
    """One of the copies that read a pass together.

    Attributes:
        number: of the copy, in [0, copies).
        key: equal in the copies of one pass, and nearly always different in different passes.
    """

    number: int = 0
    key: str = ""


class PassCounter:
    """Count of the passes over a dataset, shared with its copies in child processes.

    PyTorch's loader makes a copy for each of its workers, and new copies for each pass unless they
    are persistent; it tells neither the dataset nor the copies that a pass begins. The count is
    therefore in an unlinked file that children inherit (fork) or receive (spawn, forkserver). A
    counter that is pickled for another purpose is copied with its values.
    """

    def __init__(self) -> None:
        self._keep(_anonymous_file())
        self._write({"next": 0, "seed": None, "passes": []})

    def begin(self, copy: Copy) -> int:
        """Return the epoch that `copy` reads: a new one, or the one that others of its pass began.

        Copies with equal keys belong to one pass unless the same copy has begun it already.
        """
        with self._exclusively() as values:
            for known in reversed(values["passes"]):
                if known["key"] == copy.key and copy.number not in known["copies"]:
                    known["copies"].append(copy.number)
                    return int(known["epoch"])
            epoch = int(values["next"])
            values["next"] = epoch + 1
            values["passes"].append({"key": copy.key, "epoch": epoch, "copies": [copy.number]})
            del values["passes"][:-_MOST_PASSES]
            return epoch

    def set_next(self, epoch: int) -> None:
        """Give the next pass the number `epoch`; the passes after it continue from there."""
        with self._exclusively() as values:
            values["next"] = epoch
            values["passes"] = []

    def resume(self, epoch: int, seed: int) -> None:
        """Continue after a pass that a state describes.

        Args:
            epoch: number of that pass; the next one has the number after it.
            seed: of the copies from now on.
        """
        with self._exclusively() as values:
            values |= {"next": epoch + 1, "passes": [], "seed": seed}

    def seed(self) -> int | None:
        """Return the seed of the last state; ``None``: there was none."""
        with self._exclusively() as values:
            found: int | None = values["seed"]
            return found

    def next(self) -> int:
        """Return the number of the next pass."""
        with self._exclusively() as values:
            return int(values["next"])

    @contextmanager
    def _exclusively(self) -> Iterator[dict[str, Any]]:
        # The lock of the file excludes processes, not threads.
        with _lock:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            try:
                # A process that was killed while it wrote may have left a rest after the values.
                data = os.pread(self._descriptor, 1 << 20, 0).decode(errors="replace")
                values = json.JSONDecoder().raw_decode(data)[0]
                before = json.dumps(values)
                yield values
                if json.dumps(values) != before:
                    self._write(values)
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _keep(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    def _write(self, values: dict[str, Any]) -> None:
        data = json.dumps(values).encode()
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))

    def __reduce__(self) -> tuple[Any, ...]:
        if context.get_spawning_popen() is None:
            return _restored, (self.next(), self.seed())
        return _received, (reduction.DupFd(self._descriptor),)


def _anonymous_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _restored(epoch: int, seed: int | None) -> PassCounter:
    counter = PassCounter()
    counter._write({"next": epoch, "seed": seed, "passes": []})
    return counter


def _received(descriptor: Any) -> PassCounter:
    counter = PassCounter.__new__(PassCounter)
    counter._keep(descriptor.detach())
    return counter


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)
