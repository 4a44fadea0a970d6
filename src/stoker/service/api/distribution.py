"""Reading datasets from a service: `distribute`, `register_dataset`, `from_dataset_id`."""

import dataclasses
import enum
from typing import Any, TypeVar

import msgspec

from stoker.dataset.dataset import Dataset
from stoker.dataset.options import Options
from stoker.dataset.tree.call_site import call_site
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, number
from stoker.dataset.tree.splitting import split_cardinality
from stoker.elements.spec import Spec, spec_from_wire
from stoker.errors import InvalidTypeError
from stoker.service import messages as m
from stoker.service.api.deterministic import check_dataset
from stoker.service.api.read_options import (
    CONNECT_TIMEOUT,
    CrossTrainerCache,
    ReadOptions,
    check_compression,
    parse_read_options,
)
from stoker.service.api.reader_node import (
    initial_draws,
    reader_node,
    reader_seed,
    record_classes,
    registered,
)
from stoker.service.api.registration import register, registration_of
from stoker.service.client.flow.credit import BUFFER_BYTES
from stoker.service.config import check_text, parse_service
from stoker.service.rules.checks import (
    assigns_splits,
    check_cacheable,
    check_counted,
    check_not_local,
    check_splittable,
    reads_by_position,
)

_Dataset = TypeVar("_Dataset", bound=Dataset)


def distribute(
    processing_mode: enum.IntEnum | str,
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
    buffer_bytes: int = BUFFER_BYTES,
    on_loss: str = "warn",
    drop_short_step: bool = False,
) -> "Distribution":
    """Return a transformation that runs the dataset on the workers of a service.

    Args:
        processing_mode: a `ShardingPolicy`, or "parallel_epochs" (every worker yields the whole
            dataset), "distributed_epoch" (each element is yielded by one worker) or
            "deterministic_epoch" (the elements, order and states of the same pipeline without a
            service, whatever happens to workers; for datasets in which the position of every
            element is known). Under FILE, DATA, FILE_OR_DATA and HINT each worker of
            `DispatcherConfig.worker_addresses` yields its own shard.
        service: "grpc://host:port" or "host" (port 5050) of the dispatcher, (protocol, address), or
            a `LocalCluster`.
        job_name: clients with the same name share a job, first come, first served. ``None``: a
            job of this dataset only and of its copies in forked or unpickled processes.
        consumer_index: index of this consumer of a coordinated read, in [0, `num_consumers`).
        num_consumers: number of consumers of a coordinated read: in each step all consumers get
            consecutive elements of the same worker. Needs `job_name`, and infinite data unless the
            dataset has `Options(finite_coordinated=True)`. In "deterministic_epoch" element ``i``
            is for consumer ``i % num_consumers``, and neither is needed.
        max_outstanding_requests: most elements that workers have sent and this client has not
            yielded; ``None``: bounded by `buffer_bytes` and the speed of the reader.
        data_transfer_protocol: "local" (within this process), "shm" (shared memory, on this host),
            "tcp" or "grpc" (only workers that are configured for it; needs ``stoker[grpc]``).
            ``None``: the first of "local", "shm" and "tcp" that reaches the worker. A named
            protocol that does not reach the worker is replaced by these, with a warning.
        compression: codec of the elements sent to this trainer. "AUTO": compress if the network is
            the bottleneck and measurements show that compression makes reading faster. "LZ4",
            "SNAPPY", "ZSTD": always compress, with that codec. ``None``: never. Elements in shared
            memory and within a process are not compressed. Clients of a job may differ in
            `compression`.
        cross_trainer_cache: a `CrossTrainerCache`: clients of a job with different trainer ids
            get the same elements, which workers compute once. The dataset must be infinite.
        target_workers: "AUTO", "ANY" or "LOCAL" (only workers of this process).
        connect_timeout: seconds to wait for the dispatcher.
        buffer_bytes: about the most bytes that all workers together have sent and this client has
            not yielded; each worker may exceed its part by an element.
        on_loss: what a read does when elements are lost with a worker, or with another client of
            the job: "warn" logs a warning, "raise" raises a `DataLossError`, once for each loss;
            reading may continue afterwards. In "deterministic_epoch" nothing is lost.
        drop_short_step: in "deterministic_epoch", leave out a last step in which some consumers
            have no element, so that all end at the same step.

    Returns:
        A function for `Dataset.apply`.

    Raises:
        InvalidArgumentError: if `processing_mode`, `service`, `compression`, `target_workers` or
            `on_loss` is none of the above, `job_name` is empty, `max_outstanding_requests` or
            `buffer_bytes` is not a positive int, `consumer_index` is not in [0, `num_consumers`),
            or only one of these two is given, or both without `job_name`; with
            `cross_trainer_cache`, if the dataset is finite, there is no `job_name`, or
            `num_consumers` is given. In "deterministic_epoch", if a function has a state, or
            `cross_trainer_cache` is given.
        NotFoundError: if the protocol of `service` or `data_transfer_protocol` does not exist.
        UnimplementedError: if a source of the dataset cannot be split ("distributed_epoch"), or the
            positions of its elements are not known ("deterministic_epoch").

    Example:
        >>> import stoker
        >>> with stoker.LocalCluster(1, threads=True) as cluster:
        ...     dataset = stoker.Dataset.range(4).map(lambda x: x * x)
        ...     list(dataset.apply(distribute("parallel_epochs", cluster.target)))
        [0, 1, 4, 9]

    As `tf.data.experimental.service.distribute`.
    """
    check_compression(compression)
    options = parse_read_options(
        processing_mode,
        service,
        target_workers,
        job_name=job_name,
        consumer_index=consumer_index,
        num_consumers=num_consumers,
        max_outstanding_requests=max_outstanding_requests,
        data_transfer_protocol=data_transfer_protocol,
        cross_trainer_cache=cross_trainer_cache,
        connect_timeout=connect_timeout,
        buffer_bytes=buffer_bytes,
        on_loss=on_loss,
        drop_short_step=drop_short_step,
    )
    return Distribution(options, compression, call_site())


@dataclasses.dataclass(frozen=True)
class Distribution:
    """The transformation that `distribute` returns.

    Attributes:
        options: the options of the reader.
        compression: as of `distribute`.
        site: file and line of the call of `distribute`.
    """

    options: ReadOptions
    compression: str | None
    site: str

    def __call__(self, dataset: _Dataset) -> _Dataset:
        """Return a dataset that reads `dataset` from the service."""
        options, job_name = self.options, self.options.job_name
        registration = registration_of(dataset, self.compression)
        if reads_by_position(options.processing_mode):
            return self._by_position(dataset, registration)
        # Readers of `stoker.compat.tf` get these errors from the dispatcher, at the first read, as
        # in tf.data service.
        if not options.tensorflow_timing:
            check_splittable(options.processing_mode, registration.sources)
            check_not_local(options.job_parameters)
            if options.cross_trainer_cache is not None:
                check_cacheable(registration.size)
        finite = dataset.options().finite_coordinated
        spec = dataset.element_spec
        size = options.cardinality(registration.size, finite_coordinated=finite)
        classes = record_classes(spec, dataset.node)
        # `len` is that of an epoch without losses, for progress bars; the cardinality must hold
        # always. (docs/decisions/090)
        length = UNKNOWN_CARDINALITY
        if job_name is None and assigns_splits(options.processing_mode):
            length = split_cardinality(dataset.node)
        elif job_name is None and options.divides_elements:
            length = registration.size
        node = reader_node(
            options, spec, classes, self.site, size=size, length=length, registration=registration
        )
        return dataset._with_node(node)

    def _by_position(self, dataset: _Dataset, registration: m.RegisterDataset) -> _Dataset:
        """Return a dataset that reads a deterministic epoch."""
        options, spec = self.options, dataset.element_spec
        positions = check_dataset(dataset.node, registration)
        node = reader_node(
            options,
            spec,
            record_classes(spec, dataset.node),
            self.site,
            size=options.size_by_position(positions),
            registration=registration,
            draws=initial_draws(options, registration.seeds),
        )
        sites = tuple(each.site for each in number(dataset.node))
        node = msgspec.structs.replace(node, positions=positions, sites=sites)
        seed = reader_seed(options, registration.seeds) or dataset._seed
        return type(dataset)(node, dataset.options(), _seed=seed)


def register_dataset(
    service: Any,
    dataset: Dataset,
    compression: str | None = "AUTO",
    dataset_id: str | None = None,
) -> str:
    """Register a dataset with a service, for `from_dataset_id`.

    Args:
        service: "grpc://host:port" or "host" (port 5050) of the dispatcher, (protocol, address), or
            a `LocalCluster`.
        dataset: the dataset that workers run.
        compression: as for `distribute`, for all readers of the id. If an id is registered twice,
            the first value is used.
        dataset_id: the id to register; ``None``: identical datasets get the same id.

    Returns:
        The id.

    Raises:
        InvalidArgumentError: if `service` or `compression` is not valid, or `dataset_id` belongs
            to a dataset with another element_spec.
        UnavailableError: if no dispatcher answers at `service` within 5 minutes.

    As `tf.data.experimental.service.register_dataset`.
    """
    check_compression(compression)
    if dataset_id is not None:
        _check_dataset_id(dataset_id)
    address = parse_service(service)[1]
    registration = msgspec.structs.replace(
        registration_of(dataset, compression), dataset_id=dataset_id or ""
    )
    return register(address, registration, CONNECT_TIMEOUT)


def from_dataset_id(
    processing_mode: enum.IntEnum | str,
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
    buffer_bytes: int = BUFFER_BYTES,
    on_loss: str = "warn",
    drop_short_step: bool = False,
) -> Dataset:
    """Return a dataset that reads the dataset registered under an id.

    Args:
        processing_mode: as for `distribute`.
        service: as for `distribute`.
        dataset_id: from `register_dataset`.
        element_spec: spec of the elements; ``None`` asks the dispatcher. With a spec, nothing is
            asked until the cardinality or an element is needed, except in "deterministic_epoch".
        job_name: as for `distribute`; jobs of different datasets may have the same name.
        consumer_index: as for `distribute`.
        num_consumers: as for `distribute`.
        max_outstanding_requests: as for `distribute`.
        data_transfer_protocol: as for `distribute`.
        cross_trainer_cache: as for `distribute`.
        target_workers: as for `distribute`.
        connect_timeout: as for `distribute`.
        buffer_bytes: as for `distribute`.
        on_loss: as for `distribute`.
        drop_short_step: as for `distribute`.

    Raises:
        InvalidArgumentError: if an argument is not valid, as for `distribute`.
        NotFoundError: if `dataset_id` is not registered and `element_spec` is not given.
        UnavailableError: if no dispatcher answers within `connect_timeout` seconds and
            `element_spec` is not given.
        UnimplementedError: as for `distribute`.

    As `tf.data.experimental.service.from_dataset_id`.
    """
    _check_dataset_id(dataset_id)
    options = parse_read_options(
        processing_mode,
        service,
        target_workers,
        job_name=job_name,
        consumer_index=consumer_index,
        num_consumers=num_consumers,
        max_outstanding_requests=max_outstanding_requests,
        data_transfer_protocol=data_transfer_protocol,
        cross_trainer_cache=cross_trainer_cache,
        connect_timeout=connect_timeout,
        buffer_bytes=buffer_bytes,
        on_loss=on_loss,
        drop_short_step=drop_short_step,
    )
    if reads_by_position(options.processing_mode):
        return _by_position(options, dataset_id, element_spec)
    size = None
    if element_spec is None:
        reply = registered(options, dataset_id)
        finite = reply.options.finite_coordinated
        element_spec = spec_from_wire(reply.spec)
        size = options.cardinality(reply.size, finite_coordinated=finite)
    classes = record_classes(element_spec)
    return Dataset(
        reader_node(options, element_spec, classes, call_site(), size=size, dataset_id=dataset_id)
    )


def _by_position(options: ReadOptions, dataset_id: str, spec: Spec | None) -> Dataset:
    """Return a dataset that reads a deterministic epoch of a registered dataset."""
    reply = registered(options, dataset_id)
    spec = spec_from_wire(reply.spec) if spec is None else spec
    positions = check_counted(reply.positions)
    node = reader_node(
        options,
        spec,
        record_classes(spec),
        call_site(),
        size=options.size_by_position(positions),
        dataset_id=dataset_id,
        draws=initial_draws(options, reply.seeds),
    )
    node = msgspec.structs.replace(node, positions=positions, structure=reply.structure)
    # The seed that was registered is that of the epoch here too.
    own = Options(seed=reply.options.seed)
    return Dataset(node, own, _seed=reader_seed(options, reply.seeds))


def _check_dataset_id(dataset_id: str) -> None:
    if not isinstance(dataset_id, str):
        raise InvalidTypeError(f"`dataset_id` must be a str, got {dataset_id!r}")
    check_text("dataset_id", dataset_id)
