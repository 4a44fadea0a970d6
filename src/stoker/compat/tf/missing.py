"""Error for names of TensorFlow without a counterpart in stoker."""

_COVERED = (
    "tf.data, tf.data.experimental, tf.data.experimental.service, tf.errors, tf.io.TFRecordWriter, "
    "tf.TensorSpec, tf.RaggedTensorSpec and the dtypes"
)


def missing(namespace: str, name: str) -> AttributeError:
    """Return the error for ``namespace.name``, which lists the names that exist."""
    return AttributeError(
        f"stoker.compat has no {namespace}.{name}; it covers {_COVERED}. docs/compat.md lists "
        "the missing names and their replacements",
        name=name,
    )
