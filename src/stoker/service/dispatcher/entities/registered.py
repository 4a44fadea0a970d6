"""Descriptions of datasets, workers and jobs, as they were registered; they never change.

The records that add these entities are subclasses: an entity keeps the record whole.
"""

from typing import Any

import msgspec

from stoker.dataset.drawn_seeds import DrawnSeeds
from stoker.dataset.options import Options
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


class JobInfo(msgspec.Struct, frozen=True, array_like=True, tag="JobAdded"):
    """A job as its first client asked for it; `seeds` are those of its dataset."""

    job: str
    named: bool
    dataset_id: str
    parameters: JobParameters
    seeds: DrawnSeeds = DrawnSeeds()
