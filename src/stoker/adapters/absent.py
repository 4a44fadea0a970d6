"""Arguments of PyTorch's DataLoader that a stoker loader does not have."""

from collections.abc import Mapping
from typing import Any

from stoker.errors import InvalidTypeError

NO_PROCESSES = (
    "the pipeline runs on threads (Dataset.map(..., num_parallel_calls=stoker.AUTOTUNE)) or on the "
    "workers of a service (dataset.distribute(service))"
)
"""Advice in place of `num_workers`."""

Absent = Mapping[str, tuple[Any, str]]
"""Name of an argument, its default in PyTorch, and what to use."""

ABSENT: dict[str, tuple[Any, str]] = {
    "sampler": (
        None,
        (
            "ranks get their parts without one; use shuffle for a random order and "
            "dataset.filter for a choice. Draw samples with weights as indices: "
            "stoker.Dataset.from_tensor_slices(torch.multinomial(weights, count, True)) or "
            "numpy.random.Generator.choice(len(weights), count, p=...), and map them to samples"
        ),
    ),
    "batch_sampler": (
        None,
        (
            "use batch_size, dataset.batch or bucket_by_sequence_length; for batches of your own, "
            "stoker.Dataset.from_generator(lambda: batch_sampler), and map its lists of indices to "
            "batches"
        ),
    ),
    "timeout": (
        0,
        (
            "a trainer waits without a limit for workers that compute, and logs what it waits "
            "for; for a dispatcher that does not answer, use "
            "dataset.distribute(service, connect_timeout=seconds)"
        ),
    ),
    "worker_init_fn": (None, "use stoker.per_worker(factory) for what each process builds once"),
    "multiprocessing_context": (None, "no processes are started"),
    "persistent_workers": (False, "the workers of a service and the threads always persist"),
    "in_order": (True, "a local pipeline keeps the order; a service yields what is ready"),
}
"""The arguments that no loader has."""


def check_absent(given: Mapping[str, Any], absent: Absent, loader: str) -> None:
    """Check the keywords that a loader does not have.

    Values that are PyTorch's default are accepted.

    Args:
        given: the keywords.
        absent: the arguments that the loader explains.
        loader: name of the loader in errors.

    Raises:
        InvalidTypeError: if a keyword asks for something; the message says what to use.
    """
    for name, value in given.items():
        if name not in absent:
            raise InvalidTypeError(f"{loader} got an unexpected keyword argument {name!r}")
        default, advice = absent[name]
        # Code that was written for PyTorch may pass the default of PyTorch.
        if value != default:
            raise InvalidTypeError(f"`{name}` does not apply to {loader} (got {value!r}): {advice}")
