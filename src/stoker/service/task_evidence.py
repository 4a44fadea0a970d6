"""Evidence of where the time of one task goes; workers measure it, clients judge by it."""

import msgspec

from stoker.dataset.streams.measure.stage_report import StageReport
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
        return msgspec.structs.replace(
            self,
            seconds=self.seconds - before.seconds,
            computing=self.computing - before.computing,
            put_wait=self.put_wait - before.put_wait,
            split_wait=self.split_wait - before.split_wait,
            chunks=self.chunks - before.chunks,
            elements=self.elements - before.elements,
            bytes=self.bytes - before.bytes,
            stages=_since(self.stages, before.stages),
        )

    def plus(self, later: "TaskEvidence", weight: float) -> "TaskEvidence":
        """Return the sum with the evidence of a later period, of which the times are weighted."""
        return msgspec.structs.replace(
            later,
            seconds=self.seconds + weight * later.seconds,
            computing=self.computing + weight * later.computing,
            put_wait=self.put_wait + weight * later.put_wait,
            split_wait=self.split_wait + weight * later.split_wait,
            chunks=self.chunks + later.chunks,
            elements=self.elements + later.elements,
            bytes=self.bytes + later.bytes,
            stages=_plus(self.stages, later.stages, weight),
        )


def _plus(stages: list[StageReport], later: list[StageReport], weight: float) -> list[StageReport]:
    earlier = {stage.number: stage for stage in stages}
    summed = []
    for stage in later:
        first = earlier.get(stage.number) or StageReport(stage.number, stage.kind)
        summed.append(
            msgspec.structs.replace(
                stage,
                elements=first.elements + stage.elements,
                bytes=first.bytes + stage.bytes,
                busy=first.busy + weight * stage.busy,
                get_wait=first.get_wait + weight * stage.get_wait,
                put_wait=first.put_wait + weight * stage.put_wait,
            )
        )
    return summed


def _since(stages: list[StageReport], before: list[StageReport]) -> list[StageReport]:
    earlier = {stage.number: stage for stage in before}
    return [
        msgspec.structs.replace(
            stage,
            elements=stage.elements - first.elements,
            bytes=stage.bytes - first.bytes,
            busy=stage.busy - first.busy,
            get_wait=stage.get_wait - first.get_wait,
            put_wait=stage.put_wait - first.put_wait,
        )
        if (first := earlier.get(stage.number)) is not None
        else stage
        for stage in stages
    ]


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
