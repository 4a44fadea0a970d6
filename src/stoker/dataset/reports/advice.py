"""Say what would make the slowest stage of a pipeline faster."""

from typing import NamedTuple

from stoker.dataset.reports.slow_stage import READS_FILES, SlowStage, is_waiting

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
    kind = slow.report.kind
    if kind == "from_generator":
        return (
            "run it ahead with prefetch(stoker.AUTOTUNE), or read several generators at once with "
            "interleave(num_parallel_calls=stoker.AUTOTUNE)"
        )
    if kind in READS_FILES:
        if slow.threads > 1:
            return "read more files at once (cycle_length), or keep the elements with cache()"
        return (
            "read several files at once with interleave(num_parallel_calls=stoker.AUTOTUNE), or "
            "keep the elements with cache()"
        )
    if kind == "shuffle":
        return (
            "use a smaller buffer_size, or shuffle file names or indices, which are small, before "
            "the elements are read"
        )
    if kind in _IN_MEMORY:
        return "keep the arrays in memory in the form that is needed, or add prefetch()"
    if kind == "map" and is_waiting(slow.report):
        return _advice_for_waiting_map(slow)
    if machine is not None and machine.is_full:
        return (
            "make it cheaper, such as by NumPy or other native code instead of Python, or "
            f"{machine.more_workers}, as no core of {machine.host} is free (worker processes: "
            f"{machine.processes}, cores: {machine.cores})"
        )
    if kind == "map":
        return _advice_for_map(slow, machine)
    elsewhere = "add workers" if machine else "run the pipeline on workers with distribute()"
    if kind in _BATCHES:
        return (
            "put a map with num_parallel_calls=stoker.AUTOTUNE directly before it, whose threads "
            f"write into the batch, or {elsewhere}"
        )
    if slow.report.function:
        return f"do that work in a map with num_parallel_calls=stoker.AUTOTUNE, or {elsewhere}"
    return f"run it ahead with prefetch(stoker.AUTOTUNE), or {elsewhere}"


def _advice_for_waiting_map(slow: SlowStage) -> str:
    if slow.saturated:
        return (
            "it waits rather than computes, so allow more calls at once with a larger "
            "num_parallel_calls, or stoker.AUTOTUNE"
        )
    return (
        "it waits rather than computes, so call it for several elements at once with "
        "num_parallel_calls=stoker.AUTOTUNE"
    )


def _advice_for_map(slow: SlowStage, machine: WorkerMachine | None) -> str:
    if slow.saturated:
        return (
            f"{'add workers' if machine else 'run it on workers with distribute()'}, or make "
            "the function faster, since more threads help only while cores are free and the "
            "function releases the GIL"
        )
    otherwise = "on workers with distribute()"
    if machine:
        processes = f"`stoker worker --processes {machine.cores}`"
        if machine.loopback:
            processes = f"stoker.LocalCluster({machine.cores}) or {processes}"
        otherwise = (
            f"with {processes} otherwise (worker processes on {machine.host}: {machine.processes}, "
            f"cores: {machine.cores})"
        )
    return (
        "run it in parallel with num_parallel_calls=stoker.AUTOTUNE if it releases the GIL (as "
        f"NumPy and image decoders do), or {otherwise}"
    )
