"""Compression "AUTO": whether to compress a stream, and with what. No clock and no I/O.

What a sender knows is how long packing and sending took. A link that is the bottleneck blocks it;
but what kernels buffer looks sent at once, and once bodies are compressed the link looks fast. So a
model of link and codecs only says what is worth trying. What is tried is kept if more bytes of
elements leave in a second than without; and now and then, ever more rarely, without is tried again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

MIN_BYTES = 4 << 10
"""Smaller bodies are sent as they are: it is their number that costs."""

WINDOW = 0.05
"""Seconds that make a measurement."""

GAIN = 1.15
"""A codec is tried if it should be so much faster, by what is known of it and of the link."""

PROBE_BYTES = 16 << 20
"""More than the kernels of both sides hold: if so much went without blocking, the link is fast."""

FIRST_RETRY, LAST_RETRY = 0.5, 60.0
"""Seconds until a codec is tried again that did not help, doubling."""

FIRST_PROBE, LAST_PROBE = 0.5, 120.0
"""Seconds until sending without is tried again while a codec helps, doubling."""

FIRST_COMPARE, LAST_COMPARE = 2.0, 120.0
"""Seconds from one comparison of two codecs to the next, doubling."""

PROBE_SHARE = 40
"""So many times as long as such an attempt took pass at least before the next."""


class Phase(Enum):
    """What the frames that are being sent are for."""

    PLAIN = "as they are, and watching the link"
    SAMPLE = "compressed with one codec after the other, to see how fast and how small"
    TRIAL = "compressed, to see whether it helps"
    PACKED = "compressed, because it helps"
    PROBE = "as they are, to see whether compressing helps still"


@dataclass
class Estimate:
    """What a codec does to this stream: bytes it takes in a second, and what part of them is left.

    Attributes:
        best: bytes/s it hardly exceeds on any machine, on data that shrinks.
    """

    best: float
    speed: float = 0.0
    ratio: float = 1.0

    def learn(self, size: int, packed: int, seconds: float) -> None:
        """One body of `size` bytes was packed."""
        speed, weight = size / max(seconds, 1e-9), 0.2
        if not self.speed:
            # One slow call on a busy machine says little; a trial will tell.
            speed, weight = max(speed, self.best / 3), 1.0
        self.speed += weight * (speed - self.speed)
        self.ratio += weight * (packed / size - self.ratio)

    def through(self, link: float) -> float:
        """Bytes a second that get through a link of `link` bytes/s, packing while it transmits."""
        return min(self.speed, link / max(self.ratio, 1e-3))


@dataclass
class _Window:
    """What was sent in a while: bytes before and after packing, and seconds."""

    size: int = 0
    wire: int = 0
    packing: float = 0.0
    sending: float = 0.0
    idle: float = 0.0
    frames: int = 0
    last_speed: float = 0.0
    last_seconds: float = 0.0

    def add(self, size: int, wire: int, packing: float, sending: float, idle: float) -> None:
        """A body was sent, after so many seconds without one."""
        self.size += size
        self.wire += wire
        self.packing += packing
        self.sending += sending
        self.idle += idle
        self.frames += 1
        self.last_speed, self.last_seconds = size / max(sending, 1e-9), sending

    @property
    def lasted(self) -> float:
        """Seconds, of which pauses count little: they say nothing about the link."""
        return self.packing + self.sending + self.idle

    @property
    def blocked(self) -> bool:
        """Whether sending is what most of the time went to."""
        return self.sending >= 0.5 * self.lasted

    @property
    def speed(self) -> float:
        """Bytes a second, before packing."""
        return self.size / max(self.lasted, 1e-9)

    @property
    def sending_speed(self) -> float:
        """Bytes in a second of sending alone: the link's, if they were not packed."""
        return self.size / max(self.sending, 1e-9)


class Adaptive:
    """Decides for each body of a stream. Times are seconds on any one clock.

    Call `choose`; `packed`, if that named a codec; then `sent`.

    Attributes:
        phase: what is being done.
        codec: what bodies are compressed with, but for samples; ``None``: they are not.
    """

    def __init__(self) -> None:
        self.phase = Phase.PLAIN
        self.codec: str | None = None
        self._estimates = {"LZ4": Estimate(1e9), "SNAPPY": Estimate(1e9), "ZSTD": Estimate(0.45e9)}
        self._window = _Window()
        self._settled = False
        self._last: float | None = None
        self._packing = 0.0
        self._blocked_windows = 0  # of a probe
        self._slow: list[float] = []
        self._plain_speed = 0.0
        self._to_sample: list[str] = []
        self._to_try: list[str] = []
        self._tried: dict[str, float] = {}
        self._retry_at, self._retry = 0.0, FIRST_RETRY
        self._probe_at, self._probe = 0.0, FIRST_PROBE
        self._probe_began = 0.0
        self._compare_at, self._compare_gap = 0.0, FIRST_COMPARE
        self._comparing = False  # codecs with each other: sending without is not the question

    def choose(self, size: int) -> str | None:
        """The codec to compress a body of `size` bytes with; ``None`` to send it as it is."""
        if size < MIN_BYTES:
            return None
        return self._to_sample[-1] if self.phase is Phase.SAMPLE else self.codec

    def packed(self, codec: str, size: int, packed: int, seconds: float) -> None:
        """A body of `size` bytes was compressed, which took `seconds`."""
        self._estimates[codec].learn(size, packed, seconds)
        self._packing = seconds
        if self.phase is Phase.SAMPLE:
            self._to_sample.pop()

    def sent(self, size: int, wire: int, began: float, ended: float) -> None:
        """A body of `size` bytes was sent as `wire` bytes, in a call that took so long."""
        packing, self._packing = self._packing, 0.0
        pause = began - packing - (began if self._last is None else self._last)
        self._last = ended
        # A long pause is the user's or the pipeline's, and says nothing about the link.
        idle = min(max(0.0, pause), WINDOW)
        self._window.add(size, wire, packing, ended - began, idle)
        _STEPS[self.phase](self, ended)

    # ── what each phase makes of what was sent ────────────────────────────────────────────────────
    def _plain(self, now: float) -> None:
        window = self._window
        if window.lasted < WINDOW:
            return
        self._slow = [*self._slow[-2:], window.sending_speed] if window.blocked else []
        # What kernels buffer went fast, and a busy machine holds anything up for a while: so the
        # first window shows no link, and the slower one of the next two none. One long body does.
        long_enough = window.blocked and window.last_seconds >= 6 * WINDOW
        if (long_enough or len(self._slow) == 3) and now >= self._retry_at:
            self._plain_speed = window.last_speed if long_enough else max(self._slow[1:])
            least = GAIN * self._plain_speed
            self._to_sample = [n for n, e in self._estimates.items() if e.best >= least]
            if self._to_sample:
                self._enter(Phase.SAMPLE, None)
                return
        self._window = _Window()

    def _sample(self, now: float) -> None:
        if self._to_sample:
            return
        through = {n: e.through(self._plain_speed) for n, e in self._estimates.items()}
        names = sorted(through, key=lambda name: -through[name])
        self._to_try = [name for name in names if through[name] >= GAIN * self._plain_speed]
        self._tried = {}
        if self._to_try:
            self._enter(Phase.TRIAL, self._to_try.pop(0))
        else:
            self._give_up(now)

    def _trial(self, now: float) -> None:
        window, codec = self._window, self.codec
        if codec is None or window.lasted < WINDOW or window.frames < 2:
            return
        if window.speed < self._enough() and window.lasted < 4 * WINDOW:
            return  # a busy machine holds anything up for 50 ms: to lose takes more
        if self._tried and not self._settled:
            # The codec before may have let the kernel's buffers run empty: they are full now.
            self._settled, self._window = True, _Window()
            return
        self._tried[codec] = window.speed
        best = max(self._tried, key=lambda name: self._tried[name])
        if self._tried[best] < self._enough():
            self._give_up(now)
            return
        for name in self._to_try[:1]:
            # Where little is buffered, packing does not overlap with transmission as it should.
            if self._estimates[name].through(self._plain_speed) > 1.05 * self._tried[best]:
                del self._to_try[0]
                self._enter(Phase.TRIAL, name)
                return
        self._keep(best, now)

    def _enough(self) -> float:
        """The speed that a trial must reach to be won."""
        return 0.0 if self._comparing else GAIN**0.5 * self._plain_speed

    def _keep(self, codec: str, now: float) -> None:
        """Goes on with what has won the trial."""
        if self._probe_at <= now:  # a probe sends two bodies at least
            cost = 2 * self._window.size / self._window.frames / self._plain_speed
            self._probe_at = now + max(self._probe, PROBE_SHARE * cost)
        self._retry = FIRST_RETRY
        self._comparing = False
        self._enter(Phase.PACKED, codec)

    def _packed(self, now: float) -> None:
        window = self._window
        if window.lasted < 2 * WINDOW or window.frames < 2:
            return
        if window.wire > 0.9 * window.size:  # the data has changed
            self._give_up(now)
        elif now >= self._probe_at:
            self._probe_began, self._blocked_windows = now, 0
            self._tried = {self.codec or "": window.speed}
            self._enter(Phase.PROBE, None)
        elif now < self._compare_at or not self._compare(now):
            self._window = _Window()

    def _compare(self, now: float) -> bool:
        """Tries another codec if the link, as it is now, should make that one much better."""
        window, codec = self._window, self.codec
        if codec is None or max(window.packing, window.sending) < 0.5 * window.lasted:
            return False  # neither the link nor the codec is what elements wait for
        link = window.wire / window.lasted  # packing overlaps with transmission
        if not window.blocked:
            link = max(link, self._plain_speed)
        through = {name: estimate.through(link) for name, estimate in self._estimates.items()}
        best = max(through, key=lambda name: through[name])
        if through[best] <= 1.2 * through[codec]:
            return False
        self._compare_at = now + self._compare_gap
        self._compare_gap = min(2 * self._compare_gap, LAST_COMPARE)
        self._to_try, self._tried, self._comparing = [], {codec: window.speed}, True
        self._enter(Phase.TRIAL, best)
        return True

    def _probing(self, now: float) -> None:
        window = self._window
        if window.sending >= WINDOW:
            self._blocked_windows += 1
            if self._blocked_windows >= 2:  # the first has filled the kernel's buffers
                self._judge(now, window.sending_speed)
            else:
                self._window = _Window()
        elif window.size >= PROBE_BYTES and now - self._probe_began >= 5 * WINDOW:
            self._judge(now, float("inf"))

    def _judge(self, now: float, plain_speed: float) -> None:
        """Decides what a probe has shown."""
        [(codec, packed_speed)] = self._tried.items()
        self._probe = min(2 * self._probe, LAST_PROBE)
        if plain_speed > packed_speed / GAIN**0.5:
            self._enter(Phase.PLAIN, None)
        else:
            self._plain_speed = plain_speed
            self._probe_at = now + max(self._probe, PROBE_SHARE * (now - self._probe_began))
            self._enter(Phase.PACKED, codec)

    # ── mechanics ─────────────────────────────────────────────────────────────────────────────────
    def _give_up(self, now: float) -> None:
        self._retry_at = now + self._retry
        self._retry = min(2 * self._retry, LAST_RETRY)
        self._enter(Phase.PLAIN, None)

    def _enter(self, phase: Phase, codec: str | None) -> None:
        self.phase, self.codec, self._window = phase, codec, _Window()
        self._settled, self._slow = False, []


_STEPS: dict[Phase, Callable[[Adaptive, float], None]] = {
    Phase.PLAIN: Adaptive._plain,
    Phase.SAMPLE: Adaptive._sample,
    Phase.TRIAL: Adaptive._trial,
    Phase.PACKED: Adaptive._packed,
    Phase.PROBE: Adaptive._probing,
}
