"""Choice of the codec under `compression="AUTO"`. No clock and no I/O.

A link that is the bottleneck blocks the sender, so a stream that rarely waits for the link or a
codec is left unchanged. Otherwise the alternatives, sending uncompressed included, are tried on
the stream itself in turn, and the alternative that sends most bytes of elements per second is used
until the next trials.

Only trials show what helps: a slow receiver blocks the sender as a slow link does, and once bodies
are compressed a slow link looks fast. Compression ratios, which no busy machine distorts, only tell
which codecs need no trial.
"""

from dataclasses import dataclass

# Measured in simulation (tests/wire/links.py): the grid of links, bodies and kernel buffers that
# tests/wire/test_auto_compression.py checks, and 20 s of text over 12.5 to 400 MB/s where a busy
# machine stops the sender for 10 or 50 ms a tenth of the time. Shares are of the best fixed codec.

# Seconds of compressing and sending that a measurement takes.
INTERVAL = 0.05

# Seconds that a trial takes before an alternative that was slower than predicted loses.
LONG_INTERVAL = 0.2

# Bytes per second from which on a link is never compressed for.
FAST_LINK = 0.87e9

# Speed, relative to the best measured, that link and codec must allow for a codec to be tried, and
# relative to sending uncompressed for it to be used.
MIN_GAIN = 1.07

# Share of the time that trials may cost after a change; halved whenever trials confirm it.
FIRST_TRIAL_COST, LAST_TRIAL_COST = 0.03, 0.01

# Seconds between the end of trials and the next ones, at least.
MIN_TRIAL_GAP = 1.0

# In the order of trials: link speed first, then by ratio, so that later ones need no trial.
_ALTERNATIVES = (None, "ZSTD", "SNAPPY", "LZ4")


@dataclass
class _Interval:
    """Totals of consecutive bodies: bytes before and after compression, and seconds."""

    size: int = 0
    wire: int = 0
    compressing: float = 0.0
    sending: float = 0.0
    idle: float = 0.0

    @property
    def busy(self) -> float:
        """Seconds of compressing and sending."""
        return self.compressing + self.sending

    @property
    def seconds(self) -> float:
        """Duration, each pause counted as `INTERVAL` at most."""
        return max(self.busy + self.idle, 1e-9)

    @property
    def speed(self) -> float:
        """Bytes of elements per second."""
        return self.size / self.seconds


class AutoCompression:
    """Chooses a codec for each body of a stream. Times are seconds of any one clock.

    Call `choose` for each body, then `sent`.

    Attributes:
        codec: the codec in use between trials; ``None``: no compression.
    """

    def __init__(self) -> None:
        self.codec: str | None = None
        self._interval = _Interval()
        self._last_sent: float | None = None
        self._buffers_full = False  # the kernel's, at the start of the interval
        self._bound: list[_Interval] = []  # the latest ones, if consecutive
        self._to_try: list[str | None] = []
        self._speeds: dict[str | None, float] = {}
        self._trials: list[_Interval] = []
        self._next_trials = 0.0
        self._cost = FIRST_TRIAL_COST
        self._plain_speed = 0.0

    @property
    def trying(self) -> bool:
        """True while alternatives are tried."""
        return bool(self._to_try)

    # A slow trainer blocks a sender as a slow link does, so each codec must prove itself on the
    # stream. (docs/decisions/035)
    def choose(self) -> str | None:
        """Return the codec for the next body; ``None`` to send it uncompressed."""
        return self._to_try[0] if self._to_try else self.codec

    def sent(self, size: int, wire: int, compressing: float, began: float, ended: float) -> None:
        """Record a body that was sent.

        Args:
            size: bytes before compression.
            wire: bytes after compression.
            compressing: seconds of the compression, which ended just before `began`.
            began: time before the call that sent the body.
            ended: time after this call.
        """
        pause = 0.0 if self._last_sent is None else began - compressing - self._last_sent
        self._last_sent = ended
        interval = self._interval
        interval.size += size
        interval.wire += wire
        interval.compressing += compressing
        interval.sending += ended - began
        # A long pause is the user's or the pipeline's, and does not concern the link.
        interval.idle += min(max(0.0, pause), INTERVAL)
        if not self._is_complete(interval):
            return
        self._interval = _Interval()
        buffers_full = self._buffers_full
        self._buffers_full = interval.sending >= 0.5 * interval.seconds
        if self._to_try:
            self._end_trial(interval, buffers_full, ended)
        else:
            self._watch(interval, ended)

    def _watch(self, interval: _Interval, now: float) -> None:
        """Start trials if the link or the codec is the bottleneck."""
        bound = interval.busy >= 0.5 * interval.seconds and interval.speed < FAST_LINK
        self._bound = [*self._bound[-1:], interval] if bound else []
        # While the kernel's buffers fill, the link looks too fast.
        measured = self._bound[1:] if self.codec is None else self._bound
        if len(self._bound) >= 2 and now >= self._next_trials:
            self._to_try = [codec for codec in _ALTERNATIVES if codec != self.codec]
            self._speeds = {self.codec: max(each.speed for each in measured)}
            self._trials = []

    def _is_complete(self, interval: _Interval) -> bool:
        if not self._to_try:
            return interval.busy >= INTERVAL
        best, limit = max(self._speeds.values()), self._limit(interval)
        if limit < MIN_GAIN * best:
            return self._to_try[0] is not None or interval.busy >= INTERVAL
        slow = interval.speed < 0.9 * min(limit, interval.size / max(interval.compressing, 1e-9))
        return interval.busy >= INTERVAL and not (
            slow and self._buffers_full and interval.seconds < LONG_INTERVAL
        )

    def _end_trial(self, trial: _Interval, buffers_full: bool, now: float) -> None:
        """Take the result and go on to the next alternative."""
        self._trials.append(trial)
        if self._to_try[0] is None or self._limit(trial) >= MIN_GAIN * max(self._speeds.values()):
            if not buffers_full:
                self._buffers_full = True  # this trial has filled them; the next trial measures
                return
            self._speeds[self._to_try[0]] = trial.speed
        del self._to_try[0]
        if not self._to_try:
            self._decide(now)

    def _limit(self, trial: _Interval) -> float:
        """Return the speed that the link allows."""
        if self._to_try[0] is None:
            return self._plain_speed
        return self._speeds[None] * trial.size / trial.wire

    def _decide(self, now: float) -> None:
        """Use the fastest alternative, and schedule the next trials."""
        best = max(self._speeds, key=lambda codec: self._speeds[codec])
        if self._speeds[best] < MIN_GAIN * self._speeds[None]:
            best = None
        self._cost = (
            FIRST_TRIAL_COST if best != self.codec else max(self._cost / 2, LAST_TRIAL_COST)
        )
        self.codec = best
        self._plain_speed = self._speeds[None]
        lost = sum(trial.seconds - trial.size / self._speeds[best] for trial in self._trials)
        self._next_trials = now + max(MIN_TRIAL_GAP, lost / self._cost)
        self._bound = []
