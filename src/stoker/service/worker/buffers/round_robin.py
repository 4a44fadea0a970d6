"""Buffer of a coordinated read: runs of consecutive elements, one element for each consumer."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.errors import FailedPreconditionError, InvalidArgumentError, to_record
from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.buffer import Buffer

RUNS_AHEAD = 256
"""Most runs that a task computes ahead: elements are usually batches, and a worker that stops needs
time until they are consumed. With 131,072 scalars ahead three workers in the trainer's process let
it wait 5 ms for each element, with 256 runs 0.3 ms."""

END_OF_SEQUENCE = (
    "Encountered end of sequence on a round-robin read iterator. Please ensure that the dataset "
    "used for round-robin reading has infinite cardinality, e.g. by adding a .repeat() "
    "transformation at the end; or end all consumers at the same step: "
    "Dataset.with_options(stoker.Options(finite_coordinated=True))"
)


RUNS_KEPT = 1
"""Consumed runs that are kept for an absent consumer: its successor may take part in the last round
of the others."""


@dataclass
class _ConsumerQueue:
    """The elements of one consumer index.

    Attributes:
        queue: one chunk for each run from `first` on.
        first: the first run that was not taken, or was given back.
        wanted: runs before it are dropped.
        consumed: runs before it are consumed by `client`.
        client: the client that reads it.
        absent: its client has left, and no other came.
        nbytes: the size of the queue.
    """

    queue: deque[Chunk] = field(default_factory=deque)
    first: int = 0
    wanted: int = 0
    consumed: int = 0
    client: int | None = None
    absent: bool = False
    nbytes: int = 0

    def put(self, chunk: Chunk) -> None:
        """Append the element of the next run."""
        self.queue.append(chunk)
        self.nbytes += chunk.nbytes
        self.skip(self.wanted)

    def take(self) -> Chunk:
        """Remove and return the first element."""
        chunk = self.queue.popleft()
        self.first += 1
        self.nbytes -= chunk.nbytes
        return chunk

    def skip(self, run: int) -> None:
        """Drop the elements of the runs before `run`."""
        self.wanted = max(self.wanted, run)
        while self.first < run and self.queue:
            self.take()


class RoundRobin(Buffer):
    """Each run of `num_consumers` consecutive elements is dealt to the consumers by their index.

    Element i of a run is for the consumer with index i, and the numbers of its frames are those of
    the runs. A consumer that has left keeps its place: what it was sent and has not consumed is for
    its successor, as long as another consumer has not consumed its part of the run.

    Args:
        num_consumers: the number of consumers.
        absent: indexes of consumers that have left.
        finite_coordinated: the end of the data is no error.
    """

    in_runs = True
    max_frame_elements = 1

    def __init__(
        self, num_consumers: int, absent: Sequence[int] = (), *, finite_coordinated: bool = False
    ) -> None:
        self._places = [_ConsumerQueue() for _ in range(num_consumers)]
        for index in absent:
            self._places[index].absent = True
        self._finite = finite_coordinated
        self._by_client: dict[int, _ConsumerQueue] = {}
        self._run: list[Chunk] = []

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in self._places) + sum(x.nbytes for x in self._run)

    @property
    def undelivered(self) -> int:
        return sum(len(place.queue) for place in self._expected()) + len(self._run)

    @property
    def abandoned(self) -> bool:
        return not self._present()

    def has_room(self, max_bytes: int) -> bool:
        """Return whether the pipeline may compute more.

        Before a whole run is computed there always is: consumers wait for it.
        """
        places = self._expected()
        runs = max(len(place.queue) for place in places)
        if not runs:
            return bool(max_bytes) or not self._run
        return sum(place.nbytes for place in places) < max_bytes and runs < RUNS_AHEAD

    def put(self, chunk: Chunk) -> None:
        if chunk.error is not None:
            self._add(chunk)
            return
        count = len(chunk.elements)
        for k, element in enumerate(chunk.elements):
            # Differences of rounded totals, which add up to the size of the chunk.
            nbytes = chunk.nbytes * (k + 1) // count - chunk.nbytes * k // count
            self._add(Chunk([element], nbytes, shared=chunk.shared))

    def _add(self, chunk: Chunk) -> None:
        self._run.append(chunk)
        if len(self._run) == len(self._places):
            for place, each in zip(self._places, self._run, strict=True):
                place.put(each)
            self._run.clear()
            self._trim()

    def join(
        self, client_id: int, trainer: str, consumer_index: int | None, first_frame: int = 0
    ) -> int:
        """Give a client its place, from the run `first_frame` on.

        Raises:
            InvalidArgumentError: if it has no valid index.
        """
        if consumer_index is None or consumer_index >= len(self._places):
            raise InvalidArgumentError(
                f"`consumer_index` must be in [0, {len(self._places)}), got {consumer_index}"
            )
        place = self._places[consumer_index]
        place.client, place.absent = client_id, False
        self._by_client[client_id] = place
        return self.skip(client_id, first_frame)

    def skip(self, client_id: int, frame: int) -> int:
        place = self._by_client[client_id]
        place.skip(frame)
        place.consumed = max(place.first, frame)
        return place.consumed

    def waiting(self, client_id: int) -> int:
        return len(self._by_client[client_id].queue)

    def take(self, client_id: int, max_elements: int, max_bytes: int) -> Chunk:
        return self._by_client[client_id].take()

    def consumed(self, client_id: int, frame: int) -> None:
        place = self._by_client[client_id]
        place.consumed = max(place.consumed, frame)
        self._trim()

    def give_back(self, client_id: int, chunks: Sequence[Chunk]) -> None:
        place = self._by_client.pop(client_id)
        for chunk in reversed(chunks):
            place.queue.appendleft(chunk)
            place.nbytes += chunk.nbytes
        # The successor of this consumer continues in the round that its others are in.
        place.first = place.wanted = place.first - len(chunks)
        if place.client == client_id:
            place.client, place.absent = None, True
        self._trim()

    def lose(self, client_id: int, chunks: Sequence[Chunk]) -> int:
        """Keep what the client may have consumed: its successor gets it."""
        self.give_back(client_id, chunks)
        return 0

    def release(self, client_id: int, consumer_index: int | None) -> None:
        """Mark the place of a client that has left before it connected as absent."""
        if consumer_index is not None and consumer_index < len(self._places):
            place = self._places[consumer_index]
            place.absent = place.absent or place.client is None
            self._trim()

    def finish(self, *, cut: bool) -> None:
        """Drop a run that is not complete, and report the end of data that must not end."""
        # Not one consumer got an element of this run, so that all end at the same step.
        self._run.clear()
        if not (cut or self._finite):
            error = to_record(FailedPreconditionError(END_OF_SEQUENCE))
            for place in self._places:
                place.put(Chunk([], 0, error))

    def _expected(self) -> list[_ConsumerQueue]:
        """Return the places whose elements count: all if no consumer is there."""
        return self._present() or self._places

    def _present(self) -> list[_ConsumerQueue]:
        """Return the places of consumers that read, or have not come yet."""
        return [place for place in self._places if not place.absent]

    def _trim(self) -> None:
        """Drop what no successor of an absent consumer will need."""
        if not self._by_client or not any(place.absent for place in self._places):
            return
        first = min(place.consumed for place in self._by_client.values()) - RUNS_KEPT
        for place in self._places:
            if place.absent:
                place.skip(first)
