"""Evidence of where the time of one task goes; workers measure it, clients judge by it."""

import msgspec

from stoker.dataset.streams.measure.stage_report import StageReport, combined
from stoker.service.loading import Loading
from stoker.wire.frames import UNDECODABLE


class TaskEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Totals of one task on its worker, since its pipeline was opened.

    A worker sends it to the clients of the task, at most twice a second and at the end of the task,
    encoded by `encode`, in `wire.frames.Report`.

    Attributes:
        seconds: the time since then, or until the end.
        computing: the seconds in which its pipeline computed, waits for splits not included.
        put_wait: the seconds in which its pipeline waited for room in the buffer.
        split_wait: the seconds in which it computed nothing because a source waited for a split of
            the dispatcher.
        occupancy: the mean fraction of the buffer in use when a chunk was added; ``None`` for a
            cross-trainer cache, which is always full.
        chunks: the number of chunks computed.
        elements: the number of elements computed, errors in place of elements included.
        bytes: about how many bytes they take.
        ended: the pipeline has ended.
        cores: the number of processors that the worker may use.
        splits: number of a source → the number of its splits, where the dispatcher assigns them.
        stages: the stages of its pipeline.
        loading: the reason that it has no element yet; ``None`` if it has, or waits for something
            else.
    """

    seconds: float = 0.0
    computing: float = 0.0
    put_wait: float = 0.0
    split_wait: float = 0.0
    occupancy: float | None = None
    chunks: int = 0
    elements: int = 0
    bytes: int = 0
    ended: bool = False
    cores: int = 1
    splits: dict[int, int] = {}
    stages: list[StageReport] = []
    loading: Loading | None = None

    def since(self, before: "TaskEvidence") -> "TaskEvidence":
        """Return the part after `before`, an earlier evidence of the same task."""
        return _combined(self, before, 1.0, -1)

    def plus(self, later: "TaskEvidence", weight: float) -> "TaskEvidence":
        """Return the sum with the evidence of a later period, of which the times are weighted."""
        return _combined(later, self, weight, 1)


def _combined(new: TaskEvidence, old: TaskEvidence, weight: float, sign: int) -> TaskEvidence:
    before = {stage.number: stage for stage in old.stages}
    stages = [
        combined(each, before.get(each.number) or StageReport(each.number, each.kind), weight, sign)
        for each in new.stages
    ]
    return msgspec.structs.replace(combined(new, old, weight, sign), stages=stages)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(TaskEvidence)


def encode(evidence: TaskEvidence) -> bytes:
    """Return the evidence as msgpack."""
    return _ENCODER.encode(evidence)


def decode(data: bytes) -> TaskEvidence | None:
    """Return the evidence that `encode` encoded; ``None`` if a version unknown here did."""
    try:
        return _DECODER.decode(data)
    except UNDECODABLE:
        return None
