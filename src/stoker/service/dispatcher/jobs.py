"""Checks of a job: its clients must agree, and some worker must be able to run it."""

import enum
from typing import Any

from stoker.dataset.tree.structure import decode_wire_nodes
from stoker.elements.spec import compatible, spec_from_wire
from stoker.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
)
from stoker.service import messages as m
from stoker.service.dispatcher.entities import Job
from stoker.service.dispatcher.placement import can_read, can_run
from stoker.service.dispatcher.records import DatasetAdded
from stoker.service.dispatcher.state import State


def check_agreement(state: State, job: Job, hello: m.ClientHello) -> str:
    """Check that a client's request matches its job; return a warning for its user, or "".

    Raises:
        InvalidArgumentError: if it does not; names the existing and the requested value.
    """
    existing, requested = job.added.parameters, hello.parameters
    for name in requested.__struct_fields__:
        has, wants = getattr(existing, name), getattr(requested, name)
        if has != wants:
            raise InvalidArgumentError(
                f"job {hello.job!r} exists with another `{name}`. Existing: {_shown(has)}; got: "
                f"{_shown(wants)}. "
                "Use the same value, or another job_name"
            )
    if job.added.dataset_id == hello.dataset_id:
        return ""
    first, second = state.datasets[job.added.dataset_id], state.datasets[hello.dataset_id]
    specs = spec_from_wire(first.spec), spec_from_wire(second.spec)
    if first.structure != second.structure or not compatible(*specs):
        raise InvalidArgumentError(
            f"job {hello.job!r} exists with another dataset. Existing: {_describe(first)}; got: "
            f"{_describe(second)}. Clients of one job must agree on nodes and element_spec"
        )
    if (first.tree, first.options) == (second.tree, second.options):
        return ""  # they differ in compression, which clients of one job may choose
    return (
        f"job {hello.job!r} was created with other function bytes than this process would send; "
        "the first registration is used"
    )


def _shown(value: Any) -> str:
    return value.name if isinstance(value, enum.Enum) else str(value)


def _describe(dataset: DatasetAdded) -> str:
    nodes = " → ".join(node.kind for node in decode_wire_nodes(dataset.tree))
    return f"{nodes} with element_spec {spec_from_wire(dataset.spec)}"


def check_runnable(state: State, dataset: DatasetAdded) -> None:
    """Check that one of the workers can run the dataset, if there are workers.

    Raises:
        FailedPreconditionError: if there are workers and none can run it.
    """
    workers = [worker.added for worker in state.workers.values()]
    if workers and not any(can_run(dataset, worker) for worker in workers):
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
        can_read(hello.process, "LOCAL", worker.added) for worker in state.workers.values()
    ):
        raise InvalidArgumentError(
            'Local reads require local tf.data workers: target_workers="LOCAL" reads only workers '
            "started in the trainer's process, and there is none; start a WorkerServer in it"
        )
