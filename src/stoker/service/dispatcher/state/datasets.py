"""Datasets: registered, kept, without their trees, and removed."""

import logging

import msgspec

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.handlers import Handlers
from stoker.service.dispatcher.state.state import State

handlers = Handlers()


@handlers.add
def _add_dataset(state: State, dataset: r.DatasetAdded) -> None:
    state.datasets[dataset.dataset_id] = dataset


@handlers.check
def _check_dataset_added(state: State, record: r.DatasetAdded) -> bool:
    existing = state.datasets.get(record.dataset_id)
    # A dropped tree comes again; and an explicit id may be the digest of another dataset.
    return existing is None or not existing.tree or existing.digest != record.digest


@handlers.apply
def _apply_dataset_added(state: State, record: r.DatasetAdded) -> None:
    _add_dataset(state, record)


@handlers.log_after
def _log_dataset_added(_state: State, log: EventLog, record: r.DatasetAdded) -> None:
    text = f"dataset {record.dataset_id} was registered ({len(record.tree)} bytes)"
    log.add(logging.DEBUG, text)


@handlers.apply
def _apply_dataset_kept(state: State, record: r.DatasetKept) -> None:
    dataset = state.datasets[record.dataset_id]
    state.datasets[record.dataset_id] = msgspec.structs.replace(dataset, kept=True)


@handlers.apply
def _apply_tree_dropped(state: State, record: r.TreeDropped) -> None:
    dataset = state.datasets[record.dataset_id]
    state.datasets[record.dataset_id] = msgspec.structs.replace(dataset, tree=b"")


@handlers.check
def _check_dataset_removed(state: State, record: r.DatasetRemoved) -> bool:
    return record.dataset_id not in state.jobs_of


@handlers.apply
def _apply_dataset_removed(state: State, record: r.DatasetRemoved) -> None:
    del state.datasets[record.dataset_id]


@handlers.log_after
def _log_dataset_removed(_state: State, log: EventLog, record: r.DatasetRemoved) -> None:
    log.add(logging.DEBUG, f"dataset {record.dataset_id} was removed")
