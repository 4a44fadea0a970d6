"""tf.data.Options, with settable attributes; `stoker.Options` is frozen."""

import enum
from typing import Any

from stoker.compat.tf.missing import missing
from stoker.dataset.options import Options as StokerOptions


class AutoShardPolicy(enum.IntEnum):
    """Accepted without effect; as `tf.data.experimental.AutoShardPolicy`."""

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class ExternalStatePolicy(enum.IntEnum):
    """Accepted without effect; as `tf.data.experimental.ExternalStatePolicy`."""

    WARN = 0
    IGNORE = 1
    FAIL = 2


class _Group:
    """Base class of options: settable attributes, ``None`` by default."""

    _names: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._names:
            raise missing(f"tf.data.{type(self).__name__}", name)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise missing(f"tf.data.{type(self).__name__}", name)
        return None


class ThreadingOptions(_Group):
    """Thread options; `private_threadpool_size` sets `stoker.Options.threads`."""

    _names = ("max_intra_op_parallelism", "private_threadpool_size")


class AutotuneOptions(_Group):
    """Accepted without effect; as `tf.data.experimental.AutotuneOptions`."""

    _names = (
        "autotune_algorithm",
        "cpu_budget",
        "enabled",
        "initial_parallelism",
        "min_parallelism",
        "ram_budget",
    )


class DistributeOptions(_Group):
    """Accepted without effect; as `tf.data.experimental.DistributeOptions`."""

    _names = ("auto_shard_policy", "num_devices")


class OptimizationOptions(_Group):
    """Accepted without effect; as `tf.data.experimental.OptimizationOptions`."""

    _names = (
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
    )


class Options(_Group):
    """Options for `Dataset.with_options`; as `tf.data.Options`.

    Only ``threading.private_threadpool_size`` has an effect: order is always deterministic, and
    there is no graph to optimize. An attribute that tf.data does not have is an AttributeError.

    Example:
        >>> from stoker.compat import tf
        >>> options = tf.data.Options()
        >>> options.deterministic = False
        >>> options.threading.private_threadpool_size = 2
        >>> tf.data.Dataset.range(3).with_options(options).options().threads
        2
    """

    _names = (
        "autotune",
        "dataset_name",
        "deterministic",
        "experimental_deterministic",
        "experimental_distribute",
        "experimental_external_state_policy",
        "experimental_optimization",
        "experimental_service",
        "experimental_slack",
        "experimental_stats",
        "experimental_symbolic_checkpoint",
        "experimental_threading",
        "experimental_warm_start",
        "framework_type",
        "threading",
    )

    def __init__(self) -> None:
        self.threading = ThreadingOptions()
        self.experimental_threading = self.threading
        self.autotune = AutotuneOptions()
        self.experimental_distribute = DistributeOptions()
        self.experimental_optimization = OptimizationOptions()

    def resolve(self) -> StokerOptions:
        """Return the equivalent `stoker.Options`."""
        threads = self.threading.private_threadpool_size
        return StokerOptions(threads=threads or None)  # TensorFlow's 0: as many as there are cores
