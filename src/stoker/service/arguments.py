"""What `distribute` and `from_dataset_id` take alike, and the checks of it."""

from typing import Any

from stoker.errors import InvalidArgumentError, UnimplementedError
from stoker.service import messages as m
from stoker.service.config import ShardingPolicy, parse_service
from stoker.service.source import Reading
from stoker.wire.compression import AUTO, CODECS
from stoker.wire.transports import get_transport

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


def parse_reading(
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
    buffer_bytes: Any,
) -> Reading:
    """Checks the arguments that `distribute` and `from_dataset_id` share."""
    address = parse_service(service)[1]
    _check_job_name(job_name)
    _check_consumers(job_name, consumer_index, num_consumers)
    if max_outstanding_requests is not None and not _is_positive(max_outstanding_requests):
        raise InvalidArgumentError(
            f"`max_outstanding_requests` must be a positive int, got {max_outstanding_requests!r}"
        )
    if not _is_positive(buffer_bytes):
        raise InvalidArgumentError(
            f"`buffer_bytes` must be a positive int, got {buffer_bytes!r}; it bounds what workers "
            "send ahead of what is taken here"
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
        parameters=m.JobParameters(policy, target_workers.upper()),
        max_outstanding=max_outstanding_requests,
        transport=data_transfer_protocol,
        connect_timeout=connect_timeout,
        buffer_bytes=buffer_bytes,
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


def check_compression(compression: Any) -> None:
    """Raises InvalidArgumentError unless it is "AUTO", ``None`` or a codec of this version."""
    names = (AUTO, *CODECS)
    if compression is not None and compression not in names:
        raise InvalidArgumentError(
            f"Invalid `compression` argument: {compression!r}. Must be one of "
            f"{', '.join(map(repr, names))} or None"
        )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
