"""AUTOTUNE's decisions on the number of concurrent calls and the read-ahead.

No threads and no clock here: the owner of the calls reports what happened, and when. Rates in the
comments are those of benchmarks/bench_autotune.py on two cores, shared with other processes.
"""

from typing import NamedTuple

# The most concurrent calls, on machines with fewer cores. Waiting 10 ms a call: 2,700/s with 32
# threads, 5,400 with 64, 10,100 with 128; 256 reached 14,300 at best, but 8,400 in the median.
MOST_THREADS = 128

# The initial number of concurrent calls. Calls that use cores get a thread per core after the
# first measurement.
_FIRST_LIMIT = 2

# A step up multiplies the limit by this, and is undone unless the throughput rises by at least this
# share of the rise. Waiting 10 ms a call, over the first 2 s: 7,400/s with steps of 2, 9,400 with
# 4, 8,600 with 8.
_STEP = 4
_GAIN = 0.1

# Calls of a measurement whose use of the cores is examined, at 60 us each: 4, 16 and all calls
# found the same.
_SAMPLES = 16

# The least duration of a measurement, which also lasts for two calls per thread. 20 to 100 ms and
# one to four calls made no difference.
_SECONDS = 20e-3

# The limit holds up the pipeline if at least this share of calls ends while the consumer waits for
# results and another call for a thread. With 0, calls that wait 10 ms got 128 threads for a
# consumer that takes 570/s; with 0.05 to 0.5, 32.
_BOTTLENECK = 0.2

# The part of the cores that calls can use beside the reader and the consumer. With 1, results of
# 8 MB, which wait for memory a third of their time, were tried with 3 threads, and 5 % slower.
_USABLE = 0.8

# After a step that did not help, this many measurements pass at most before the next step: a step
# that halves the throughput then costs 1 %. With 4, decoding was not measurably slower.
_LONGEST_REST = 64

# The most elements ahead while their bytes allow it. Where 1 in 20 calls waits 50 times as long:
# 4,400/s with 256, 13,500 with 1,024, 15,400 with 4,096, 17,100 with 16,384.
_MOST_AHEAD = 4096

# The weight of a new size in the mean of sizes, which bounds the bytes of calls in flight: the
# mean follows a change of size within some 16 calls.
_SIZE_WEIGHT = 1 / 16


def default_bytes(cores: int) -> int:
    """Return the most bytes that a step buffers by default: 256 MiB; more with many cores.

    With fewer than 32 MiB a core, results of several MB would leave cores idle.
    """
    return max(256 << 20, cores * (32 << 20))


def least_ahead(limit: int, group: int) -> int:
    """Return how many elements must be read ahead to keep `limit` threads busy.

    Two per thread: one runs, one waits, so that no thread waits for the reader to wake up. For
    batches the next batch begins while the consumer waits.

    Args:
        limit: concurrent calls.
        group: elements that are needed together.
    """
    return max(2 * limit, limit + 4) if group == 1 else group + max(2 * limit, group)


class CallReport(NamedTuple):
    """A call that finished.

    Attributes:
        now: the time, in seconds.
        seconds: its duration.
        runnable: how long its thread had a core or waited for a core; None if not measured.
        nbytes: of its input and result; None if the call failed.
        supplied: another call was waiting for this call's thread.
        awaited: the consumer was waiting for results.
    """

    now: float
    seconds: float
    runnable: float | None
    nbytes: int | None
    supplied: bool
    awaited: bool


class Tuning:
    """Finds `limit` and `read_ahead`: hill climbing on the throughput.

    `limit` rises while it holds up the pipeline: to the number of cores for calls that use cores;
    further for calls that wait, until the cores are busy, as long as each step pays. A step that
    does not pay is undone, and tried again after 1, 2, 4 ... measurements. `read_ahead` doubles
    when threads are idle because a slow call holds up the later results.

    Args:
        cores: the cores that this process may use.
        most: the most calls at once.
        max_bytes: the most bytes of inputs and results to buffer.
        group: elements that are needed together.

    Attributes:
        limit: concurrent calls.
        read_ahead: elements in flight or buffered, in order.
    """

    def __init__(self, *, cores: int, most: int, max_bytes: int, group: int = 1) -> None:
        self._cores = min(cores, most)
        self._most = most
        self._max_bytes = max_bytes
        self._group = group
        self.limit = min(_FIRST_LIMIT, most)
        self.read_ahead = least_ahead(self.limit, group)
        self._mean_bytes = 0.0
        self._patience = 1
        self._rest = 0
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Start measuring, perhaps after an interval without calls."""
        self._before: tuple[int, int, float] | None = None
        """Limit, read-ahead and throughput before the step that is on trial."""
        self._outdated = 0
        self._measure(now)

    def wants_runnable(self) -> bool:
        """Return True if `CallReport.runnable` should be measured for the call that begins now."""
        return not self._rest and self._calls < _SAMPLES and self.limit < self._most

    def finished(self, call: CallReport) -> bool:
        """Count a call that finished.

        Returns:
            True if `limit` changed, and perhaps `read_ahead` too.
        """
        if call.nbytes is not None:
            weight = _SIZE_WEIGHT if self._mean_bytes else 1.0
            self._mean_bytes += weight * (call.nbytes - self._mean_bytes)
        if self._outdated > 0:  # the call began under another limit
            self._outdated -= 1
            self._measure(call.now)
            return False
        self._calls += 1
        self._held_up += call.supplied and call.awaited
        if call.runnable is not None:
            self._sampled += call.seconds
            self._runnable += call.runnable
        seconds = call.now - self._began
        if self._calls < 2 * self.limit or seconds < _SECONDS:
            return False
        before = self.limit
        self._decide(self._calls / seconds)
        self._measure(call.now)
        if self.limit == before:
            return False
        self._outdated = max(self.limit, before)
        self.read_ahead = max(self.read_ahead, least_ahead(self.limit, self._group))
        return True

    def ran_dry(self, ahead: int) -> None:
        """Read further ahead: a thread is idle, since all elements after a slow call are done.

        Args:
            ahead: the elements in flight or buffered; more than `read_ahead` after an undone step.
        """
        self.read_ahead = max(self.read_ahead, min(2 * max(self.read_ahead, ahead), _MOST_AHEAD))

    def affordable(self, pending: int, buffered_bytes: int) -> int:
        """Return how many more elements may be read.

        Args:
            pending: elements read whose calls are not done.
            buffered_bytes: of results not delivered.
        """
        if not self._mean_bytes:  # unknown before the first results
            return self.limit - pending
        return int((self._max_bytes - buffered_bytes) / self._mean_bytes) - pending

    def _measure(self, now: float) -> None:
        self._began = now
        self._calls = 0
        self._held_up = 0
        self._sampled = 0.0
        self._runnable = 0.0

    def _decide(self, throughput: float) -> None:
        if self._before is not None:
            (limit, ahead, before), self._before = self._before, None
            if throughput < before * (1 + _GAIN * (self.limit / limit - 1)):
                self.limit, self.read_ahead = limit, ahead
                self._pause()
                return
            self._patience = 1
        if self._held_up < _BOTTLENECK * self._calls or self.limit >= self._most:
            return
        if self._rest:
            self._rest -= 1
        elif self._sampled:
            self._raise(throughput)

    def _raise(self, throughput: float) -> None:
        """Allow more calls, but not more than keep all cores busy.

        Results of 8 MB cost 2.2 ms of CPU with 2 threads, 2.5 with 4, 3.2 with 8, 4.0 with 16. On a
        busy machine more threads get more of its cores, which looks like a gain: 28/s, not 99.
        """
        use = max(self._runnable / self._sampled, 1 / self._most)
        useful = int(_USABLE * self._cores / use)
        if useful > max(self.limit, self._cores):
            self._before = self.limit, self.read_ahead, throughput
            self.limit = min(_STEP * self.limit, self._most, useful)
        else:
            self.limit = max(self.limit, self._cores)
            self._pause()

    def _pause(self) -> None:
        self._rest = self._patience
        self._patience = min(2 * self._patience, _LONGEST_REST)
