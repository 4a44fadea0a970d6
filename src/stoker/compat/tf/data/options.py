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


class _OptionGroup:
    """Base class of options: attributes of the annotated types, ``None`` unless set.

    Two groups are equal if their options are. As in tf.data, groups are mutable and have no hash.
    """

    _types: ClassVar[dict[str, type]] = {}

    def __init_subclass__(cls) -> None:
        # Of ``int | None``, None says that an option may be unset; a user cannot set None.
        hints = cls.__annotations__.items()
        cls._types = {name: getattr(hint, "__args__", (hint,))[0] for name, hint in hints}

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
        return None

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
                group = isinstance(given, _OptionGroup)
                value = getattr(result, name)._merged(given) if group else given
                if value != getattr(default, name):
                    setattr(result, name, value)
        return result


class ThreadingOptions(_OptionGroup):
    """Thread options; `private_threadpool_size` sets `stoker.Options.threads`."""

    max_intra_op_parallelism: int | None
    private_threadpool_size: int | None


class AutotuneOptions(_OptionGroup):
    """Accepted without effect; as `tf.data.experimental.AutotuneOptions`."""

    autotune_algorithm: AutotuneAlgorithm | None
    cpu_budget: int | None
    enabled: bool | None
    initial_parallelism: int | None
    min_parallelism: int | None
    ram_budget: int | None


class DistributeOptions(_OptionGroup):
    """Accepted without effect; as `tf.data.experimental.DistributeOptions`."""

    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO
    num_devices: int | None


class OptimizationOptions(_OptionGroup):
    """Accepted without effect; as `tf.data.experimental.OptimizationOptions`."""

    apply_default_optimizations: bool | None
    filter_fusion: bool | None
    filter_parallelization: bool | None
    inject_prefetch: bool | None
    map_and_batch_fusion: bool | None
    map_and_filter_fusion: bool | None
    map_fusion: bool | None
    map_parallelization: bool | None
    noop_elimination: bool | None
    parallel_batch: bool | None
    seq_interleave_prefetch: bool | None
    shuffle_and_repeat_fusion: bool | None
    warm_start: bool | None


class ServiceOptions(_OptionGroup):
    """Accepted without effect; as `tf.data.experimental.ServiceOptions`."""

    pinned: bool | None


_RENAMED = {"experimental_deterministic": "deterministic", "experimental_threading": "threading"}


class Options(_OptionGroup):
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

    autotune: AutotuneOptions
    dataset_name: str | None
    deterministic: bool | None
    experimental_distribute: DistributeOptions
    experimental_external_state_policy: ExternalStatePolicy | None
    experimental_optimization: OptimizationOptions
    experimental_service: ServiceOptions
    experimental_slack: bool | None
    experimental_stats: object | None
    experimental_symbolic_checkpoint: bool | None
    experimental_warm_start: bool | None
    framework_type: list | None  # type: ignore[type-arg]  # isinstance refuses list[str]
    threading: ThreadingOptions

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
