"""Keras 3: `model.fit` on stoker datasets, with the PyTorch, JAX and TensorFlow backends.

Import it as ``import stoker.keras``; it needs Keras and the framework of its backend, which stoker
does not install.
"""

import contextlib
import itertools
from collections.abc import Generator, Iterator
from typing import Any

from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from stoker.adapters.epochs import Epochs, Framework
from stoker.adapters.ownership import next_in_list
from stoker.adapters.ranks import Rank, given_rank, rank_of_environment
from stoker.adapters.reading import Agree, check_dataset, check_drop_last
from stoker.adapters.resuming import CountedEpochs
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY

__all__ = ["adapt"]


def adapt(
    dataset: Dataset,
    batch_size: int | None = None,
    shuffle: bool | None = None,
    *,
    drop_last: bool = False,
    seed: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> "Adapted":
    """Return a dataset for the methods `fit`, `evaluate` and `predict` of a Keras model.

    Each epoch of the model is an epoch of the dataset. `steps_per_epoch` need not be given: an
    epoch ends with the dataset, and the progress bar shows its length where it is known. It must be
    given for an endless dataset. `class_weight`, `batch_size` and `shuffle` of `fit` are ignored:
    yield sample weights, and give the others here.

    Args:
        dataset: a stoker Dataset of batches ``(x, y)``, ``(x, y, sample_weight)`` or ``x`` or, with
            `batch_size`, of samples. `x` and `y` may be dicts.
        batch_size: samples in a batch; ``None``: the elements are the batches.
        shuffle: draw the samples of each epoch in a new random order, from the whole dataset.
        drop_last: drop a last batch with fewer samples.
        seed: seed of `shuffle` and of other random steps without seed; ``None``: it is drawn. Ranks
            need equal ones.
        rank: of this process among those that train together; ``None``: that of
            `torch.distributed` or `jax.distributed`, or of the environment (RANK).
        world_size: number of ranks; ``None``: as `rank`.

    Raises:
        InvalidTypeError: if `dataset` is not a stoker Dataset.
        InvalidArgumentError: if an argument is out of range.
    """
    check_dataset(dataset, "stoker.keras.adapt")
    return Adapted(
        Epochs(
            dataset,
            _framework(),
            batch_size=None if batch_size is None else arguments.size("batch_size", batch_size),
            drop_last=check_drop_last(drop_last, batch_size),
            shuffle=shuffle,
            seed=arguments.seed(seed),
            rank=given_rank(rank, world_size),
            prefetch=2,
        )
    )


class Adapted(CountedEpochs, DataAdapter):
    """A stoker Dataset in the form that Keras reads; made by `adapt`."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def get_numpy_iterator(self) -> Generator[Any]:
        """Start an epoch; yield its batches as tuples of arrays."""
        iterator, progress = self._epochs.start()
        with iterator:
            for batch in iterator:
                yield _as_tuple(batch)
        progress.ended = True

    def get_jax_iterator(self) -> Generator[Any]:
        """Start an epoch; yield its batches as tuples of arrays."""
        return self.get_numpy_iterator()

    def get_torch_dataloader(self) -> "_TensorEpochs":
        """Return an iterable of which each iterator is an epoch of tensors."""
        return _TensorEpochs(self)

    def get_tf_dataset(self) -> Any:
        """Return a tf.data.Dataset of the batches."""
        from stoker.tensorflow import is_vague, spec_of_batches, tf_dataset

        spec = _as_tuple(self._epochs.dataset().element_spec)
        if not is_vague(spec):
            return tf_dataset(self.get_numpy_iterator, spec, UNKNOWN_CARDINALITY)
        epoch = self.get_numpy_iterator()
        batches = list(itertools.islice(epoch, _BATCHES_FOR_SPEC))
        begun = [_continued(batches, epoch)]
        return tf_dataset(
            lambda: begun.pop() if begun else self.get_numpy_iterator(),
            spec_of_batches(batches),
            UNKNOWN_CARDINALITY,
        )

    @property
    def num_batches(self) -> int | None:
        """Number of batches of an epoch; None if it is unknown."""
        try:
            return len(self)
        except TypeError:
            return None

    @property
    def batch_size(self) -> int | None:
        """None: batches may have any size."""
        return None

    @property
    def has_partial_batch(self) -> bool | None:
        """None: unknown."""
        return None

    @property
    def partial_batch_size(self) -> int | None:
        """None: unknown."""
        return None


class _TensorEpochs:
    """The epochs of a dataset as PyTorch's tensors."""

    def __init__(self, adapted: Adapted) -> None:
        self._adapted = adapted

    def __iter__(self) -> Iterator[Any]:
        from stoker.torch.tensors import to_tensors

        batches = self._adapted.get_numpy_iterator()
        while holder := next_in_list(batches):
            yield to_tensors(holder)


_BATCHES_FOR_SPEC = 2
"""Batches that are read for an unknown spec; as Keras does with generators."""


def _as_tuple(batch: Any) -> tuple[Any, ...]:
    """Return ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)``."""
    return tuple(batch) if isinstance(batch, tuple | list) else (batch,)


def _continued(batches: list[Any], epoch: Generator[Any]) -> Generator[Any]:
    with contextlib.closing(epoch):
        yield from batches
        yield from epoch


def _framework() -> Framework:
    """Return the framework of Keras's backend."""
    import keras

    backend = keras.backend.backend()
    if backend == "torch":
        from stoker.torch.distribution import TorchFramework

        return TorchFramework()
    if backend == "jax":
        from stoker.jax import JaxFramework

        return JaxFramework()
    return _Environment()


class _Environment(Framework):
    """Ranks of the environment, which cannot communicate."""

    def current_rank(self) -> Rank:
        return rank_of_environment()

    def agree(self) -> Agree | None:
        return None
