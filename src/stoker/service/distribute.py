"""Datasets that are read from a service: `distribute`, `register_dataset`, `from_dataset_id`."""

import dataclasses
import hashlib
import itertools
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from stoker.dataset.dataset import Dataset
from stoker.dataset.execute import Context, Statistics
from stoker.dataset.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    Source,
    Splits,
    Unsplittable,
    call_site,
    decode_wire_nodes,
    encode_tree,
    source_summary,
    structure_of,
)
from stoker.dataset.opaque import Opaque
from stoker.dataset.options import Options
from stoker.dataset.spec import Spec, spec_from_wire, spec_to_wire
from stoker.dataset.stream import Stream
from stoker.errors import InvalidArgumentError, UnimplementedError
from stoker.service import messages as m
from stoker.service import rpc
from stoker.service.client.shell import ServiceStream
from stoker.service.config import ShardingPolicy, parse_processing_mode, parse_service
from stoker.service.versions import versions
from stoker.wire.transports import get_transport
from stoker.wire.transports.local import process_token

CONNECT_TIMEOUT = 300.0
TARGET_WORKERS = ("AUTO", "ANY", "LOCAL")


class CrossTrainerCache:
    """Trainers with different ids read the same elements; as tf.data service's.

    Args:
        trainer_id: of the trainer; trainers of one job differ in it.

    Raises:
        InvalidArgumentError: it is empty.
    """

    def __init__(self, trainer_id: str) -> None:
        if not trainer_id:
            raise InvalidArgumentError(
                "tf.data service cross-trainer cache requires a non-empty trainer ID"
            )
        self.trainer_id = trainer_id


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a job is read: everything about a distributed dataset that is not its structure.

    Attributes:
        registration: what to register before reading; ``None``: `dataset_id` exists.
    """

    address: str
    job: str
    named: bool
    parameters: m.JobParameters
    max_outstanding: int | None
    transport: str | None
    connect_timeout: float
    registration: m.RegisterDataset | None
    dataset_id: str = ""

    def open(self, repetition: tuple[int, ...], spec: Spec, statistics: Statistics) -> Stream:
        """Registers if need be, and begins to read one repetition of the job."""
        dataset_id = self.dataset_id
        if self.registration is not None:
            dataset_id = _register(self.address, self.registration, self.connect_timeout)
        hello = m.ClientHello(
            m.PROTOCOL_MIN,
            m.PROTOCOL_MAX,
            dataset_id,
            self.job,
            self.parameters,
            repetition,
            self.named,
            process_token(),
        )
        return ServiceStream(
            hello,
            self.address,
            spec,
            self.max_outstanding,
            self.transport,
            self.connect_timeout,
            statistics,
        )


class Distributed(Node, frozen=True, eq=False, kw_only=True, weakref=True):
    """A source that reads a job of a service.

    Attributes:
        reading: a `Reading`.
        spec: the element_spec.
        structure: of the dataset the service runs, as job agreement compares it.
    """

    kind = "distribute"

    reading: Opaque
    spec: Opaque
    structure: bytes
    processing_mode: str
    size: int

    def element_spec(self) -> Spec:
        return self.spec.value

    def cardinality(self) -> int:
        return self.size

    def splits(self) -> Splits:
        return Unsplittable("it reads from another service")

    def open(self, context: Context) -> Stream:
        repetition = context.epoch if context.explicit_epoch else (next(_passes_of(self)),)
        reading: Reading = self.reading.value
        return reading.open(repetition, self.spec.value, context.statistics)


_passes: "weakref.WeakKeyDictionary[Node, Iterator[int]]" = weakref.WeakKeyDictionary()
_passes_lock = threading.Lock()


def _passes_of(node: Node) -> Iterator[int]:
    """The pass counter of a distributed dataset: each opening is a new iteration of its job."""
    with _passes_lock:
        return _passes.setdefault(node, itertools.count())


def distribute(
    processing_mode: ShardingPolicy | str,
    service: Any,
    job_name: str | None = None,
    consumer_index: int | None = None,
    num_consumers: int | None = None,
    max_outstanding_requests: int | None = None,
    data_transfer_protocol: str | None = None,
    compression: str | None = "AUTO",
    cross_trainer_cache: CrossTrainerCache | None = None,
    target_workers: str = "AUTO",
    *,
    connect_timeout: float = CONNECT_TIMEOUT,
) -> Callable[[Dataset], Dataset]:
    """A transformation that moves what comes before it to the workers of a service.

    Args:
        processing_mode: a `ShardingPolicy`, or "parallel_epochs" (every worker yields the whole
            dataset) or "distributed_epoch" (each element goes to one worker).
        service: "grpc://host:port" of the dispatcher, (protocol, address), or a `LocalCluster`.
        job_name: clients that give the same name share one job, first come first served; without,
            the job is this dataset's own (and its copies' in forked or unpickled processes).
        consumer_index: for coordinated reads; not in this version.
        num_consumers: for coordinated reads; not in this version.
        max_outstanding_requests: elements sent by workers and not yet taken here, at most.
        data_transfer_protocol: "tcp" or "local"; ``None``: the best there is.
        compression: "AUTO" or ``None``; this version never compresses.
        cross_trainer_cache: not in this version.
        target_workers: "AUTO", "ANY" or "LOCAL" (only workers of this process).
        connect_timeout: seconds to wait for the dispatcher.

    Returns:
        A function for `Dataset.apply`.

    Raises:
        InvalidArgumentError: an argument is wrong; also a ValueError.
        NotFoundError: the protocol of `service`, or `data_transfer_protocol`, does not exist.
        UnimplementedError: this version does not have it.

    Example:
        >>> import stoker
        >>> with stoker.LocalCluster(1, threads=True) as cluster:
        ...     dataset = stoker.Dataset.range(4).map(lambda x: x * x)
        ...     list(dataset.apply(distribute("parallel_epochs", cluster.target)))
        [0, 1, 4, 9]

    As `tf.data.experimental.service.distribute`.
    """
    policy = parse_processing_mode(processing_mode)
    _check_compression(compression)
    reading = _reading(
        policy,
        service,
        job_name,
        consumer_index,
        num_consumers,
        max_outstanding_requests,
        data_transfer_protocol,
        cross_trainer_cache,
        target_workers,
        connect_timeout,
    )
    site = call_site()

    def transformation(dataset: Dataset) -> Dataset:
        registration = _registration(dataset, compression)
        _check_splittable(policy, registration.sources)
        job = reading.job if reading.named else f"anonymous:{uuid.uuid4().hex}"
        return _dataset(
            dataclasses.replace(reading, job=job, registration=registration),
            dataset.element_spec,
            registration,
            registration.size,
            site,
            dataset.options(),
        )

    return transformation


def register_dataset(
    service: Any,
    dataset: Dataset,
    compression: str | None = "AUTO",
    dataset_id: str | None = None,
) -> str:
    """Registers a dataset with a service, to be read by `from_dataset_id`.

    Args:
        service: "grpc://host:port" of the dispatcher, (protocol, address), or a `LocalCluster`.
        dataset: what the workers shall run.
        compression: "AUTO" or ``None``; this version never compresses.
        dataset_id: an id of your own; without, identical datasets have the same id.

    Returns:
        The id.

    Raises:
        InvalidArgumentError: `dataset_id` belongs to a dataset of another structure.
        UnavailableError: there is no dispatcher.

    As `tf.data.experimental.service.register_dataset`.
    """
    _check_compression(compression)
    address = parse_service(service)[1]
    registration = msgspec.structs.replace(
        _registration(dataset, compression), dataset_id=dataset_id or ""
    )
    return _register(address, registration, CONNECT_TIMEOUT)


def from_dataset_id(
    processing_mode: ShardingPolicy | str,
    service: Any,
    dataset_id: str,
    element_spec: Spec | None = None,
    job_name: str | None = None,
    consumer_index: int | None = None,
    num_consumers: int | None = None,
    max_outstanding_requests: int | None = None,
    data_transfer_protocol: str | None = None,
    cross_trainer_cache: CrossTrainerCache | None = None,
    target_workers: str = "AUTO",
    *,
    connect_timeout: float = CONNECT_TIMEOUT,
) -> Dataset:
    """A dataset that reads what was registered under an id.

    Args:
        processing_mode: as for `distribute`.
        service: as for `distribute`.
        dataset_id: from `register_dataset`.
        element_spec: of the elements; asked of the dispatcher if not given.
        job_name: as for `distribute`; jobs of different datasets may have the same name.
        consumer_index: as for `distribute`.
        num_consumers: as for `distribute`.
        max_outstanding_requests: as for `distribute`.
        data_transfer_protocol: as for `distribute`.
        cross_trainer_cache: as for `distribute`.
        target_workers: as for `distribute`.
        connect_timeout: as for `distribute`.

    Raises:
        InvalidArgumentError: an argument is wrong.
        NotFoundError: there is no such dataset.
        UnavailableError: there is no dispatcher.

    As `tf.data.experimental.service.from_dataset_id`.
    """
    policy = parse_processing_mode(processing_mode)
    reading = _reading(
        policy,
        service,
        job_name,
        consumer_index,
        num_consumers,
        max_outstanding_requests,
        data_transfer_protocol,
        cross_trainer_cache,
        target_workers,
        connect_timeout,
    )
    size = UNKNOWN_CARDINALITY
    if element_spec is None:
        question = m.GetDataset(dataset_id, with_tree=False)
        reply = rpc.call_patiently(reading.address, question, connect_timeout)
        assert isinstance(reply, m.DatasetReply)
        element_spec, size = spec_from_wire(reply.spec), reply.size
    job = f"{dataset_id}/{job_name}" if reading.named else f"anonymous:{uuid.uuid4().hex}"
    reading = dataclasses.replace(reading, job=job, dataset_id=dataset_id)
    return _dataset(reading, element_spec, None, size, call_site(), Options())


# ── parts ────────────────────────────────────────────────────────────────────────────────────────
def _reading(
    policy: ShardingPolicy,
    service: Any,
    job_name: str | None,
    consumer_index: int | None,
    num_consumers: int | None,
    max_outstanding_requests: int | None,
    data_transfer_protocol: str | None,
    cross_trainer_cache: CrossTrainerCache | None,
    target_workers: Any,
    connect_timeout: float,
) -> Reading:
    """Checks the arguments that `distribute` and `from_dataset_id` share."""
    address = parse_service(service)[1]
    _check_job_name(job_name)
    _check_consumers(job_name, consumer_index, num_consumers)
    if max_outstanding_requests is not None and not _is_positive(max_outstanding_requests):
        raise InvalidArgumentError(
            f"`max_outstanding_requests` must be a positive int, got {max_outstanding_requests!r}"
        )
    if not isinstance(target_workers, str) or target_workers.upper() not in TARGET_WORKERS:
        raise InvalidArgumentError(
            f"`target_workers` must be one of {', '.join(TARGET_WORKERS)}, got {target_workers!r}"
        )
    if data_transfer_protocol is not None:
        get_transport(data_transfer_protocol)
    if cross_trainer_cache is not None:
        raise UnimplementedError("`cross_trainer_cache` is not in this version of stoker")
    if num_consumers is not None:
        raise UnimplementedError(
            "coordinated reads (`num_consumers`) are not in this version of stoker"
        )
    return Reading(
        address=address,
        job=job_name or "",
        named=job_name is not None,
        parameters=m.JobParameters(policy.name, target_workers.upper()),
        max_outstanding=max_outstanding_requests,
        transport=data_transfer_protocol,
        connect_timeout=connect_timeout,
        registration=None,
    )


def _check_job_name(job_name: Any) -> None:
    if job_name is not None and not isinstance(job_name, str):
        raise InvalidArgumentError(f"`job_name` must be a string, got {job_name!r}")
    if job_name == "":
        raise InvalidArgumentError("`job_name` must not be empty")


def _check_consumers(job_name: str | None, index: Any, count: Any) -> None:
    if (index is None) != (count is None):
        raise InvalidArgumentError(
            "`consumer_index` and `num_consumers` must be given together, got "
            f"consumer_index={index!r}, num_consumers={count!r}"
        )
    if count is None:
        return
    if job_name is None:
        raise InvalidArgumentError("`num_consumers` needs a `job_name` that all consumers give")
    if not _is_positive(count) or not isinstance(index, int) or not 0 <= index < count:
        raise InvalidArgumentError(
            f"`consumer_index` must be in [0, num_consumers), got {index!r} of {count!r}"
        )


def _check_compression(compression: Any) -> None:
    if compression not in ("AUTO", None):
        raise InvalidArgumentError(
            f"Invalid `compression` argument: {compression!r}. Must be 'AUTO' or None"
        )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _check_splittable(policy: ShardingPolicy, sources: list[Source]) -> None:
    for source in sources:
        if policy is ShardingPolicy.DYNAMIC and isinstance(source.splits, Unsplittable):
            raise UnimplementedError(
                f"`{source.kind}` ({source.site}) cannot be split: {source.splits.why}. "
                'Use processing_mode="parallel_epochs", or a source that can be split'
            )


def _registration(dataset: Dataset, compression: str | None) -> m.RegisterDataset:
    """The dataset as it is registered; functions are pickled here, where the user's line is."""
    tree = encode_tree(dataset.node)
    spec = spec_to_wire(dataset.element_spec)
    options = dataset.options()
    digest = hashlib.blake2b(digest_size=16)
    for part in (tree, msgspec.msgpack.encode((spec, options, compression))):
        digest.update(len(part).to_bytes(8, "little") + part)
    return m.RegisterDataset(
        digest=digest.hexdigest(),
        tree=tree,
        spec=spec,
        options=options,
        size=_cardinality(dataset),
        sources=source_summary(dataset.node),
        runs_python=any(node.opaques for node in decode_wire_nodes(tree)),
        versions=versions(),
        compression=compression,
    )


def _register(address: str, registration: m.RegisterDataset, timeout: float) -> str:
    """The dataset's id; its tree is sent only if the dispatcher does not have it."""
    question = msgspec.structs.replace(registration, tree=b"")
    reply = rpc.call_patiently(address, question, timeout)
    assert isinstance(reply, m.DatasetRegistered)
    if not reply.dataset_id:
        reply = rpc.call_patiently(address, registration, timeout)
        assert isinstance(reply, m.DatasetRegistered)
    return reply.dataset_id


def _cardinality(dataset: Dataset) -> int:
    known = dataset.cardinality()
    return known if known in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY


def _dataset(
    reading: Reading,
    spec: Spec,
    registration: m.RegisterDataset | None,
    size: int,
    site: str,
    options: Options,
) -> Dataset:
    structure = structure_of(registration.tree) if registration is not None else b""
    return Dataset(
        Distributed(
            reading=Opaque.of(reading),
            spec=Opaque.of(spec),
            structure=structure,
            processing_mode=reading.parameters.processing_mode,
            size=size,
            site=site,
        ),
        options,
    )
