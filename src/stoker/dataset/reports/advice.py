"""Say what would make the slowest stage of a pipeline faster."""

from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.dataset.reports.slow_stage import READS_FILES, SlowStage

_BATCHES = frozenset({"batch", "padded_batch", "ragged_batch"})
_IN_MEMORY = frozenset({"range", "from_tensor_slices", "from_tensors", "elements", "counter"})


class WorkerMachine(NamedTuple):
    """A machine whose worker processes run a pipeline.

    Attributes:
        host: the host of their addresses.
        processes: the number of them.
        cores: the processors that they may use.
        loopback: only this machine reaches them, such as those of a LocalCluster.
    """

    host: str
    processes: int
    cores: int
    loopback: bool = False

    @property
    def is_full(self) -> bool:
        """True if another process there would only take a core from the others."""
        return self.processes >= self.cores

    @property
    def more_workers(self) -> str:
        """Advice to add workers where cores may be free, as a clause."""
        return f"add workers{' on other machines' if self.is_full else ''}"


def advice(slow: SlowStage, machine: WorkerMachine | None = None) -> str:
    """Return a change of the pipeline that would help, as a clause.

    Args:
        slow: the stage that limits the pipeline.
        machine: of the workers that run it; ``None`` in the trainer's process.
    """
    text = next(text for text, applies in _RULES.items() if applies(slow, machine))
    return text.format(
        machine=machine,
        elsewhere="add workers" if machine else "run the pipeline on workers with distribute()",
        calls="add workers" if machine else "run it on workers with distribute()",
        processes=_processes(machine) if machine else "on workers with distribute()",
    )


def _processes(machine: WorkerMachine) -> str:
    cluster = f"stoker.LocalCluster({machine.cores}) or " if machine.loopback else ""
    return (
        f"with {cluster}`stoker worker --processes {machine.cores}` otherwise (worker processes on "
        f"{machine.host}: {machine.processes}, cores: {machine.cores})"
    )


# In this order: a source has its own advice, a function that waits needs threads and no cores, and
# only then it matters if cores are free.
_RULES: dict[str, Callable[[SlowStage, WorkerMachine | None], Any]] = {
    "run it ahead with prefetch(stoker.AUTOTUNE), or read several generators at once with "
    "interleave(num_parallel_calls=stoker.AUTOTUNE)": lambda x, _: (
        x.report.kind == "from_generator"
    ),
    "read more files at once (cycle_length), or keep the elements with cache()": lambda x, _: (
        x.report.kind in READS_FILES and x.threads > 1
    ),
    "read several files at once with interleave(num_parallel_calls=stoker.AUTOTUNE), or keep the "
    "elements with cache()": lambda x, _: x.report.kind in READS_FILES,
    "use a smaller buffer_size, or shuffle file names or indices, which are small, before the "
    "elements are read": lambda x, _: x.report.kind == "shuffle",
    "keep the arrays in memory in the form that is needed, or add prefetch()": lambda x, _: (
        x.report.kind in _IN_MEMORY
    ),
    "it waits rather than computes, so allow more calls at once with a larger num_parallel_calls, "
    "or stoker.AUTOTUNE": lambda x, _: x.report.kind == "map" and x.waits and x.saturated,
    "it waits rather than computes, so call it for several elements at once with "
    "num_parallel_calls=stoker.AUTOTUNE": lambda x, _: x.report.kind == "map" and x.waits,
    "make it cheaper, such as by NumPy or other native code instead of Python, or "
    "{machine.more_workers}, as no core of {machine.host} is free (worker processes: "
    "{machine.processes}, cores: {machine.cores})": lambda _, machine: machine and machine.is_full,
    "{calls}, or make the function faster, since more threads help only while cores are free and "
    "the function releases the GIL": lambda x, _: x.report.kind == "map" and x.saturated,
    "run it in parallel with num_parallel_calls=stoker.AUTOTUNE if it releases the GIL (as NumPy "
    "and image decoders do), or {processes}": lambda x, _: x.report.kind == "map",
    "put a map with num_parallel_calls=stoker.AUTOTUNE directly before it, whose threads write "
    "into the batch, or {elsewhere}": lambda x, _: x.report.kind in _BATCHES,
    "do that work in a map with num_parallel_calls=stoker.AUTOTUNE, or {elsewhere}": lambda x, _: (
        x.report.function
    ),
    "run it ahead with prefetch(stoker.AUTOTUNE), or {elsewhere}": lambda *_: True,
}
"""Advice, and when it applies; the first one counts."""
