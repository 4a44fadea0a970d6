"""Say what would make the slowest stage of a pipeline faster."""

from stoker.dataset.slow_stage import READS_FILES, SlowStage, is_waiting

_BATCHES = frozenset({"batch", "padded_batch", "ragged_batch"})
_IN_MEMORY = frozenset({"range", "from_tensor_slices", "from_tensors", "elements", "counter"})


def advice(slow: SlowStage, worker_cores: int = 0) -> str:
    """Return a change of the pipeline that would help, as a clause.

    Args:
        slow: the stage that limits the pipeline.
        worker_cores: the processors of the worker that runs it; 0 in the trainer's process.
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
    if worker_cores == 1:
        return "add workers, or make it faster, as a worker has one core"
    if kind == "map":
        return _advice_for_map(slow, worker_cores)
    elsewhere = "add workers" if worker_cores else "run the pipeline on workers with distribute()"
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


def _advice_for_map(slow: SlowStage, worker_cores: int) -> str:
    if slow.saturated:
        return (
            f"{'add workers' if worker_cores else 'run it on workers with distribute()'}, or make "
            "the function faster, since more threads help only while cores are free and the "
            "function releases the GIL"
        )
    otherwise = "on workers with distribute()"
    if worker_cores:
        processes = f"`stoker worker --processes {worker_cores}`"
        otherwise = f"with {processes} otherwise, as a worker has {worker_cores} cores"
    return (
        "run it in parallel with num_parallel_calls=stoker.AUTOTUNE if it releases the GIL (as "
        f"NumPy and image decoders do), or {otherwise}"
    )
