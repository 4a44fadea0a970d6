"""Descriptions of datasets, workers and jobs, as they were registered; they never change.

The records that add these entities are subclasses: an entity keeps the record whole.
"""

from typing import Any

import msgspec

from stoker.dataset.drawn_seeds import DrawnSeeds
from stoker.dataset.options import Options
from stoker.dataset.positions.counted import Positions
from stoker.dataset.tree.splits import Source
from stoker.service.messages import Function, JobParameters, Versions


class DatasetInfo(msgspec.Struct, frozen=True, array_like=True, tag="DatasetAdded"):
    """A registered dataset; its tree stays bytes.

    `kept`: by `RegisterDataset`, for readers of its id. Others are removed with their last job.
    """

    dataset_id: str
    digest: str
    tree: bytes
    structure: bytes
    spec: Any
    options: Options
    size: int
    sources: list[Source]
    runs_python: bool
    versions: Versions
    compression: str | None
    functions: list[Function] = []
    kept: bool = False
    file_sources: list[Source] = []
    seeds: DrawnSeeds = DrawnSeeds()
    positions: Positions | None = None

    def runs_on(self, worker: "WorkerInfo") -> bool:
        """Return whether functions pickled with the versions of the dataset run on a worker."""
        return not self.runs_python or self.versions == worker.versions


class WorkerInfo(msgspec.Struct, frozen=True, array_like=True, tag="WorkerAdded"):
    """A worker that has registered; `instance` as in its hello.

    The worker and its supervisor prove with `key` which worker it is. `place`: that of its address
    among the configured ones.
    """

    worker_id: int
    address: str
    data_transfer_addresses: dict[str, str]
    tags: list[str]
    versions: Versions
    instance: str = ""
    key: bytes = b""
    place: int | None = None

    @property
    def process(self) -> str:
        """The process that the worker shares with clients, or ""."""
        return self.data_transfer_addresses.get("local", "").partition("/")[0]

    def is_private(self, target_workers: str) -> bool:
        """Return whether only clients in its own process read from the worker."""
        if target_workers == "AUTO":
            return "COLOCATED" in (tag.upper() for tag in self.tags)
        return target_workers == "LOCAL"

    # A task that no client can read would compute for nobody. (docs/decisions/057)
    def serves(self, process: str, target_workers: str) -> bool:
        """Return whether a client in `process` reads from the worker."""
        return not self.is_private(target_workers) or (bool(process) and process == self.process)


class JobInfo(msgspec.Struct, frozen=True, array_like=True, tag="JobAdded"):
    """A job as its first client asked for it; `seeds` are those of its dataset."""

    job: str
    named: bool
    dataset_id: str
    parameters: JobParameters
    seeds: DrawnSeeds = DrawnSeeds()
