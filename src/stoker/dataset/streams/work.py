"""Measurements that a stage makes itself: of its function, and of its threads."""

import time

from stoker.dataset.streams.measure.durations import Durations


class Work:
    """Time in the function of one stream and on its own threads.

    Only one thread changes it at a time: the owner of the stream, or threads under one lock.

    Attributes:
        busy: seconds in the function, or of its threads; summed over threads.
        calls: calls of the function.
        sampled: the seconds of `busy` for which `on_core` was measured, without waits for a core.
        on_core: the seconds of `sampled` in which the thread had a core.
        threads: its own threads that compute at the same time; 0 while it computes in the thread
            that reads it.
        includes_inputs: `busy` contains the time in the datasets that its function returned.
        durations: of single calls, where each is measured.
    """

    __slots__ = (
        "_room_wait",
        "busy",
        "calls",
        "durations",
        "includes_inputs",
        "on_core",
        "sampled",
        "threads",
    )

    def __init__(self, *, threads: int = 0, includes_inputs: bool = False) -> None:
        self.busy = 0.0
        self.calls = 0
        self.sampled = 0.0
        self.on_core = 0.0
        self.threads = threads
        self.includes_inputs = includes_inputs
        self.durations = Durations()
        self._room_wait = (0.0, 0, 0.0)
        """Seconds in which threads waited for room until a time, the number of those that have
        waited since then, and the time; one tuple, because other threads read it."""

    @property
    def put_wait(self) -> float:
        """Seconds until now in which its own threads waited for room, summed over threads."""
        seconds, threads, since = self._room_wait
        return seconds + threads * (time.perf_counter() - since) if threads else seconds

    def await_room(self, threads: int) -> None:
        """Note that this number of its threads wait for room from now on."""
        if threads != self._room_wait[1]:
            self._room_wait = (self.put_wait, threads, time.perf_counter())

    def add_call(self, seconds: float, core: tuple[float, float] | None) -> None:
        """Count a call.

        Args:
            seconds: its duration.
            core: the seconds of it on a core and waiting for one; None if not measured.
        """
        self.busy += seconds
        self.calls += 1
        self.durations.add(seconds)
        if core is not None:
            on_core, queued = core
            self.sampled += max(on_core, seconds - queued)
            self.on_core += on_core

    def add(self, other: "Work", weight: int = 1) -> None:
        """Add the times of a stream of the same stage; `threads` becomes that of the other.

        Args:
            other: of the stream.
            weight: the number of streams for which it was measured.
        """
        self.busy += weight * other.busy
        self.calls += weight * other.calls
        self.sampled += other.sampled
        self.on_core += other.on_core
        self.threads = other.threads
        self.includes_inputs = other.includes_inputs
        self.durations.merge(other.durations)
        seconds, threads, since = self._room_wait
        self._room_wait = (seconds + weight * other.put_wait, threads, since)
