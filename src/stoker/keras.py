"""Keras 3: `model.fit` on stoker datasets, with the PyTorch, JAX and TensorFlow backends.

Import this module as ``import stoker.keras``; stoker does not install Keras and the framework of
its backend.
"""

import contextlib
import itertools
import sys
import traceback
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

from stoker.adapters.epochs import Epochs, Framework
from stoker.adapters.ownership import next_in_list
from stoker.adapters.ranks import given_rank
from stoker.adapters.reading import check_dataset, check_drop_last
from stoker.adapters.resuming import CountedEpochs
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY
from stoker.elements.spec import Spec, TensorSpec, UnknownSpec, spec_of
from stoker.elements.structure import flatten, is_leaf
from stoker.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["adapt"]


def adapt(
    dataset: Dataset,
    batch_size: int | None = None,
    shuffle: bool | None = None,
    *,
    class_weight: Mapping[int, float] | None = None,
    drop_last: bool = False,
    seed: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> "Adapted":
    """Return a dataset for the methods `fit`, `evaluate` and `predict` of a Keras model.

    Each epoch of the model is an epoch of the dataset. `steps_per_epoch` need not be given: an
    epoch ends with the dataset, and the progress bar shows its length where known. An endless
    dataset needs `steps_per_epoch`. `class_weight`, `batch_size` and `shuffle` are arguments here:
    the arguments of `fit` do not reach a dataset, and are an error.

    Args:
        dataset: a stoker Dataset of batches ``(x, y)``, ``(x, y, sample_weight)`` or ``x`` or, with
            `batch_size`, of samples. `x` and `y` may be dicts.
        batch_size: samples in a batch; ``None``: the elements are the batches.
        shuffle: draw the samples of each epoch in a new random order, from the whole dataset.
        class_weight: weight of the samples of each class, as in `fit`: of the int ``y``, or of the
            index of its largest member. Classes that are not given have the weight 1. The elements
            must be ``(x, y)``.
        drop_last: drop a last batch with fewer samples.
        seed: seed of `shuffle` and of all random steps without seed, equal on all ranks; ``None``:
            a seed is drawn.
        rank: of this process among the processes that train together; ``None``: the rank of
            `torch.distributed` or `jax.distributed`, or of the environment (RANK).
        world_size: number of ranks; ``None``: as `rank`.

    Raises:
        InvalidTypeError: if `dataset` is not a stoker Dataset, or `class_weight` not a dict of ints
            and numbers.
        InvalidArgumentError: if an argument is out of range; when read, if without `batch_size` the
            elements are no batches, or do not match `class_weight`.
    """
    check_dataset(dataset, "stoker.keras.adapt")
    _check_class_weight(class_weight)
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
        ),
        class_weight,
    )


class Adapted(CountedEpochs, DataAdapter):
    """A stoker Dataset in the form that Keras reads; made by `adapt`."""

    _called = "stoker.keras.adapt"

    def __init__(self, epochs: Epochs, class_weight: Mapping[int, float] | None) -> None:
        self._epochs = epochs
        self._class_weight = class_weight
        self._makes_batches = epochs.batch_size is not None

    def get_numpy_iterator(self) -> Generator[Any]:
        """Start an epoch; yield its batches as tuples of arrays."""
        iterator, progress = self._epochs.start()
        # The batches of a dataset have one structure: the first is checked for all.
        is_checked = self._makes_batches
        with iterator:
            for element in iterator:
                batch = _as_tuple(element)
                if not is_checked:
                    _check_is_batch(spec_of(batch))
                    is_checked = True
                if self._class_weight is not None:
                    batch = _weighted(batch, self._class_weight)
                yield batch
        progress.ended = True

    get_jax_iterator = get_numpy_iterator

    def get_torch_dataloader(self) -> "_TensorEpochs":
        """Return an iterable of which each iterator is an epoch of tensors."""
        return _TensorEpochs(self)

    def get_tf_dataset(self) -> Any:
        """Return a tf.data.Dataset of the batches."""
        from stoker.tensorflow import is_vague, spec_of_batches, tf_dataset

        # TensorFlow needs the spec before the first batch.
        spec = _as_tuple(self._epochs.dataset().element_spec)
        if not is_vague(spec):
            if not self._makes_batches:
                _check_is_batch(spec)
            if self._class_weight is not None:
                spec = (*spec, TensorSpec((None,), keras.config.floatx()))
            return tf_dataset(self.get_numpy_iterator, spec, UNKNOWN_CARDINALITY)
        epoch = self.get_numpy_iterator()
        batches = list(itertools.islice(epoch, _BATCHES_FOR_SPEC))
        # The batches that were read for the spec are the first of the first epoch.
        begun = [_continued(batches, epoch)]
        return tf_dataset(
            lambda: begun.pop() if begun else self.get_numpy_iterator(),
            spec_of_batches(batches),
            UNKNOWN_CARDINALITY,
        )

    @property
    def num_batches(self) -> int | None:
        """Number of batches of an epoch; None if unknown.

        Raises:
            InvalidArgumentError: if `fit`, `evaluate` or `predict` asks for the number, and got
                arguments that do not reach this dataset.
        """
        self._check_arguments_of_keras()
        try:
            return len(self)
        except TypeError:
            return None

    # Properties of a DataAdapter; None is unknown: batches may have any size.
    batch_size = has_partial_batch = partial_batch_size = None

    def _check_arguments_of_keras(self) -> None:
        """Refuse the arguments that Keras drops when `x` is a DataAdapter.

        Keras does not pass these arguments to the adapter; they are read from the caller's frame.
        """
        caller = sys._getframe(2)  # that of `num_batches` is 1
        if caller.f_code.co_name != "__init__":  # of Keras's EpochIterator
            return
        for frame, _ in itertools.islice(traceback.walk_stack(caller), _FRAMES_TO_FIT):
            given, name = frame.f_locals, frame.f_code.co_name
            if name not in _METHODS or given.get("x") is not self:
                continue
            for argument, advice in _DROPPED.items():
                if given.get(argument) is not None:
                    raise InvalidArgumentError(
                        f"`{argument}` of {name} does not reach a stoker dataset; {advice}"
                    )
            if given.get("shuffle") is False and self._epochs.shuffle:
                raise InvalidArgumentError(
                    "`shuffle=False` of fit does not reach a stoker dataset, which shuffles; "
                    "omit shuffle=True of stoker.keras.adapt"
                )
            return


_METHODS = {"fit", "evaluate", "predict"}
_FRAMES_TO_FIT = 4
"""Calls between a method of the model and `EpochIterator.__init__`, at most."""

_DROPPED = {
    "class_weight": "give it to stoker.keras.adapt(dataset, class_weight=...)",
    "batch_size": (
        "give it to stoker.keras.adapt(dataset, batch_size), or let the elements be batches"
    ),
    "y": "yield elements (x, y)",
    "sample_weight": "yield elements (x, y, sample_weight)",
}


class _TensorEpochs:
    """The epochs of a dataset as PyTorch's tensors."""

    def __init__(self, adapted: Adapted) -> None:
        self._adapted = adapted

    def __iter__(self) -> Iterator[Any]:
        from stoker.torch.tensors import to_tensors

        batches = self._adapted.get_numpy_iterator()
        # A list of one element, so that no other reference keeps its arrays from becoming tensors.
        while holder := next_in_list(batches):
            yield to_tensors(holder)


_BATCHES_FOR_SPEC = 2
"""Batches that are read for an unknown spec; as Keras does with generators."""


def _as_tuple(batch: Any) -> tuple[Any, ...]:
    """Return ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)``."""
    return tuple(batch) if isinstance(batch, tuple | list) else (batch,)


def _check_class_weight(class_weight: Any) -> None:
    if class_weight is None:
        return
    if not isinstance(class_weight, Mapping) or not all(
        isinstance(label, int | np.integer) and isinstance(weight, int | float | np.number)
        for label, weight in class_weight.items()
    ):
        raise InvalidTypeError(
            "`class_weight` must be a dict of the numbers of classes and their weights, such as "
            f"{{0: 1.0, 1: 5.0}}; got {class_weight!r}"
        )


def _weighted(batch: tuple[Any, ...], class_weight: Mapping[int, float]) -> tuple[Any, ...]:
    """Return the batch with the weights of its samples."""
    # As in Keras, whose class weights are for models with one output.
    if len(batch) != 2 or not is_leaf(batch[1]):
        raise InvalidArgumentError(
            "`class_weight` needs elements (x, y) with one array y, without sample weights; got "
            f"elements of {len(batch)} members; compute the weights in a map, and yield (x, y, "
            "sample_weight)"
        )
    return (*batch, class_weight_to_sample_weights(batch[1], class_weight))


def _check_is_batch(spec: Spec) -> None:
    """Raise InvalidArgumentError if elements of `spec` have no common first dimension."""
    arrays = [leaf for leaf in flatten(spec) if not isinstance(leaf, UnknownSpec)]
    shapes = [array.shape for array in arrays if array.shape or array.dtype != object]
    if () in shapes or len({shape[0] for shape in shapes} - {None}) > 1:
        raise InvalidArgumentError(
            "the elements must be batches, whose arrays have one first dimension; got arrays of "
            f"the shapes {', '.join(map(str, shapes))}. Give `batch_size` to stoker.keras.adapt, "
            "or batch the dataset"
        )


def _continued(batches: list[Any], epoch: Generator[Any]) -> Generator[Any]:
    with contextlib.closing(epoch):
        yield from batches
        yield from epoch


def _framework() -> Framework:
    """Return the framework of Keras's backend."""
    backend = keras.backend.backend()
    if backend == "torch":
        # Only the framework of the backend may be installed.
        from stoker.torch.distribution import TorchFramework

        return TorchFramework()
    if backend == "jax":
        from stoker.jax import JaxFramework

        return JaxFramework()
    return Framework()
