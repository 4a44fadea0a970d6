"""`Options`: settings of a dataset's execution."""

import dataclasses

from stoker.errors import InvalidArgumentError, InvalidTypeError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a whole dataset, given by `Dataset.with_options`.

    Attributes:
        seed: replaces every seed that the user did not give, an int; ``None``: drawn once per
            dataset.
        seed_globals: on the worker processes of a service, seed `random`, `numpy.random` and
            PyTorch's generator for the CPU before each call of a user function, from the seed, the
            epoch and the position of the element. These calls run one at a time in each process.
            ``None``: only if a loader of `stoker.torch` with a seed reads the service. In a
            trainer's own process generators are never seeded.
        threads: the most pool threads of a step of an iterator, at least 1; ``None``:
            `num_parallel_calls`, with AUTOTUNE a measured number up to 128 (or the cores).
        autotune_bytes: the most bytes that a step with AUTOTUNE computes ahead, at least 1;
            ``None``: 32 MiB per core, at least 256 MiB. A single element, or batch, always fits.
        per_lane: let nodes that apply to the whole dataset (take, skip) apply to a lane if a
            deterministic epoch cannot keep their usual meaning.
        finite_coordinated: let a coordinated read (`num_consumers`) of data that may end, end for
            all consumers at the same step. Elements at the end of a worker's data that are too few
            for all consumers are dropped.

    Raises:
        InvalidTypeError: if a value has the wrong type.
        InvalidArgumentError: if a value is out of range.

    Example:
        >>> Options(seed=1).merge(Options(threads=2)) == Options(seed=1, threads=2)
        True
    """

    seed: int | None = None
    seed_globals: bool | None = None
    threads: int | None = None
    autotune_bytes: int | None = None
    per_lane: bool = False
    finite_coordinated: bool = False

    def __post_init__(self) -> None:
        for name in ("seed", "threads", "autotune_bytes"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidTypeError(f"`{name}` must be an int or None; got {value!r}")
            if name != "seed" and value < 1:
                raise InvalidArgumentError(f"`{name}` must be at least 1; got {value}")
        for name in ("per_lane", "finite_coordinated"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidTypeError(f"`{name}` must be a bool; got {value!r}")
        if not isinstance(self.seed_globals, bool | None):
            raise InvalidTypeError(
                f"`seed_globals` must be a bool or None; got {self.seed_globals!r}"
            )

    def merge(self, later: "Options") -> "Options":
        """Return these options, with the fields of `later` that differ from their default."""
        changes = {
            field.name: value
            for field in dataclasses.fields(later)
            # A default cannot be told from a field that was not given.
            if (value := getattr(later, field.name)) != field.default
        }
        return dataclasses.replace(self, **changes)
