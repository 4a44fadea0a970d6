"""tf.data.Options, with settable attributes; `stoker.Options` is frozen."""

import enum
from typing import Any, ClassVar, Self

from stoker.compat.tf.missing import missing
from stoker.dataset.options import Options as StokerOptions
from stoker.errors import InvalidTypeError


class AutoShardPolicy(enum.IntEnum):
    """Accepted without effect; as `tf.data.experimental.AutoShardPolicy`."""

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class AutotuneAlgorithm(enum.Enum):
    """Accepted without effect; as `tf.data.experimental.AutotuneAlgorithm`."""

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4


class ExternalStatePolicy(enum.Enum):
    """Accepted without effect; as `tf.data.experimental.ExternalStatePolicy`."""

    WARN = 0
    IGNORE = 1
    FAIL = 2


class _Group:
    """Base class of options: attributes of declared types, ``None`` unless set.

    Two groups are equal if their options are. As in tf.data, groups are mutable and have no hash.
    """

    _types: ClassVar[dict[str, type]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._types:
            raise missing(f"tf.data.{type(self).__name__}", name)
        declared = self._types[name]
        if not isinstance(value, declared):
            raise InvalidTypeError(
                f'Property "{name}" must be of type {declared}, got: {value} (type: {type(value)})'
            )
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._types:
            raise missing(f"tf.data.{type(self).__name__}", name)
        return self._defaults.get(name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._types)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({given})"

    def _merged(self, later: Self) -> Self:
        """Return these options, replaced by the options that are set in `later`."""
        result, default = type(self)(), type(self)()
        for options in (self, later):
            for name, given in vars(options).items():
                group = isinstance(given, _Group)
                value = getattr(result, name)._merged(given) if group else given
                if value != getattr(default, name):
                    setattr(result, name, value)
        return result


class ThreadingOptions(_Group):
    """Thread options; `private_threadpool_size` sets `stoker.Options.threads`."""

    _types: ClassVar[dict[str, type]] = {
        "max_intra_op_parallelism": int,
        "private_threadpool_size": int,
    }


class AutotuneOptions(_Group):
    """Accepted without effect; as `tf.data.experimental.AutotuneOptions`."""

    _types: ClassVar[dict[str, type]] = {
        "autotune_algorithm": AutotuneAlgorithm,
        "cpu_budget": int,
        "enabled": bool,
        "initial_parallelism": int,
        "min_parallelism": int,
        "ram_budget": int,
    }


class DistributeOptions(_Group):
    """Accepted without effect; as `tf.data.experimental.DistributeOptions`."""

    _types: ClassVar[dict[str, type]] = {"auto_shard_policy": AutoShardPolicy, "num_devices": int}
    _defaults: ClassVar[dict[str, Any]] = {"auto_shard_policy": AutoShardPolicy.AUTO}


class OptimizationOptions(_Group):
    """Accepted without effect; as `tf.data.experimental.OptimizationOptions`."""

    _types: ClassVar[dict[str, type]] = dict.fromkeys(
        (
            "apply_default_optimizations",
            "filter_fusion",
            "filter_parallelization",
            "inject_prefetch",
            "map_and_batch_fusion",
            "map_and_filter_fusion",
            "map_fusion",
            "map_parallelization",
            "noop_elimination",
            "parallel_batch",
            "seq_interleave_prefetch",
            "shuffle_and_repeat_fusion",
            "warm_start",
        ),
        bool,
    )


class ServiceOptions(_Group):
    """Accepted without effect; as `tf.data.experimental.ServiceOptions`."""

    _types: ClassVar[dict[str, type]] = {"pinned": bool}


_RENAMED = {"experimental_deterministic": "deterministic", "experimental_threading": "threading"}


class Options(_Group):
    """Options for `Dataset.with_options`; as `tf.data.Options`.

    Only ``threading.private_threadpool_size`` has an effect: order is always deterministic, and
    there is no graph to optimize. An attribute that tf.data does not have is an AttributeError, a
    value of another type a TypeError.

    Example:
        >>> from stoker.compat import tf
        >>> options = tf.data.Options()
        >>> options.deterministic = False
        >>> options.threading.private_threadpool_size = 2
        >>> tf.data.Dataset.range(3).with_options(options).options().threads
        2
    """

    _types: ClassVar[dict[str, type]] = {
        "autotune": AutotuneOptions,
        "dataset_name": str,
        "deterministic": bool,
        "experimental_distribute": DistributeOptions,
        "experimental_external_state_policy": ExternalStatePolicy,
        "experimental_optimization": OptimizationOptions,
        "experimental_service": ServiceOptions,
        "experimental_slack": bool,
        "experimental_stats": object,
        "experimental_symbolic_checkpoint": bool,
        "experimental_warm_start": bool,
        "framework_type": list,
        "threading": ThreadingOptions,
    }

    def __init__(self) -> None:
        self.autotune = AutotuneOptions()
        self.experimental_distribute = DistributeOptions()
        self.experimental_optimization = OptimizationOptions()
        self.experimental_service = ServiceOptions()
        self.threading = ThreadingOptions()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(_RENAMED.get(name, name), value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self, _RENAMED[name]) if name in _RENAMED else super().__getattr__(name)

    def merge(self, options: "Options") -> "Options":
        """Return these options, replaced by the options that are set in `options`.

        As `tf.data.Options.merge`.

        Raises:
            InvalidTypeError: if `options` is not a `tf.data.Options`.

        Example:
            >>> from stoker.compat import tf
            >>> options, other = tf.data.Options(), tf.data.Options()
            >>> options.deterministic, other.autotune.enabled = True, False
            >>> merged = options.merge(other)
            >>> merged.deterministic, merged.autotune.enabled
            (True, False)
        """
        if not isinstance(options, Options):
            raise InvalidTypeError(
                f"Could not merge incompatible options of type {type(options)} and {Options}."
            )
        return self._merged(options)

    def resolve(self) -> StokerOptions:
        """Return the equivalent `stoker.Options`."""
        threads = self.threading.private_threadpool_size
        return StokerOptions(threads=threads or None)  # TensorFlow's 0: as many as there are cores
