"""tf.data's file datasets, as functions; elements are bytes or NumPy values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stoker.compat.tf.data.dataset import Dataset
from stoker.compat.tf.data.values import as_constants
from stoker.compat.tf.dtypes import as_dtype, string
from stoker.dataset.dataset import Dataset as StokerDataset
from stoker.elements.spec import TensorSpec
from stoker.errors import InvalidArgumentError, InvalidTypeError


def TextLineDataset(  # noqa: N802 - classes there
    filenames: Any,
    compression_type: str | None = None,
    buffer_size: int | None = None,  # noqa: ARG001 - of the reading, measured here, not set
    num_parallel_reads: int | None = None,
    name: str | None = None,  # noqa: ARG001 - nothing is named here
) -> Dataset:
    """Yield the lines of text files as bytes; as `tf.data.TextLineDataset`.

    Args:
        filenames: a path, lists of paths, nested or not, or a dataset of paths.
        compression_type: as for `stoker.Dataset.text_lines`.
        buffer_size: ignored.
        num_parallel_reads: as for `stoker.Dataset.text_lines`.
        name: ignored.
    """
    return Dataset.of(
        Dataset.text_lines(_adopted(filenames), compression_type, num_parallel_reads, encoding=None)
    )


def TFRecordDataset(  # noqa: N802
    filenames: Any,
    compression_type: str | None = None,
    buffer_size: int | None = None,  # noqa: ARG001
    num_parallel_reads: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> Dataset:
    """Yield the records of TFRecord files as bytes; as `tf.data.TFRecordDataset`.

    Args:
        filenames: a path, lists of paths, nested or not, or a dataset of paths.
        compression_type: as for `stoker.Dataset.tfrecords`.
        buffer_size: ignored.
        num_parallel_reads: as for `stoker.Dataset.tfrecords`.
        name: ignored.
    """
    return Dataset.of(Dataset.tfrecords(_adopted(filenames), compression_type, num_parallel_reads))


def FixedLengthRecordDataset(  # noqa: N802
    filenames: Any,
    record_bytes: int,
    header_bytes: int | None = None,
    footer_bytes: int | None = None,
    buffer_size: int | None = None,  # noqa: ARG001
    compression_type: str | None = None,
    num_parallel_reads: int | None = None,
    name: str | None = None,  # noqa: ARG001
) -> Dataset:
    """Yield records of fixed length as bytes; as `tf.data.FixedLengthRecordDataset`.

    Args:
        filenames: a path, lists of paths, nested or not, or a dataset of paths.
        record_bytes: as for `stoker.Dataset.fixed_length_records`.
        header_bytes: as for `stoker.Dataset.fixed_length_records`.
        footer_bytes: as for `stoker.Dataset.fixed_length_records`.
        buffer_size: ignored.
        compression_type: as for `stoker.Dataset.fixed_length_records`.
        num_parallel_reads: as for `stoker.Dataset.fixed_length_records`.
        name: ignored.
    """
    return Dataset.of(
        Dataset.fixed_length_records(
            _adopted(filenames),
            record_bytes,
            header_bytes,
            footer_bytes=footer_bytes,
            compression_type=compression_type,
            num_parallel_reads=num_parallel_reads,
        )
    )


def CsvDataset(  # noqa: N802
    filenames: Any,
    record_defaults: Sequence[Any],
    compression_type: str | None = None,
    buffer_size: int | None = None,  # noqa: ARG001
    header: bool = False,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
    exclude_cols: Sequence[int] | None = None,
) -> Dataset:
    """Yield the rows of CSV files as tuples; as `tf.data.experimental.CsvDataset`.

    Args:
        filenames: a path, lists of paths, nested or not, or a dataset of paths.
        record_defaults: for each column a dtype if a field is required, or the value of a missing
            field (or an array or list of the value). Python's ints are int32 and floats float32.
        compression_type: as for `stoker.Dataset.csv`.
        buffer_size: ignored.
        header: as for `stoker.Dataset.csv`.
        field_delim: as for `stoker.Dataset.csv`.
        use_quote_delim: as for `stoker.Dataset.csv`.
        na_value: as for `stoker.Dataset.csv`.
        select_cols: numbers of the columns to read; without `select_cols` and `exclude_cols`, all.
        exclude_cols: numbers of the columns not to read; a row must have no columns besides these
            and the columns of `record_defaults`.

    Raises:
        InvalidArgumentError: if both `select_cols` and `exclude_cols` are given, or a default has
            several values or dimensions.
    """
    return Dataset.of(
        Dataset.csv(
            _adopted(filenames),
            [_column(default) for default in record_defaults],
            compression_type,
            header=header,
            field_delim=field_delim,
            use_quote_delim=use_quote_delim,
            na_value=na_value,
            select_cols=select_cols,
            exclude_cols=exclude_cols,
        )
    )


def _adopted(filenames: Any) -> Any:
    """Return the names of files in the form of stoker's methods.

    Raises:
        InvalidTypeError: for numbers or a dataset of something else, in TensorFlow's words.
    """
    if not isinstance(filenames, StokerDataset):
        names = as_constants(filenames)
        dtype = getattr(names, "dtype", string)
        if dtype != string and np.size(names):
            raise InvalidTypeError(f"{_MUST_BE_TEXT}. Got `tf.{dtype}` elements.")
        return filenames
    spec = filenames.element_spec
    if isinstance(spec, TensorSpec):
        if spec.dtype != string:
            raise InvalidTypeError(f"{_MUST_BE_TEXT}. Got a dataset of `tf.{spec.dtype}` elements.")
        if spec.shape:
            raise InvalidTypeError(
                f"{_MUST_BE_TEXT} of shape [] (i.e. scalars). Got a dataset of element shape "
                f"{spec.shape}."
            )
    return Dataset.of(filenames)


_MUST_BE_TEXT = "The `filenames` argument must contain `tf.string` elements"


def _column(default: Any) -> Any:
    """Convert an entry of `record_defaults` to stoker's form."""
    if isinstance(default, type | np.dtype):
        return bytes if as_dtype(default) == string else as_dtype(default)
    default = as_constants(default)
    if not isinstance(default, np.ndarray) or default.ndim == 0:
        return default
    if default.ndim > 1 or default.size > 1:
        raise InvalidArgumentError(
            f"`record_defaults` must hold a dtype or at most one value for each column; got an "
            f"array of shape {default.shape}: {default!r}"
        )
    if default.size:
        return default[0]
    return bytes if default.dtype == string else default.dtype
