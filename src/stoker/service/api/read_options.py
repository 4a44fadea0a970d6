"""Options of a reader of a job: the common arguments of `distribute` and `from_dataset_id`."""

import dataclasses
from typing import Any

from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, unless_finite
from stoker.dataset.tree.splits import ENDLESS
from stoker.errors import InvalidArgumentError, InvalidTypeError
from stoker.service import messages as m
from stoker.service.client.flow.credit import BUFFER_BYTES
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.service.config import check_text, parse_service
from stoker.service.rules.checks import reads_by_position
from stoker.service.rules.processing_modes import ShardingPolicy, parse_processing_mode
from stoker.wire.compression import AUTO, CODECS
from stoker.wire.transports import get_transport

CONNECT_TIMEOUT = 300.0
"""Seconds to wait for the dispatcher, by default."""

TARGET_WORKERS = ("AUTO", "ANY", "LOCAL")
ON_LOSS = ("warn", "raise")


class CrossTrainerCache:
    """Options of a cache from which trainers with different ids read the same elements.

    Args:
        trainer_id: id of the trainer, unique in its job.

    Raises:
        InvalidArgumentError: if `trainer_id` is empty, or not a str.

    As `tf.data.experimental.service.CrossTrainerCache`.
    """

    def __init__(self, trainer_id: str) -> None:
        if not trainer_id:
            raise InvalidArgumentError(
                "tf.data service cross-trainer cache requires a non-empty trainer ID."
            )
        if not isinstance(trainer_id, str):
            raise InvalidTypeError(f"`trainer_id` must be a str, got {trainer_id!r}")
        check_text("trainer_id", trainer_id)
        self.trainer_id = trainer_id


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of a reader of a job, by the names of the arguments of `distribute`.

    Attributes:
        dispatcher_address: "host:port" of the dispatcher.
        target_workers: "AUTO", "ANY" or "LOCAL".
        on_loss: "warn" or "raise".
        together: as of `EpochShare`; of a deterministic epoch, as `base` and `total`.
        tensorflow_timing: as in tf.data service, a source that cannot be split is an error of the
            first read, opening an iterator waits for its tasks, elements are requested from the
            first read on, few at first, and the end waits for workers that have registered.
        service: the object that the user gave for the address, such as a `LocalCluster`, which
            ends when collected; in this process only.

    Raises:
        InvalidArgumentError: if an option is not valid; names it and its valid range.
        NotFoundError: if `data_transfer_protocol` does not exist.
        UnimplementedError: if this version does not have the option.
    """

    processing_mode: ShardingPolicy
    dispatcher_address: str
    job_name: str | None = None
    consumer_index: int | None = None
    num_consumers: int | None = None
    max_outstanding_requests: int | None = None
    data_transfer_protocol: str | None = None
    cross_trainer_cache: CrossTrainerCache | None = None
    target_workers: str = "AUTO"
    connect_timeout: float = CONNECT_TIMEOUT
    buffer_bytes: int = BUFFER_BYTES
    on_loss: str = "warn"
    together: int = 1
    base: int = 0
    total: int | None = None
    tensorflow_timing: bool = False
    service: Any = dataclasses.field(default=None, repr=False, compare=False)

    # A cluster or server cannot be pickled, and a worker of a loader reads by the address.
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"service": None}

    def __post_init__(self) -> None:
        _check_job_name(self.job_name)
        by_position = reads_by_position(self.processing_mode)
        # Consumers of a deterministic epoch need not know each other.
        needs_name = not by_position and self.job_name is None
        _check_consumers(self.consumer_index, self.num_consumers, needs_name=needs_name)
        limit = self.max_outstanding_requests
        if limit is not None and not _is_positive(limit):
            raise InvalidArgumentError(
                f"`max_outstanding_requests` must be a positive int, got {limit!r}"
            )
        if not _is_positive(self.buffer_bytes):
            raise InvalidArgumentError(
                f"`buffer_bytes` must be a positive int, got {self.buffer_bytes!r}; it bounds what "
                "workers send ahead of the reader"
            )
        _check_choice("target_workers", self.target_workers, TARGET_WORKERS)
        _check_choice("on_loss", self.on_loss, ON_LOSS)
        if self.data_transfer_protocol is not None:
            # A missing extra is an error here, and not of the first read.
            get_transport(self.data_transfer_protocol)
        _check_cache(self.cross_trainer_cache, self.job_name, self.num_consumers)
        if by_position and self.cross_trainer_cache is not None:
            raise InvalidArgumentError(
                '`cross_trainer_cache` is not for "deterministic_epoch", in which each reader gets '
                "the whole epoch or its own part; leave it out, or use "
                'processing_mode="parallel_epochs"'
            )

    @property
    def job_parameters(self) -> m.JobParameters:
        """The options that all clients of a job must agree on."""
        by_position = reads_by_position(self.processing_mode)
        return m.JobParameters(
            self.processing_mode,
            self.target_workers,
            None if by_position else self.num_consumers,
            self.cross_trainer_cache is not None,
        )

    def share(self) -> EpochShare:
        """Return the part of a deterministic epoch that this reader gets."""
        return EpochShare(
            index=self.consumer_index or 0,
            count=self.num_consumers or 1,
            base=self.base,
            together=self.together,
            total=self.total,
        )

    def size_by_position(self, length: int, base: int = 0) -> int:
        """Return the cardinality for this reader of a deterministic epoch.

        Args:
            length: the positions of the epoch; ENDLESS without end.
            base: as of `EpochShare`.
        """
        size = dataclasses.replace(self, base=base).share().length(length)
        return INFINITE_CARDINALITY if size == ENDLESS else size

    @property
    def ties_processes(self) -> bool:
        """True if processes read a deterministic epoch together that cannot agree on a seed."""
        return self.job_name is not None or self.num_consumers is not None

    @property
    def divides_elements(self) -> bool:
        """True if all shards of the elements of the dataset are read."""
        return self.processing_mode is ShardingPolicy.DATA and self.target_workers != "LOCAL"

    def cardinality(self, size: int, *, finite_coordinated: bool = False) -> int:
        """Return the cardinality of an epoch that holds also if workers are lost or added.

        Args:
            size: the cardinality of the dataset that the service runs.
            finite_coordinated: as in `Options` of that dataset.
        """
        if self.num_consumers is not None:
            # All consumers end at one step, which depends on the losses of workers.
            return UNKNOWN_CARDINALITY if finite_coordinated else INFINITE_CARDINALITY
        if self.processing_mode is ShardingPolicy.HINT:
            return UNKNOWN_CARDINALITY  # the shard may be anywhere in the pipeline
        # A worker whose shard has no file yields nothing, also of an infinite dataset.
        by_files = (ShardingPolicy.FILE, ShardingPolicy.FILE_OR_DATA)
        if size == INFINITE_CARDINALITY and self.processing_mode in by_files:
            return UNKNOWN_CARDINALITY
        return unless_finite(size)


def parse_read_options(
    processing_mode: Any,
    service: Any,
    target_workers: Any,
    *,
    drop_short_step: Any,
    num_consumers: Any,
    **options: Any,
) -> ReadOptions:
    """Return the options that a user gave.

    Args:
        processing_mode: a `ShardingPolicy` or its name.
        service: the dispatcher, in a form that `parse_service` accepts.
        target_workers: in upper or lower case.
        drop_short_step: let all consumers end at the same step, in "deterministic_epoch".
        num_consumers: as of `ReadOptions`.
        options: the remaining fields of `ReadOptions`.

    Raises:
        InvalidArgumentError: as `ReadOptions`, and if `processing_mode` or `service` is not valid.
        NotFoundError: if a protocol does not exist.
        UnimplementedError: if this version does not have an option.
    """
    # tf.data service accepts lower case too.
    if isinstance(target_workers, str) and target_workers.upper() in TARGET_WORKERS:
        target_workers = target_workers.upper()
    mode = parse_processing_mode(processing_mode)
    _check_drop_short_step(drop_short_step, mode)
    return ReadOptions(
        processing_mode=mode,
        dispatcher_address=parse_service(service)[1],
        num_consumers=num_consumers,
        target_workers=target_workers,
        together=(num_consumers or 1) if drop_short_step else 1,
        service=service,
        **options,
    )


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidArgumentError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}")


def _check_drop_short_step(drop: Any, mode: ShardingPolicy) -> None:
    if not isinstance(drop, bool):
        raise InvalidArgumentError(f"`drop_short_step` must be a bool, got {drop!r}")
    if drop and not reads_by_position(mode):
        raise InvalidArgumentError(
            '`drop_short_step` needs processing_mode="deterministic_epoch"; consumers of other '
            "modes always end at the same step"
        )


def _check_job_name(job_name: Any) -> None:
    if job_name is not None and not isinstance(job_name, str):
        raise InvalidArgumentError(
            f"`job_name` must be a string, but `job_name` was of type {type(job_name)}. "
            f"job_name={job_name}"
        )
    if job_name == "":
        raise InvalidArgumentError("`job_name` must not be empty")
    check_text("job_name", job_name)


def _check_consumers(index: Any, count: Any, *, needs_name: bool) -> None:
    if (index is None) != (count is None):
        raise InvalidArgumentError(
            "Must either set both `consumer_index` and `num_consumers`, or neither. "
            f"consumer_index={index!r}, num_consumers={count!r}"
        )
    if count is None:
        return
    if needs_name:
        raise InvalidArgumentError(
            "`job_name` must be set when setting `num_consumers`. num_consumers was set to "
            f"{count!r}. All consumers give the same job_name"
        )
    if not _is_positive(count) or not isinstance(index, int) or not 0 <= index < count:
        raise InvalidArgumentError(
            f"`consumer_index` must be in [0, num_consumers), got {index!r} of {count!r}"
        )


def _check_cache(cache: Any, job_name: str | None, num_consumers: int | None) -> None:
    if cache is None:
        return
    if not isinstance(cache, CrossTrainerCache):
        raise InvalidTypeError(
            f"`cross_trainer_cache` must be a CrossTrainerCache or None, got {cache!r}"
        )
    if job_name is None:
        raise InvalidArgumentError(
            "Cross-trainer caching requires named jobs. Got empty `job_name`. Trainers that share "
            "elements give the same job_name"
        )
    if num_consumers is not None:
        raise InvalidArgumentError(
            "Cross-trainer caching does not support coordinated reads. Got `num_consumers` "
            f"{num_consumers}: leave it out, or `cross_trainer_cache`"
        )


def check_compression(compression: Any) -> None:
    """Raise InvalidArgumentError except for "AUTO", ``None`` or a codec of this version."""
    names = (AUTO, *CODECS)
    if compression is not None and compression not in names:
        raise InvalidArgumentError(
            f"Invalid `compression` argument: {compression!r}. Must be one of "
            f"{', '.join(map(repr, names))} or None."
        )


def _is_positive(value: Any) -> bool:
    # True would pass as 1.
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
