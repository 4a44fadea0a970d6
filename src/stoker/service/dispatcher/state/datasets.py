"""Datasets: registered, kept, without their trees, and removed."""

import logging

import msgspec

from stoker.service.dispatcher.entities.registered import DatasetInfo
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.state import State


class DatasetAdded(DatasetInfo, Record, frozen=True, tag="DatasetAdded"):
    """A dataset was registered."""

    def fits(self, state: State) -> bool:
        """Return whether the dataset is new, or its tree was dropped."""
        existing = state.datasets.get(self.dataset_id)
        # A dropped tree comes again; and an explicit id may be the digest of another dataset.
        return existing is None or not existing.tree or existing.digest != self.digest

    def apply(self, state: State) -> None:
        """Add the dataset."""
        state.datasets[self.dataset_id] = self

    def log_after(self, state: State, log: EventLog) -> None:
        """Log the registration."""
        text = f"dataset {self.dataset_id} was registered ({len(self.tree)} bytes)"
        log.add(logging.DEBUG, text)


class DatasetKept(Record, frozen=True):
    """A dataset that a client had brought was registered by `RegisterDataset`."""

    dataset_id: str

    def apply(self, state: State) -> None:
        """Keep the dataset."""
        dataset = state.datasets[self.dataset_id]
        state.datasets[self.dataset_id] = msgspec.structs.replace(dataset, kept=True)


class TreeDropped(Record, frozen=True):
    """The tree of a dataset was dropped; a client that needs it sends it again."""

    dataset_id: str

    def apply(self, state: State) -> None:
        """Drop the tree."""
        dataset = state.datasets[self.dataset_id]
        state.datasets[self.dataset_id] = msgspec.structs.replace(dataset, tree=b"")


class DatasetRemoved(Record, frozen=True):
    """A dataset was removed: no job has it."""

    dataset_id: str

    def fits(self, state: State) -> bool:
        """Return whether no job has the dataset."""
        return self.dataset_id not in state.jobs_of

    def apply(self, state: State) -> None:
        """Remove the dataset."""
        del state.datasets[self.dataset_id]

    def log_after(self, state: State, log: EventLog) -> None:
        """Log the removal."""
        log.add(logging.DEBUG, f"dataset {self.dataset_id} was removed")
