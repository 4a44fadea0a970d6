"""JAX: batches as arrays on devices, sharded over a mesh.

Import this module as ``import stoker.jax``; stoker does not install JAX.
"""

import json
import warnings
from typing import Any, Generic

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from stoker.adapters.absent import ABSENT, NO_PROCESSES, check_absent
from stoker.adapters.epochs import Epochs, Framework
from stoker.adapters.iteration import LoaderIterator
from stoker.adapters.ownership import map_leaves
from stoker.adapters.rank_share import makes_own_batches
from stoker.adapters.ranks import Rank, given_rank
from stoker.adapters.reading import Agree, check_dataset, check_drop_last
from stoker.adapters.resuming import ResumableEpochs
from stoker.adapters.steps import Steps
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.dataset.iterator import T_co
from stoker.elements.foreign import array_of, is_foreign_array
from stoker.elements.structure import flatten
from stoker.errors import InvalidArgumentError
from stoker.service.api.consumers import reads_in_step

__all__ = ["DataLoader"]

_WIDE = {np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32}
"""Dtypes of ints that JAX cuts to 32 bits, unless jax_enable_x64 is set."""

_ABSENT = ABSENT | {
    "num_workers": (0, NO_PROCESSES),
    "collate_fn": (None, "batch in the dataset: dataset.batch, padded_batch, or batch and map"),
    "pin_memory": (False, "batches are copied to the devices ahead of the trainer"),
    "generator": (None, "use seed"),
    "device": (None, "use sharding=device, such as jax.devices()[0], or a Mesh of several"),
    "pin_memory_device": ("", "use sharding=device"),
}


class DataLoader(ResumableEpochs, Generic[T_co]):
    """The batches of a stoker Dataset as `jax.Array`; each ``iter(loader)`` is a new epoch.

    With several processes (`jax.distributed`) each reads its part of the dataset, all read the same
    number of batches, and the batches of a step are the parts of a global array. Arrays, NumPy
    scalars and tensors become arrays with JAX's dtypes (int64 becomes int32 unless jax_enable_x64
    is set; a warning says once if a value does not fit); Python numbers, text and all remaining
    values stay.

    Args:
        dataset: a stoker Dataset, whose elements are batches or, with `batch_size`, samples.
        batch_size: samples in a batch of this process; ``None``: the elements are the batches.
        shuffle: draw the samples of each epoch in a new random order, from the whole dataset.
        sharding: a `jax.sharding.Sharding` of the batches. A `jax.sharding.Mesh` shards their first
            dimension over its first axis; a `jax.sharding.PartitionSpec` belongs to the mesh of
            `jax.set_mesh` or, without a mesh, to all devices, as one axis; a `jax.Device` gets the
            whole batches. Arrays of too few dimensions are replicated. ``None``: the default
            device.
        drop_last: drop a last batch with fewer samples, which a mesh may not be able to shard.
        seed: seed of `shuffle` and of all random steps without seed, equal in all processes.
            Without, the seed is drawn, or 0 with several processes.
        prefetch_factor: batches that are on the devices ahead of the trainer; 0: none.
        rank: of this process; ``None``: `jax.process_index`.
        world_size: number of processes; ``None``: `jax.process_count`.
        unsupported: arguments of PyTorch's DataLoader; values that are its default are accepted.

    Raises:
        InvalidTypeError: if `dataset` is not a stoker Dataset, or an argument does not apply; the
            message says what to use.
        InvalidArgumentError: if an argument is out of range.

    Example:
        >>> import stoker.jax
        >>> dataset = stoker.Dataset.range(4).map(float)
        >>> for batch in stoker.jax.DataLoader(dataset, batch_size=2):
        ...     print(batch)
        [0. 1.]
        [2. 3.]
    """

    _called = "stoker.jax.DataLoader"

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = None,
        shuffle: bool | None = None,
        *,
        sharding: Sharding | Mesh | PartitionSpec | jax.Device | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        prefetch_factor: int = 2,
        rank: int | None = None,
        world_size: int | None = None,
        **unsupported: Any,
    ) -> None:
        check_absent(unsupported, _ABSENT, self._called)
        self.dataset = check_dataset(dataset, self._called)
        self.batch_size = None if batch_size is None else arguments.size("batch_size", batch_size)
        self.drop_last = check_drop_last(drop_last, batch_size)
        self.sharding = _checked_sharding(sharding)
        ahead = arguments.integer("prefetch_factor", prefetch_factor, minimum=0)
        self.prefetch_factor = ahead
        # Batches that a loader makes, and batches of coordinated reads, have one size everywhere.
        self._needs_equal_batches = (
            self.sharding is not None
            and not self.sharding.is_fully_addressable
            and batch_size is None
            and not makes_own_batches(dataset)
            and not reads_in_step(dataset)
        )
        self._first_rows: list[int] | None = None
        self._has_warned = False
        self._epochs = Epochs(
            dataset,
            JaxFramework(),
            batch_size=self.batch_size,
            drop_last=self.drop_last,
            shuffle=shuffle,
            seed=arguments.seed(seed),
            rank=given_rank(rank, world_size),
            prefetch=ahead,
        )

    def __iter__(self) -> LoaderIterator[T_co]:
        iterator, progress = self._epochs.start()
        # A thread converts, so that copies to the devices overlap with the steps of the trainer.
        steps = Steps(iterator, self._convert)
        return LoaderIterator(iterator, progress, steps, prefetch=self.prefetch_factor)

    def _convert(self, holder: list[Any]) -> Any:
        if self._needs_equal_batches:
            self._check_rows(_rows_of(holder))
        return map_leaves(holder, self._array)

    def _check_rows(self, rows: list[int]) -> None:
        """Compare a batch with the first batch, since other processes cannot be asked."""
        if self._first_rows is None:
            self._first_rows = rows
        if rows != self._first_rows:
            raise InvalidArgumentError(
                f"the arrays of a batch have {rows} rows, and those of the first batch "
                f"{self._first_rows}: the parts of a global array must have one size in all "
                "processes, which would wait for each other otherwise. Make batches of one size "
                "with drop_remainder=True, or let the loader make them (batch_size)"
            )

    def _array(self, leaf: Any, owned: bool) -> Any:
        if isinstance(leaf, np.generic):
            leaf, owned = np.asarray(leaf), True
        elif is_foreign_array(type(leaf)):
            leaf = array_of(leaf, "")
        if not isinstance(leaf, np.ndarray) or not _is_numeric(leaf.dtype):
            return leaf
        if leaf.dtype in _WIDE and not self._has_warned and not jax.config.jax_enable_x64:
            self._warn_if_cut(leaf)
        if not owned:  # arrays on a CPU may share the memory, which user code could change
            leaf = leaf.copy()
        if self.sharding is None:
            return jax.device_put(leaf)
        sharding = _for_rank(self.sharding, leaf.ndim)
        try:
            return jax.make_array_from_process_local_data(sharding, leaf)
        except ValueError as error:
            raise InvalidArgumentError(
                f"a batch of shape {leaf.shape} cannot be sharded as {sharding}: {error}. Choose "
                "a batch_size that the mesh divides, and drop_last=True (of a dataset of batches, "
                "dataset.batch(n, drop_remainder=True))"
            ) from error

    def _warn_if_cut(self, leaf: np.ndarray[Any, Any]) -> None:
        """Warn once of a value that JAX would cut to 32 bits."""
        narrow = np.iinfo(_WIDE[leaf.dtype])
        # `initial`, since an array without elements has no minimum.
        for value in (leaf.min(initial=0), leaf.max(initial=0)):
            if not narrow.min <= value <= narrow.max:
                self._has_warned = True
                warnings.warn(
                    f"{value} ({leaf.dtype}) arrives as {value.astype(narrow.dtype)}: JAX cuts it "
                    f"to {narrow.dtype}. Call jax.config.update('jax_enable_x64', True), or map "
                    "the values to a smaller range",
                    stacklevel=2,
                )
                return


class JaxFramework(Framework):
    """JAX, and the processes of jax.distributed."""

    advice = "call jax.distributed.initialize() first"

    def current_rank(self) -> Rank:
        return Rank(jax.process_index(), jax.process_count())

    def agree(self) -> Agree | None:
        return _of_process_0 if jax.process_count() > 1 else None


def _of_process_0(values: list[str]) -> list[str]:
    """Return the values of process 0; called by all processes."""
    data = json.dumps(values).encode()
    # Arrays of all processes must have one shape: the length is sent before the bytes.
    lengths = multihost_utils.broadcast_one_to_all(np.array(len(data)))
    buffer = np.zeros(int(lengths), np.uint8)
    given = np.frombuffer(data, np.uint8)[: len(buffer)]
    buffer[: len(given)] = given
    found: list[str] = json.loads(
        np.asarray(multihost_utils.broadcast_one_to_all(buffer)).astype(np.uint8).tobytes()
    )
    return found


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    # Dtypes of ml_dtypes, such as bfloat16, are of kind V, as structures are.
    return dtype.kind in "biufc" or (dtype.kind == "V" and dtype.type is not np.void)


def _rows_of(holder: list[Any]) -> list[int]:
    """Return the first dimension of each array."""
    return [leaf.shape[0] for leaf in flatten(holder) if getattr(leaf, "shape", ())]


def _checked_sharding(sharding: Any) -> Sharding | None:
    if isinstance(sharding, Mesh):
        # Data parallelism; further axes usually divide the model.
        return NamedSharding(sharding, PartitionSpec(sharding.axis_names[0]))
    if isinstance(sharding, PartitionSpec):
        return NamedSharding(_mesh_of(sharding), sharding)
    if isinstance(sharding, jax.Device):
        return SingleDeviceSharding(sharding)
    if sharding is None or isinstance(sharding, Sharding):
        return sharding
    raise InvalidArgumentError(
        "`sharding` must be a jax.sharding.Sharding, such as NamedSharding(mesh, spec), a Mesh, a "
        f"PartitionSpec, a jax.Device or None; got {sharding!r}"
    )


def _mesh_of(spec: PartitionSpec) -> Mesh:
    """Return the mesh of `jax.set_mesh`, or a mesh of all devices with the axis of `spec`."""
    mesh = jax.sharding.get_mesh()
    names = {name for part in spec for name in (part if isinstance(part, tuple) else (part,))}
    axes = sorted(names - {None})
    # The mesh of the user has priority, as in `jax.jit`.
    if not mesh.empty:
        if unknown := [axis for axis in axes if axis not in mesh.axis_names]:
            raise InvalidArgumentError(
                f"`sharding` {spec} names the axes {unknown}, and the mesh of jax.set_mesh has "
                f"{list(mesh.axis_names)}; name those"
            )
        return mesh
    if len(axes) > 1:
        raise InvalidArgumentError(
            f"`sharding` {spec} names {len(axes)} axes, and there is no mesh that has them; give "
            "jax.sharding.NamedSharding(mesh, spec), or call jax.set_mesh(mesh) before"
        )
    return Mesh(np.array(jax.devices()), axes or ["devices"])


def _for_rank(sharding: Sharding, dimensions: int) -> Sharding:
    """Return the sharding of an array; arrays with too few dimensions are replicated."""
    # Beside images a batch may have a scalar, such as a step number, without a dimension to shard.
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > dimensions:
        return NamedSharding(sharding.mesh, PartitionSpec())
    return sharding
