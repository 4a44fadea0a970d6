"""Registered datasets: identical datasets without an explicit id share one, their digest."""

import msgspec

from stoker.dataset.tree.splits import IndexSplits, Source
from stoker.dataset.tree.structure import structure_of
from stoker.elements.spec import compatible, spec_from_wire
from stoker.errors import InvalidArgumentError, NotFoundError
from stoker.service import messages as m
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.entities.registered import DatasetInfo
from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.state import State


def find_dataset(state: State, dataset_id: str) -> DatasetInfo:
    """Return the dataset with this id, with its tree.

    Raises:
        NotFoundError: if no dataset has this id, or its tree was dropped.
    """
    dataset = state.datasets.get(dataset_id)
    if dataset is None:
        raise NotFoundError(
            f"Dataset id {dataset_id} not found. It must be registered with `register_dataset` "
            "before calling `from_dataset_id`."
        )
    if not dataset.tree:
        raise NotFoundError(
            f"Dataset id {dataset_id} not found. The job that brought it has not been read for "
            "long, so its functions were dropped; datasets that are read by id are kept if they "
            "are registered with register_dataset"
        )
    return dataset


def registered_id(ledger: Ledger, request: m.RegisterDataset, *, kept: bool) -> str:
    """Return the id of the dataset and register it if it is new; "" if that needs its tree.

    Args:
        ledger: the state.
        request: the dataset.
        kept: keep it for readers of its id; otherwise, until its last job is removed.

    Raises:
        InvalidArgumentError: if the explicit id belongs to a dataset of another structure, or the
            tree cannot be decoded.
    """
    dataset_id = known_id(ledger.state, request)
    if not dataset_id and request.tree:
        record = new_dataset(request, kept)
        ledger.commit(record)
        dataset_id = record.dataset_id
    elif kept and dataset_id and not ledger.state.datasets[dataset_id].kept:
        ledger.commit(r.DatasetKept(dataset_id))
    return dataset_id


def can_register(state: State, request: m.RegisterDataset) -> bool:
    """Return whether the dataset is or can be registered; False if that needs its tree.

    Raises:
        InvalidArgumentError: as of `registered_id`.
    """
    if known_id(state, request):
        return True
    if request.tree:
        new_dataset(request, kept=False)
    return bool(request.tree)


def known_id(state: State, request: m.RegisterDataset) -> str:
    """Return the id under which this dataset is registered; "" if it is not.

    Raises:
        InvalidArgumentError: if the explicit id belongs to a dataset of another structure.
    """
    existing = state.datasets.get(request.dataset_id or request.digest)
    if existing is None:
        return ""
    if not request.dataset_id:
        # Not an explicit id with the same bytes: its owner may register other functions under it.
        known = existing.digest == request.digest and existing.tree
        return existing.dataset_id if known else ""
    # The functions may differ, as in tf.data service: an explicit id names what its owner
    # registers.
    if not compatible(spec_from_wire(existing.spec), spec_from_wire(request.spec)):
        raise InvalidArgumentError(
            "Datasets with the same ID should have the same structure, got diff in element_spec: "
            f"{request.dataset_id!r} is registered with element_spec "
            f"{spec_from_wire(existing.spec)}, now requested with {spec_from_wire(request.spec)}"
        )
    return request.dataset_id


def new_dataset(request: m.RegisterDataset, kept: bool) -> r.DatasetAdded:
    """Return the record of a new dataset.

    Raises:
        InvalidArgumentError: if the tree or the element_spec cannot be decoded, or the sources are
            not possible.
    """
    structure = structure_of(request.tree)
    spec_from_wire(request.spec)
    _check_sources(request.sources)
    _check_sources(request.file_sources)
    fields = msgspec.structs.asdict(request) | {
        "dataset_id": request.dataset_id or request.digest,
        "structure": structure,  # of the tree, as a client may describe another one
        "kept": kept,
    }
    return r.DatasetAdded(**fields)


def _check_sources(sources: list[Source]) -> None:
    if len({source.number for source in sources}) < len(sources):
        raise InvalidArgumentError(f"`sources` must have different numbers, got {sources}")
    for source in sources:
        if isinstance(source.splits, IndexSplits) and source.splits.count < 0:
            raise InvalidArgumentError(
                f"`count` of source {source.number} must not be negative, got {source.splits.count}"
            )
