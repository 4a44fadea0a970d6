"""Arguments of PyTorch's DataLoader that a stoker DataLoader does not have."""

from typing import Any

from stoker.errors import InvalidTypeError

_MAP = "Dataset.map(..., num_parallel_calls=stoker.AUTOTUNE)"

_REPLACEMENTS: dict[str, tuple[Any, str]] = {
    "num_workers": (
        0,
        (
            f"the pipeline runs on threads ({_MAP}) or on the workers of a service "
            "(dataset.distribute(service)); for PyTorch's own worker processes, use "
            "torch.utils.data.DataLoader(stoker.torch.IterableDataset(dataset), num_workers=n)"
        ),
    ),
    "sampler": (
        None,
        (
            "ranks get their parts without one; for an order or a choice of samples use shuffle, "
            "dataset.filter or sample_from_datasets"
        ),
    ),
    "batch_sampler": (None, "use batch_size, or dataset.batch or bucket_by_sequence_length"),
    "timeout": (0, "use dataset.distribute(service, connect_timeout=seconds)"),
    "worker_init_fn": (None, "use stoker.per_worker(factory) for what each process builds once"),
    "multiprocessing_context": (None, "no processes are started"),
    "persistent_workers": (False, "the workers of a service and the threads always persist"),
    "pin_memory_device": ("", "use device"),
    "in_order": (True, "a local pipeline keeps the order; a service yields what is ready"),
}


def check_absent(given: dict[str, Any]) -> None:
    """Check the keywords that are left after those of the DataLoader.

    Values that are PyTorch's default are accepted.

    Raises:
        InvalidTypeError: if one asks for something; the message says what to use.
    """
    for name, value in given.items():
        if name not in _REPLACEMENTS:
            raise InvalidTypeError(f"DataLoader() got an unexpected keyword argument {name!r}")
        default, advice = _REPLACEMENTS[name]
        if value != default:
            raise InvalidTypeError(
                f"`{name}` does not apply to stoker.torch.DataLoader (got {value!r}): {advice}"
            )
