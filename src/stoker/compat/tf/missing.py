"""Error for names of TensorFlow without a counterpart in stoker, which names what to use."""

import numpy as np

_COVERED = (
    "tf.data, tf.data.experimental, tf.data.experimental.service, tf.errors, tf.io.TFRecordWriter, "
    "tf.numpy_function, tf.TensorSpec, tf.RaggedTensorSpec and the dtypes"
)

_PILLOW = "Pillow: numpy.asarray(PIL.Image.open(io.BytesIO(data)))"
_PARSER = "TFRecordDataset, whose elements are bytes, and a parser of your own in `map`"

_REPLACEMENTS = {
    "tf.Tensor": "numpy.ndarray",
    "tf.Variable": "numpy.array, or an object captured by the function",
    "tf.RaggedTensor": "stoker.RaggedArray",
    "tf.SparseTensor": "stoker.SparseArray",
    "tf.ragged": "stoker.RaggedArray, such as RaggedArray.from_rows(rows)",
    "tf.sparse": "stoker.SparseArray, such as SparseArray.from_dense(array)",
    "tf.constant": "numpy.array(value, dtype)",
    "tf.convert_to_tensor": "numpy.asarray(value, dtype)",
    "tf.cast": "numpy.asarray(x).astype(dtype)",
    "tf.concat": "numpy.concatenate(arrays, axis)",
    "tf.identity": "the value itself",
    "tf.rank": "numpy.ndim(x)",
    "tf.gather": "numpy.take(x, indices, axis)",
    "tf.range": "numpy.arange",
    "tf.fill": "numpy.full(shape, value)",
    "tf.one_hot": "numpy.eye(depth)[labels]",
    "tf.boolean_mask": "x[mask]",
    "tf.cond": "an if statement",
    "tf.while_loop": "a while statement",
    "tf.map_fn": "a list comprehension",
    "tf.function": "the function itself: it is Python and not traced",
    "tf.print": "print",
    "tf.debugging": "assert statements",
    "tf.py_func": "tf.py_function, or the function itself",
    "tf.math": "numpy, such as numpy.log for tf.math.log",
    "tf.linalg": "numpy.linalg",
    "tf.signal": "numpy.fft or scipy.signal",
    "tf.strings": "methods of bytes, such as text.split(b',') or int(text)",
    "tf.image": f"{_PILLOW}, its methods resize and crop, and NumPy for flips",
    "tf.audio": "the package soundfile, or wave",
    "tf.keras": "Keras 3 (import keras) with stoker.keras.adapt(dataset)",
    "tf.train": "Iterator.state_dict for checkpoints; bytes or tf.io.TFRecordWriter for examples",
    "tf.distribute": "one trainer per process, all with the same `job_name`",
    "tf.io.read_file": "pathlib.Path(os.fsdecode(path)).read_bytes()",
    "tf.io.decode_raw": "numpy.frombuffer(data, dtype)",
    "tf.io.decode_csv": "tf.data.experimental.CsvDataset, or the module csv",
    "tf.io.gfile": "open, glob and pathlib, or the package fsspec",
    "tf.io.match_filenames_once": "tf.data.Dataset.list_files",
    "tf.io.parse_tensor": "numpy.frombuffer(data, dtype)",
    "tf.io.serialize_tensor": "array.tobytes()",
    "tf.data.experimental.Optional": "next(iterator, default)",
    "tf.data.experimental.get_next_as_optional": "next(iterator, default)",
    "tf.data.experimental.Reducer": "group_by_window, scan or reduce",
    "tf.data.experimental.group_by_reducer": "group_by_window, scan or reduce",
    "tf.data.experimental.SqlDataset": "tf.data.Dataset.from_generator",
    "tf.data.experimental.make_csv_dataset": "CsvDataset and map",
    "tf.data.experimental.dense_to_sparse_batch": "dense_to_ragged_batch",
    "tf.data.experimental.distributed_save": "tf.data.Dataset.save in one process",
    "tf.data.experimental.make_saveable_from_iterator": "Iterator.state_dict",
    "tf.data.experimental.from_variant": "pickle: datasets can be pickled",
    "tf.data.experimental.to_variant": "pickle: datasets can be pickled",
    "tf.data.experimental.get_model_proto": "Iterator.stats",
}

# For families whose members differ in the part after the prefix.
_PREFIXES = {
    "tf.io.decode_": _PILLOW,
    "tf.io.parse_": _PARSER,
    "tf.io.FixedLen": _PARSER,
    "tf.io.VarLen": _PARSER,
    "tf.data.experimental.make_batched_features": _PARSER,
    "tf.data.experimental.parse_example": _PARSER,
    "tf.random.": "stoker.random.generator(), a NumPy generator, in functions",
    "tf.reduce_": "numpy, such as numpy.mean for tf.reduce_mean",
}


def missing(namespace: str, name: str) -> AttributeError:
    """Return the error for ``namespace.name``: what to use, and the names that exist."""
    path = f"{namespace}.{name}"
    replacement = _REPLACEMENTS.get(path)
    # TensorFlow's functions of arrays have NumPy's names, so these need no entry in the table.
    if replacement is None and namespace == "tf" and callable(getattr(np, name, None)):
        replacement = f"numpy.{name}"
    if replacement is None:
        found = (advice for prefix, advice in _PREFIXES.items() if path.startswith(prefix))
        replacement = next(found, None)
    advice = "" if replacement is None else f" Use {replacement}."
    return AttributeError(
        f"stoker.compat has no {path}: functions are Python, and elements are NumPy and Python "
        f"values.{advice} It covers {_COVERED}",
        name=name,
    )
