"""What AUTOTUNE decides: how many calls at once and how far ahead, from what calls took so far.

No threads and no clock here: who runs the calls reports what happened, and when.
"""

from collections import deque

from stoker.dataset.threads.meter import Cost

# As many threads as AUTOTUNE goes up to for functions that wait, on machines with fewer cores.
MOST_THREADS = 128

# A function that waits this share of its time may gain from more calls at once than there are
# cores. Waiting for the interpreter's lock looks the same; whether the throughput rose decides.
_WAITING = 0.3

# How often a call is asked whether it waited for a core, which more threads do not make.
_SAMPLE_SECONDS = 2e-3

# A step up must raise the throughput so much to be kept, and a step down so much.
_GAIN = 1.1
_GAIN_OF_FEWER = 1.05

# What the limit is multiplied with: boldly while no step has failed and calls use next to no CPU.
_STEP = 2
_BOLD_STEP = 4
_BOLD_WAITING = 0.9

# Fewer calls at once are tried only where calls use this much of a core together, since those that
# only wait do not hinder each other, and spend this share waiting: those that have a core all the
# time could gain nothing, and trying costs half the throughput for as long.
_BUSY = 0.5
_HINDERED = 0.2

# Measured at least: so many rounds of calls, in so many seconds, as long as a slow call takes; and
# until the mean of what they took is known this well (its standard error): a rare slow call shall
# decide nothing. A slow call is the slowest so far, less this share with every further one.
_ROUNDS = 2
_FORGET = 1e-3
_LONGEST_WAIT = 1.0  # for a slow call; one of a minute shall not stop the tuning for as long
_SECONDS = 10e-3
_BUSY_SECONDS = 50e-3  # where calls use cores, another process may have had one for a while
_ERROR = 0.25
_MOST_CALLS = 512

# After a step that did not help, so many measurements pass before the next one; twice as many
# after each further one, up to the second number; the third where cores may be idle.
_PATIENCE = 1
_LONGEST_PATIENCE = 64
_LONGEST_BELOW_CORES = 8
_PATIENCE_WITH_FEWER = 16  # of calls that use cores, half as many mostly do half as much

# The consumer is no bottleneck if it waits this share of the time; nor is the input if calls wait
# for a thread at least this often.
_STARVED = 0.1
_SUPPLIED = 0.75

# Calls in the consumer's own thread must promise so much more in each of so many measurements.
_GAIN_INLINE = 0.05
_INLINE_MEASUREMENTS = 4

# The most elements ahead, whatever their size, and the share of the bytes they may take for the
# window to widen: what is held longer lies in memory that was fresh, which costs page faults.
_WIDEST = 4096
_WIDEST_SHARE = 1 / 4

# One new size counts so much in the mean of sizes.
_SIZE_WEIGHT = 1 / 16


def default_bytes(cores: int) -> int:
    """What one step holds at the most where the user did not say: 256 MiB; more with many cores.

    With fewer than 32 MiB a core, results of several MB would leave cores idle.
    """
    return max(256 << 20, cores * (32 << 20))


def smallest_window(limit: int, size: int) -> int:
    """How many elements ahead keep `limit` threads busy, at the least.

    Two per thread: one runs, one waits, so that no thread waits for the reader to wake up. For
    batches the next one is begun while one is waited for.

    Args:
        limit: calls at once.
        size: elements in a unit of delivery.
    """
    return max(2 * limit, limit + 4) if size == 1 else size + max(2 * limit, size)


class _Measurement:
    """Sums over the calls that finished since `began`."""

    __slots__ = (
        "began",
        "calls",
        "cpu",
        "queued",
        "sampled",
        "seconds",
        "shortest",
        "squares",
        "starved",
        "supplied",
    )

    def __init__(self, began: float, shortest: float) -> None:
        self.began = began
        self.shortest = shortest
        self.calls = 0
        self.seconds = 0.0
        self.squares = 0.0
        self.cpu = 0.0
        self.queued = 0.0
        self.sampled = 0.0
        self.starved = 0.0
        self.supplied = 0

    def add(self, cost: Cost, *, supplied: bool) -> None:
        """A call finished."""
        self.calls += 1
        self.seconds += cost.seconds
        self.squares += cost.seconds * cost.seconds
        self.cpu += cost.cpu
        self.supplied += supplied
        if cost.queued is not None:
            self.queued += cost.queued
            self.sampled += cost.seconds

    def is_sound(self, limit: int, now: float) -> bool:
        """Whether it says enough to decide by."""
        calls, seconds = self.calls, now - self.began
        if calls < _ROUNDS * limit or seconds < self.shortest:
            return False
        if seconds < _BUSY_SECONDS and self.is_busy(now):
            return False
        if calls >= _MOST_CALLS:
            return True
        mean = self.seconds / calls
        variance = max(self.squares / calls - mean * mean, 0.0)
        return variance <= calls * (_ERROR * mean) ** 2

    def is_busy(self, now: float) -> bool:
        """Whether the calls use cores, beside waiting."""
        return self.cpu >= _BUSY * (now - self.began)

    def off_core(self) -> float:
        """The share of their time in which calls had no core."""
        return 1 - self.cpu / self.seconds if self.seconds else 0.0

    def waiting(self) -> float:
        """The share of their time in which calls neither had a core nor were in its queue."""
        return self.off_core() - (self.queued / self.sampled if self.sampled else 0.0)

    def is_held_up(self, now: float) -> bool:
        """Whether it is the limit that holds the pipeline up: not consumer or input."""
        starved = self.starved >= _STARVED * (now - self.began)
        return starved and self.supplied >= _SUPPLIED * self.calls


class Tuning:
    """Finds `limit` and `window` by trying: hill climbing on the throughput, a step a measurement.

    The limit rises while calls wait for something other than a core, the consumer waits for them,
    and the last rise paid. Otherwise, of calls that use cores, half as many are tried as well: they
    may hinder each other, at the interpreter's lock or in the memory. The window doubles when
    threads ran dry behind one slow call.

    Args:
        cores: where the limit begins.
        most: the most calls at once.
        max_bytes: what results and inputs held may take.
        size: elements in a unit of delivery.

    Attributes:
        limit: calls at once.
        window: elements ahead, in order.
    """

    def __init__(self, *, cores: int, most: int, max_bytes: int, size: int = 1) -> None:
        self._cores = min(cores, most)
        self._most = most
        self._max_bytes = max_bytes
        self._size = size
        self.limit = self._cores
        self.window = smallest_window(self.limit, size)
        self._mean_bytes = 0.0
        self._tried: tuple[int, float] | None = None
        self._patience = _PATIENCE
        self._rest = 0
        self._patience_with_fewer = 2 * _PATIENCE_WITH_FEWER
        self._rest_from_fewer = _PATIENCE_WITH_FEWER
        self._is_bold = True
        self._slowest = 0.0
        self._next_sample = 0.0
        self._asks_queued = True
        self._passing = 0
        self._passing_until = 0.0
        self._waits_since: float | None = None
        self._measured = _Measurement(0.0, _SECONDS)
        self._paces: deque[tuple[float, float]] = deque(maxlen=_INLINE_MEASUREMENTS)

    def begin(self, now: float) -> None:
        """Calls begin, perhaps after a time without any."""
        self._tried = None
        self._passing = 0
        self._waits_since = None
        self._paces.clear()
        self._measure(now)

    def outpaced_by(self, seconds: float) -> bool:
        """Whether the consumer would get more if it made the calls itself, `seconds` each.

        What the consumer does between its waits would then come on top.
        """
        return len(self._paces) == _INLINE_MEASUREMENTS and all(
            throughput * seconds < starved - _GAIN_INLINE for throughput, starved in self._paces
        )

    def wants_queued(self, now: float) -> bool:
        """Whether the call that begins now shall measure its time in the queue for a core."""
        if now < self._next_sample or not self._asks_queued:
            return False
        self._next_sample = now + _SAMPLE_SECONDS
        return True

    def finished(self, now: float, cost: Cost, *, supplied: bool) -> bool:
        """A call finished.

        Args:
            now: when.
            cost: what it took.
            supplied: whether another call was waiting for this one's thread.

        Returns:
            Whether `limit` changed, and `window` with it.
        """
        self._slowest = max(min(cost.seconds, _LONGEST_WAIT), self._slowest * (1 - _FORGET))
        if self._passing > 0 or now < self._passing_until:  # begun under another limit
            self._passing -= 1
            self._measure(now)
            return False
        measured = self._measured
        measured.add(cost, supplied=supplied)
        if not measured.is_sound(self.limit, now):
            return False
        if self._waits_since is not None:
            measured.starved += now - max(self._waits_since, measured.began)
        before = self.limit
        self._decide(measured, now)
        self._measure(now)
        if self.limit == before:
            return False
        self._passing = max(self.limit, before)
        self._passing_until = now + self._slowest
        self.window = max(self.window, smallest_window(self.limit, self._size))
        return True

    def consumer_waits(self, now: float) -> None:
        """The consumer begins to wait for a result."""
        self._waits_since = now

    def consumer_goes_on(self, now: float) -> None:
        """It has waited enough."""
        if self._waits_since is not None:
            self._measured.starved += now - max(self._waits_since, self._measured.began)
            self._waits_since = None

    def ran_dry(self) -> None:
        """A thread found no call, since the window is full of results behind one slow call."""
        wider = min(2 * self.window, _WIDEST)
        if wider * self._mean_bytes <= self._max_bytes * _WIDEST_SHARE:
            self.window = max(self.window, wider)

    def holds(self, nbytes: int) -> None:
        """A call's input and result took so many bytes."""
        weight = _SIZE_WEIGHT if self._mean_bytes else 1.0
        self._mean_bytes += weight * (nbytes - self._mean_bytes)

    def affordable(self, pending: int, held_bytes: int) -> int:
        """How many more calls may be taken in.

        Args:
            pending: calls taken in and not finished.
            held_bytes: of results not delivered.
        """
        if not self._mean_bytes:  # not known before the first results are
            return self.limit - pending
        return int((self._max_bytes - held_bytes) / self._mean_bytes) - pending

    def _measure(self, now: float) -> None:
        self._measured = _Measurement(now, max(_SECONDS, self._slowest))

    def _decide(self, measured: _Measurement, now: float) -> None:
        # Asking costs an eighth of the throughput where calls have a core nearly all the time.
        self._asks_queued = measured.off_core() >= _HINDERED
        throughput = measured.calls / (now - measured.began)
        if measured.is_held_up(now):
            self._paces.append((throughput, measured.starved / (now - measured.began)))
        else:
            self._paces.clear()
        if self._tried is not None:
            self._judge(throughput)
        if self._tried is not None or not measured.is_held_up(now):
            return
        waiting = measured.waiting()
        if self._asks_queued and not measured.sampled:
            return  # it may have been the queue for a core: the next measurement knows
        below = self.limit < self._cores
        if below:
            self._rest = min(self._rest, _LONGEST_BELOW_CORES)
        self._rest = max(self._rest - 1, 0)
        self._rest_from_fewer = max(self._rest_from_fewer - 1, 0)
        if not self._rest and self.limit < self._most and (below or waiting >= _WAITING):
            bold = self._is_bold and waiting >= _BOLD_WAITING
            step = _BOLD_STEP if bold else _STEP
            self._try(min(step * self.limit, self._most), throughput)
        elif self._may_try_fewer(waiting, measured.is_busy(now)):
            self._rest_from_fewer = self._patience_with_fewer
            self._patience_with_fewer = min(2 * self._patience_with_fewer, _LONGEST_PATIENCE)
            self._try(self.limit // 2, throughput)

    def _may_try_fewer(self, waiting: float, busy: bool) -> bool:
        hindered = busy and waiting >= _HINDERED
        return hindered and self.limit > 1 and not self._rest_from_fewer

    def _try(self, limit: int, throughput: float) -> None:
        self._tried = self.limit, throughput
        self.limit = limit

    def _judge(self, throughput: float) -> None:
        """Keep the limit that was tried, or go back."""
        assert self._tried is not None
        (limit, before), self._tried = self._tried, None
        raised = self.limit > limit
        if throughput >= before * (_GAIN if raised else _GAIN_OF_FEWER):
            if raised:
                self._patience = _PATIENCE
            elif self.limit > 1:
                self._try(self.limit // 2, throughput)
            return
        self.limit = limit
        if raised:
            self._is_bold = False
            self._rest = self._patience + 1
            self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
