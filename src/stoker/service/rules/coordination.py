"""Checks of coordinated reads."""

from stoker.dataset.options import Options
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stoker.errors import FailedPreconditionError, InvalidArgumentError
from stoker.service import messages as m


def check_index(hello: m.ClientHello) -> None:
    """Check that a consumer has a valid index, and another client none.

    Raises:
        InvalidArgumentError: if not.
    """
    index, count = hello.consumer_index, hello.parameters.num_consumers
    if index is None and count is None:
        return
    if index is None or count is None or not 0 <= index < count:
        raise InvalidArgumentError(
            f"`consumer_index` must be in [0, num_consumers), got {index!r} of {count!r}"
        )


def check_not_local(parameters: m.JobParameters) -> None:
    """Check that a coordinated read is not one of local workers.

    Raises:
        InvalidArgumentError: if it is.
    """
    if parameters.num_consumers is not None and parameters.target_workers == "LOCAL":
        raise InvalidArgumentError(
            'Coordinated reads require non-local workers, but `target_workers` is "LOCAL". All '
            'consumers read the same workers: use target_workers="ANY" or "AUTO"'
        )


def check_coordinated(hello: m.ClientHello, size: int, options: Options) -> None:
    """Check that a dataset can be read in rounds.

    Raises:
        InvalidArgumentError: if the client reads local workers only.
        FailedPreconditionError: if the dataset is finite and its options do not allow that.
    """
    check_not_local(hello.parameters)
    unknown = size in (INFINITE_CARDINALITY, UNKNOWN_CARDINALITY)
    if not unknown and not options.finite_coordinated:
        raise FailedPreconditionError(
            "Round robin reads require that the input dataset has infinite cardinality, but the "
            f"dataset has cardinality {size}. Consider adding a `.repeat()` transformation "
            "to the dataset; or end all consumers at the same step: "
            "Dataset.with_options(stoker.Options(finite_coordinated=True))"
        )
