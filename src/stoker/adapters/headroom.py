"""`headroom`: how much faster a training loop would be if its input cost nothing."""

import copy
import dataclasses
import pickle
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.dataset.options import Options
from stoker.errors import InvalidArgumentError, InvalidTypeError
from stoker.service.api.consumers import reads_cross_trainer_cache, reads_in_step, with_own_jobs

NOT_THE_LIMIT = 1.05
"""Ratio below which the input is not called the limit: less than that is noise."""

_UNSTEADY = 1.5
"""Ratio of the longest to the shortest ideal step of the rounds from which the machine is busy."""

_DRAIN = 0.2
"""Share of `seconds` in which batches are read and dropped, so that buffers are empty."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headroom:
    """Result of `headroom`; as text it is one sentence.

    Attributes:
        seconds_per_step: with its own input, the median of the rounds.
        ideal_seconds_per_step: with an ideal input, the median of the rounds.
        waited_per_step: seconds per step in which the loop waited for its own input, the median.
        steps: number of steps measured with its own input.
        rounds: (`seconds_per_step`, `ideal_seconds_per_step`) of each round, in order.
    """

    seconds_per_step: float
    ideal_seconds_per_step: float
    waited_per_step: float
    steps: int
    rounds: tuple[tuple[float, float], ...]

    @property
    def ratio(self) -> float:
        """Speed of the training with an ideal input, relative to that with its own."""
        return self.seconds_per_step / self.ideal_seconds_per_step

    @property
    def steps_per_second(self) -> float:
        """Steps per second with its own input."""
        return 1 / self.seconds_per_step

    @property
    def ideal_steps_per_second(self) -> float:
        """Steps per second with an ideal input."""
        return 1 / self.ideal_seconds_per_step

    def __repr__(self) -> str:
        return (
            f"Headroom(ratio={self.ratio:.3g}, seconds_per_step={self.seconds_per_step:.3g}, "
            f"ideal_seconds_per_step={self.ideal_seconds_per_step:.3g}, "
            f"waited_per_step={self.waited_per_step:.3g}, steps={self.steps}, "
            f"rounds={len(self.rounds)})"
        )

    def __str__(self) -> str:
        if self.ratio < NOT_THE_LIMIT:
            claim = "The input is not the limit"
        else:
            faster, times = f"{self.ratio - 1:.0%} faster", f"{self.ratio:.1f} times as fast"
            gain = faster if self.ratio < 1.1 else times
            claim = f"Training would be {gain} if its input cost nothing"
        own, ideal = _duration(self.seconds_per_step), _duration(self.ideal_seconds_per_step)
        sentence = f"{claim}: {own} per step now, {ideal} with an ideal input."
        ideals = [ideal for _, ideal in self.rounds]
        if max(ideals) >= _UNSTEADY * min(ideals):
            sentence += (
                f" With the same ideal input, steps took from {_duration(min(ideals))} to "
                f"{_duration(max(ideals))}: other programs may use this machine; measure again, "
                "with more `rounds`."
            )
        return sentence


def headroom(
    dataset: Iterable[Any],
    step: Callable[[Any], Any],
    *,
    seconds: float | None = 2.0,
    steps: int | None = None,
    rounds: int = 5,
    warmup: int = 3,
    wait: Callable[[Any], Any] | None = None,
) -> Headroom:
    """Return how much faster training would be if its input cost nothing.

    Each round runs `step` with an ideal input, which is the first batch of the dataset kept in
    memory as by ``dataset.take(1).cache().repeat()``, and then with the dataset itself from the
    start of an epoch; the medians of the rounds count. The whole takes about 2.2 times
    ``rounds * seconds``, and the time in which the pipeline starts for each round.

    Before a round with the dataset is measured, batches are read without steps for a while: what
    buffers had collected would look like a fast input. A dataset that ends is read again, as by a
    training loop. A `cache` that is not complete is measured as such.

    The steps are real: the model is trained by them. The epochs of a stoker Dataset are counted
    apart, so a training that follows begins with its first epoch; a loader counts those read here.
    With a `job_name`, the elements read here are missing for the other readers of the job.

    Args:
        dataset: the batches that the training reads: a stoker Dataset, a loader, or anything else
            that can be iterated several times.
        step: called with a batch; one step of the training.
        seconds: most seconds of a measurement, of which each round has two; ``None``: no limit.
            Then every process takes the same number of steps, which training with collectives, or
            a coordinated read, needs: call `headroom` in all processes. Buffers are not emptied
            then, so give a `warmup` that exceeds what they hold.
        steps: most steps of a measurement; ``None``: no limit.
        rounds: number of measurements of both inputs, in turn.
        warmup: steps before each measurement that are not counted, for example because the first
            one is compiled.
        wait: called with the result of the last step of each measurement; returns when the device
            has finished it. Needed if `step` does not wait for the device, such as
            ``wait=jax.block_until_ready`` or ``wait=lambda loss: torch.cuda.synchronize()``.

    Raises:
        InvalidTypeError: if an argument is of another type, or `dataset` can be read once only.
        InvalidArgumentError: if an argument is out of range, both `seconds` and `steps` are None,
            `dataset` is empty, is read in step with others although `seconds` is given, or reads a
            cross-trainer cache.

    Errors of the dataset and of `step` are raised as they are. A step may change its batch: it then
    gets a copy of the first one each time, which takes time.

    Example:
        >>> import time, stoker
        >>> def load(i):
        ...     time.sleep(0.01)
        ...     return i
        >>> def step(batch):
        ...     time.sleep(0.001)
        >>> result = stoker.headroom(stoker.Dataset.range(1000).map(load), step, seconds=0.1)
        >>> print(result)
        Training would be ... times as fast if its input cost nothing: ... with an ideal input...
        >>> result.ratio > 2
        True
    """
    if seconds is not None:
        seconds = _positive("seconds", seconds)
    if steps is not None:
        steps = arguments.size("steps", steps)
    if seconds is None and steps is None:
        raise InvalidArgumentError("`seconds` or `steps` must be given; both are None")
    for name, function in (("step", step), ("wait", wait)):
        if not callable(function) and (name == "step" or function is not None):
            raise InvalidTypeError(f"`{name}` must be a function; got {function!r}")
    loop = _Loop(step, wait, seconds, steps, arguments.size("warmup", warmup))
    return _measure(_own_epochs(dataset, seconds), loop, arguments.size("rounds", rounds))


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTypeError(f"`{name}` must be a positive number or None; got {value!r}")
    if not 0 < value < float("inf"):
        raise InvalidArgumentError(f"`{name}` must be a positive number or None; got {value!r}")
    return value


def _own_epochs(dataset: Any, seconds: float | None) -> Iterable[Any]:
    """Return the dataset with another count of epochs than that of the training."""
    if not isinstance(dataset, Dataset):
        if isinstance(dataset, Iterator):
            raise InvalidTypeError(
                "`dataset` is read several times and must be iterable anew, such as the loader in "
                f"place of iter(loader); got the iterator {dataset!r}"
            )
        if not isinstance(dataset, Iterable) and not hasattr(dataset, "__getitem__"):
            raise InvalidTypeError(f"`dataset` must be iterable; got {dataset!r}")
        return dataset  # type: ignore[no-any-return]
    if reads_cross_trainer_cache(dataset):
        raise InvalidArgumentError(
            "`dataset` reads a cross-trainer cache, which has one epoch, and is read several "
            "times here; distribute it without `cross_trainer_cache` to measure it"
        )
    if seconds is not None and reads_in_step(dataset):
        raise InvalidArgumentError(
            "`dataset` is a coordinated read, whose consumers must take the same number of steps: "
            "call headroom in all of them with seconds=None and the same `steps`; got "
            f"seconds={seconds!r}"
        )
    return with_own_jobs(dataset.with_options(Options()))


class _Run(NamedTuple):
    steps: int
    seconds_per_step: float
    waited_per_step: float


@dataclasses.dataclass(frozen=True)
class _Loop:
    """The training loop: runs steps, and measures them between synchronized points in time."""

    step: Callable[[Any], Any]
    wait: Callable[[Any], Any] | None
    seconds: float | None
    steps: int | None
    warmup: int
    clock: Callable[[], float] = time.perf_counter

    def measure(self, read: Callable[[], Any]) -> _Run:
        """Run the steps of the warm-up, then those that count."""
        self._run(read, self.warmup, None)
        return self._run(read, self.steps, self.seconds)

    # Elements in buffers when a measurement begins (256 MB over a service) would count as a fast
    # input. (docs/decisions/095)
    def drain(self, read: Callable[[], Any]) -> None:
        """Read batches without steps for a share of `seconds`, if it is limited."""
        until = self.clock() + _DRAIN * (self.seconds or 0.0)
        while self.clock() < until:
            read()

    def _run(self, read: Callable[[], Any], steps: int | None, seconds: float | None) -> _Run:
        began = before = self.clock()
        count, waited = 0, 0.0
        while count != steps and (seconds is None or before - began < seconds):
            batch = read()
            waited += self.clock() - before
            result = self.step(batch)
            before = self.clock()
            count += 1
        if self.wait is not None:
            self.wait(result)
        seconds = max(self.clock() - began, 1e-9)  # a coarse clock may not have advanced
        return _Run(count, seconds / count, waited / count)


def _measure(dataset: Iterable[Any], loop: _Loop, rounds: int) -> Headroom:
    with closing(_batches(dataset)) as batches:
        ideal = _ideal_input(next(batches), loop.step)
    runs: list[tuple[_Run, _Run]] = []
    for _ in range(rounds):
        # In turn, so that a machine that becomes slower slows both; each epoch is closed, because
        # its threads would compete with the ideal input. (docs/decisions/095)
        with_ideal = loop.measure(ideal)
        with closing(_batches(dataset)) as batches:
            loop.drain(batches.__next__)
            runs.append((loop.measure(batches.__next__), with_ideal))
    # Separate medians: the median of ratios said 1.1, 0.6 and 1.5 for pipelines whose own are 6.6,
    # 31 and 5.4, on two cores with a load of 4.
    pairs = tuple((own.seconds_per_step, best.seconds_per_step) for own, best in runs)
    return Headroom(
        seconds_per_step=statistics.median(own for own, _ in pairs),
        ideal_seconds_per_step=statistics.median(best for _, best in pairs),
        waited_per_step=statistics.median(own.waited_per_step for own, _ in runs),
        steps=sum(own.steps for own, _ in runs),
        rounds=pairs,
    )


def _batches(dataset: Iterable[Any]) -> Generator[Any, None, None]:
    """Yield the batches of a dataset, and again from its start whenever it has ended.

    Raises:
        InvalidArgumentError: if an epoch is empty.
    """
    while True:
        epoch, empty = iter(dataset), True
        try:
            for batch in epoch:
                empty = False
                yield batch
        finally:
            if callable(close := getattr(epoch, "close", None)):
                close()
        if empty:
            raise InvalidArgumentError(
                "`dataset` must have at least one batch; its epoch was empty"
            )


def _ideal_input(batch: Any, step: Callable[[Any], Any]) -> Callable[[], Any]:
    """Return a function that returns `batch`, or a copy of it if `step` changes its batch.

    It runs `step` once. A step changes its batch also if it donates the memory to a device.
    """
    before = _pickled(batch)
    step(batch)
    if before is None or before == _pickled(batch):
        return lambda: batch  # without a copy, whose time would count as input
    unchanged = pickle.loads(before)
    return lambda: copy.deepcopy(unchanged)


def _pickled(batch: Any) -> bytes | None:
    try:
        return pickle.dumps(batch, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - an object of the user's, which only has to be comparable
        return None


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * scale or unit == "µs":
            value = seconds / scale
            return f"{value:.2f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    raise AssertionError
