"""A simulated stream over a link: a pipeline, a sender that may compress, a kernel, a user."""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from stoker.wire.compression import CODECS

MB = 1e6


class Policy(Protocol):
    """Interface of `AutoCompression`."""

    def choose(self) -> str | None: ...
    def sent(
        self, size: int, wire: int, compressing: float, began: float, ended: float
    ) -> None: ...


@dataclass(frozen=True)
class Always:
    """Every body with one codec, or with none."""

    codec: str | None

    def choose(self) -> str | None:
        return self.codec

    def sent(self, size: int, wire: int, compressing: float, began: float, ended: float) -> None:
        pass


@dataclass(frozen=True)
class Data:
    """What codecs do to it: bytes packed in a second, and the part of them that is left."""

    speed: dict[str, float]
    ratio: dict[str, float]


def data(speed: float, ratio: float) -> Data:
    """What LZ4 packs at `speed` to `ratio`; the others behave as they do beside it."""
    if ratio >= 0.95:  # all give up early
        return Data(dict.fromkeys(CODECS, speed), dict.fromkeys(CODECS, 1.0))
    return Data(
        {"LZ4": speed, "SNAPPY": speed, "ZSTD": 0.4 * speed},
        {"LZ4": ratio, "SNAPPY": 0.9 * ratio, "ZSTD": 0.65 * ratio},
    )


TEXT = data(900 * MB, 0.45)
NOISE = data(9000 * MB, 1.0)


@dataclass
class Stream:
    """One connection. Sizes in bytes, rates in bytes a second.

    Attributes:
        link: its rate.
        kernel: how much the kernels and whatever lies between take before a send blocks.
        produce: rate of the pipeline.
        consume: rate of the user.
        window: bytes sent and not consumed, at most.
        memory: rate at which the kernel copies.
    """

    link: float
    kernel: float = 4 * MB
    produce: float = 1e12
    consume: float = 1e12
    window: float = 64 * MB
    memory: float = 4000 * MB
    now: float = 0.0
    _queued: float = 0.0
    _queued_at: float = 0.0
    _produced_at: float = 0.0
    _consumed_at: float = 0.0

    def __post_init__(self) -> None:
        self._outstanding: deque[tuple[float, int]] = deque()
        self.unconsumed = 0

    def send(self, policy: Policy, size: int, data: Data) -> None:
        """One body, from when the pipeline has it; returns when the sender is free again."""
        self._produced_at = max(self._produced_at, self.now - 64 * MB / self.produce)
        self._produced_at += size / self.produce
        self.now = max(self.now, self._produced_at)
        while self._outstanding and (
            self.unconsumed + size > self.window or self._outstanding[0][0] <= self.now
        ):
            consumed_at, consumed = self._outstanding.popleft()
            self.now = max(self.now, consumed_at)
            self.unconsumed -= consumed
        codec, wire, seconds = policy.choose(), size, 0.0
        if codec is not None:
            seconds = size / data.speed[codec]
            self.now += seconds
            compressed = int(size * data.ratio[codec])
            wire = compressed if compressed < 0.95 * size else size
        began = self.now
        self._transmit(wire)
        policy.sent(size, wire, seconds, began, self.now)
        arrived = self.now + self._queued / self.link
        self._consumed_at = max(self._consumed_at, arrived) + size / self.consume
        self._outstanding.append((self._consumed_at, size))
        self.unconsumed += size

    def _transmit(self, wire: int) -> None:
        self._drain()
        self._queued += wire
        self.now += max(wire / self.memory, (self._queued - self.kernel) / self.link)
        self._drain()

    def _drain(self) -> None:
        self._queued = max(0.0, self._queued - (self.now - self._queued_at) * self.link)
        self._queued_at = self.now

    @property
    def finished(self) -> float:
        """When the user has everything that was sent."""
        return self._consumed_at


def seconds(policy: Policy, bodies: list[tuple[int, Data]], **link: float) -> float:
    """How long the user waits for all of `bodies`, sizes and what they are."""
    stream = Stream(**link)
    for size, data in bodies:
        stream.send(policy, size, data)
    return stream.finished
