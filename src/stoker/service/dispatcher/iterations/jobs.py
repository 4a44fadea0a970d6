"""Checks of a job: its clients must agree, and some worker must be able to run it."""

import enum
import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from stoker.dataset.tree.outline import call_text
from stoker.dataset.tree.structure import decode_parts, first_difference, kinds_of
from stoker.elements.spec import compatible, spec_from_wire
from stoker.errors import (
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import JobEntry
from stoker.service.dispatcher.entities.registered import DatasetInfo
from stoker.service.dispatcher.iterations.catalog import find_dataset
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.state.state import State

_NAMES = {
    "use_cross_trainer_cache": ("cross_trainer_cache", "cross-trainer cache"),
    "num_consumers": ("num_consumers", "number of consumers"),
}
"""The argument of `distribute`, and the words of a message, for fields of `JobParameters`."""


_MOST_NAMES = 5
"""Most jobs or workers that an error names."""


def some_names(names: Iterable[str]) -> str:
    """Return the first names in quotes, and "..." if there are more; "none" without any."""
    names = list(names)
    more = ["..."] if len(names) > _MOST_NAMES else []
    return ", ".join([*map(repr, names[:_MOST_NAMES]), *more]) or "none"


def find_job(state: State, name: str) -> JobEntry:
    """Return the job with this name.

    Raises:
        NotFoundError: if there is none; names some that exist.
    """
    if name in state.jobs:
        return state.jobs[name]
    known = some_names(state.jobs)
    raise NotFoundError(f"no job is named {name!r}; the jobs of this dispatcher: {known}")


def job_cancelled(name: str) -> CancelledError:
    """Return the error that the clients of a cancelled job raise."""
    return CancelledError(f"job {name!r} was cancelled with `stoker jobs cancel`")


def requested_dataset(state: State, hello: m.ClientHello) -> m.RegisterDataset | DatasetInfo:
    """Return the dataset that a client wants to read.

    Raises:
        NotFoundError: if it names an id that is not registered.
    """
    return hello.registration or find_dataset(state, hello.dataset_id)


def fingerprint(dataset: m.RegisterDataset | DatasetInfo) -> str:
    """Return a digest of nodes, functions and options; lines of the user's file do not count."""
    digests = [function.digest for function in dataset.functions]
    # Digests of functions: the pickled bytes of a function differ between processes.
    parts = (dataset.structure, dataset.spec, dataset.options, digests)
    return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=16).hexdigest()


def check_agreement(state: State, job: JobEntry, hello: m.ClientHello) -> str:
    """Check that a client's request matches its job; return a warning for its user, or "".

    Raises:
        InvalidArgumentError: if it does not; names the existing and the requested value.
    """
    existing, requested = job.added.parameters, hello.parameters
    for name in requested.__struct_fields__:
        has, wants = getattr(existing, name), getattr(requested, name)
        if has != wants:
            argument, label = _NAMES.get(name, (name, name.replace("_", " ")))
            raise InvalidArgumentError(
                f"{_tried_to_create(hello)} parameters: Existing {label}: <{_shown(has)}>; got "
                f"<{_shown(wants)}>. Use the same `{argument}`, or another job_name"
            )
    first, second = state.datasets[job.dataset_id], requested_dataset(state, hello)
    specs = spec_from_wire(first.spec), spec_from_wire(second.spec)
    if first.structure != second.structure or not compatible(*specs):
        raise InvalidArgumentError(
            f"{_tried_to_create(hello)} nodes or element_spec: Existing: <{_describe(first)}>; got "
            f"<{_describe(second)}>{_first_node(first, second)}. Clients of one job must agree on "
            "nodes and element_spec"
        )
    different = difference(first, second)
    if not different:
        return ""
    return (
        f"job {hello.job!r} was created with {different} than this process has; those of the first "
        "client are used"
    )


def difference(
    first: m.RegisterDataset | DatasetInfo, second: m.RegisterDataset | DatasetInfo
) -> str:
    """Return what differs between datasets of equal structure, as part of a sentence, or ""."""
    pairs = zip(first.functions, second.functions, strict=False)
    sites = [mine.site for theirs, mine in pairs if theirs.digest != mine.digest]
    if sites:
        return f"another function at {', '.join(dict.fromkeys(sites))}"
    return "" if first.options == second.options else "other options"


def _tried_to_create(hello: m.ClientHello) -> str:
    return f"Tried to create job with name {hello.job}, but found an existing job with different"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "enabled" if value else "disabled"
    return value.name if isinstance(value, enum.Enum) else str(value)


def _describe(dataset: m.RegisterDataset | DatasetInfo) -> str:
    nodes = " → ".join(kinds_of(dataset.structure))
    return f"{nodes} with element_spec {spec_from_wire(dataset.spec)}"


def _first_node(
    first: m.RegisterDataset | DatasetInfo, second: m.RegisterDataset | DatasetInfo
) -> str:
    """Return the first node that differs, as part of a sentence; "" if none does."""
    has, wants = decode_parts(first.structure), decode_parts(second.structure)
    if has == wants:
        return ""
    index = first_difference(has, wants)
    texts = [
        call_text(parts[index][0], parts[index][2]) if index < len(parts) else "none"
        for parts in (has, wants)
    ]
    return f"; the first node that differs: Existing: <{texts[0]}>; got <{texts[1]}>"


def check_runnable(state: State, dataset: DatasetInfo) -> None:
    """Check that one of the workers can run the dataset, if there are workers.

    Raises:
        FailedPreconditionError: if there are workers and none can run it.
    """
    workers = [worker.added for worker in state.workers.values()]
    if workers and not any(dataset.runs_on(worker) for worker in workers):
        have = sorted({_versions(worker.versions) for worker in workers})
        raise FailedPreconditionError(
            f"the dataset was registered from {_versions(dataset.versions)}, but the workers run "
            f"{' and '.join(have)}: functions do not travel between them. Run the workers with the "
            "trainer's Python minor and NumPy major version"
        )


def _versions(versions: m.Versions) -> str:
    return f"Python {versions.python} with NumPy {versions.numpy}"


def check_local(state: State, hello: m.ClientHello) -> None:
    """Check that a client with `target_workers="LOCAL"` has a worker in its process.

    Raises:
        InvalidArgumentError: if its process has no worker.
    """
    if hello.parameters.target_workers == "LOCAL" and not any(
        worker.added.serves(hello.process, "LOCAL") for worker in state.workers.values()
    ):
        raise mode_of(hello.parameters).no_local_worker()
