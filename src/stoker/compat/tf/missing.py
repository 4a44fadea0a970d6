"""What is said of TensorFlow's names that stoker has no counterpart of."""

_COVERED = (
    "tf.data, tf.data.experimental, tf.data.experimental.service, tf.errors, tf.io.TFRecordWriter, "
    "tf.TensorSpec, tf.RaggedTensorSpec and the dtypes"
)


def missing(namespace: str, name: str) -> AttributeError:
    """The error for ``namespace.name``: what is covered, and where it is written."""
    return AttributeError(
        f"stoker.compat has no {namespace}.{name}; it covers {_COVERED}. docs/compat.md lists "
        "what is missing and what to use instead",
        name=name,
    )
