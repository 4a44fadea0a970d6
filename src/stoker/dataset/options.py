"""How a dataset is run, as against what it computes."""

import dataclasses

from stoker.errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a whole dataset, given by `Dataset.with_options`.

    Attributes:
        seed: for every seed the user did not give; ``None``: drawn once per dataset.
        threads: the most pool threads one step of an iterator may use; ``None``: as many as its
            `num_parallel_calls` says, with AUTOTUNE as many as pay, up to 128 (or the cores).
        autotune_bytes: the most bytes one step with AUTOTUNE may hold of what it computed ahead;
            ``None``: 32 MiB a core, at least 256 MiB. One element, or batch, always fits.
        per_lane: lets nodes that mean the whole dataset (take, skip) mean one lane where a
            deterministic epoch cannot keep their ordinary meaning.

    Raises:
        InvalidArgumentError: a value of the wrong type or range.

    Example:
        >>> Options(seed=1).merge(Options(threads=2))
        Options(seed=1, threads=2, autotune_bytes=None, per_lane=False)
    """

    seed: int | None = None
    threads: int | None = None
    autotune_bytes: int | None = None
    per_lane: bool = False

    def __post_init__(self) -> None:
        for name in ("seed", "threads", "autotune_bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise InvalidArgumentError(f"`{name}` must be an int or None; got {value!r}")
        for name in ("threads", "autotune_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidArgumentError(f"`{name}` must be at least 1; got {value}")
        if not isinstance(self.per_lane, bool):
            raise InvalidArgumentError(f"`per_lane` must be a bool; got {self.per_lane!r}")

    def merge(self, later: "Options") -> "Options":
        """These options, replaced where `later` sets something other than the default."""
        changes = {
            field.name: value
            for field in dataclasses.fields(later)
            if (value := getattr(later, field.name)) != field.default
        }
        return dataclasses.replace(self, **changes)
