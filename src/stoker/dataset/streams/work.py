"""Measurements that a stage makes itself: of its function, and of its threads."""

from stoker.dataset.streams.durations import Durations


class Work:
    """Time in the function of one stream and on its own threads; changed by its owner only.

    Attributes:
        busy: seconds in the function, or of its threads; summed over threads.
        calls: calls of the function.
        sampled: the seconds of `busy` for which `on_core` was measured.
        on_core: the seconds of `sampled` in which the thread had a core, or waited for one.
        threads: its own threads that compute at the same time; 0 while it computes in the thread
            that reads it.
        put_wait: seconds in which a thread of its own waited for room.
        includes_inputs: `busy` contains the time in the datasets that its function returned.
        durations: of single calls, where each is measured.
    """

    __slots__ = (
        "busy",
        "calls",
        "durations",
        "includes_inputs",
        "on_core",
        "put_wait",
        "sampled",
        "threads",
    )

    def __init__(self, *, threads: int = 0, includes_inputs: bool = False) -> None:
        self.busy = 0.0
        self.calls = 0
        self.sampled = 0.0
        self.on_core = 0.0
        self.threads = threads
        self.put_wait = 0.0
        self.includes_inputs = includes_inputs
        self.durations = Durations()

    def add_call(self, seconds: float, on_core: float | None) -> None:
        """Count a call and its time, of which its thread was runnable for `on_core` seconds."""
        self.busy += seconds
        self.calls += 1
        self.durations.add(seconds)
        if on_core is not None:
            self.sampled += seconds
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
        self.put_wait += weight * other.put_wait
        self.includes_inputs = other.includes_inputs
        self.durations.merge(other.durations)
