"""The rules that the elements of an epoch must obey, whatever died meanwhile."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

MODES = ("distributed_epoch", "parallel_epochs")


@dataclass
class Reading:
    """One client's reading of an epoch.

    Attributes:
        received: number and task of each element, in the order of arrival.
        stats: of the iterator, at the end.
        error: that ended the epoch, or "".
        killed: the client was killed before the end.
    """

    received: list[tuple[int, int]] = field(default_factory=list)
    stats: dict[str, int] = field(default_factory=dict)
    error: str = ""
    killed: bool = False

    @property
    def counted(self) -> int:
        """Elements that the client was told are lost, at most; each split has one element."""
        return self.stats.get("splits_lost", 0) + self.stats.get("elements_lost", 0)

    @property
    def tasks_lost(self) -> int:
        """Tasks that the client was told are lost."""
        return self.stats.get("tasks_lost", 0)


def violations(
    mode: str, elements: int, readings: Sequence[Reading], *, losses: bool, drains: int
) -> list[str]:
    """Return one sentence for each rule that an epoch broke.

    Args:
        mode: the processing mode.
        elements: elements of the dataset, a split each.
        readings: of all clients of the job.
        losses: a worker may have been lost during the epoch.
        drains: workers that drained during the epoch.
    """
    found = [f"a client raised {reading.error}" for reading in readings if reading.error]
    if not losses and any(reading.tasks_lost for reading in readings):
        found.append("a task was lost although no worker was")
    if mode == "distributed_epoch":
        return found + _dynamic(elements, readings)
    [reading] = readings
    return found + _off(elements, reading, drains)


def _dynamic(elements: int, readings: Sequence[Reading]) -> list[str]:
    """No element twice; each once, or it was counted as lost."""
    counts = Counter(number for reading in readings for number, _ in reading.received)
    found = []
    if repeated := sorted(number for number, count in counts.items() if count > 1):
        found.append(f"{len(repeated)} elements arrived twice: {_few(repeated)}")
    if strange := sorted(set(counts) - set(range(elements))):
        found.append(f"elements that do not exist: {_few(strange)}")
    if any(reading.killed or reading.error for reading in readings):
        return found  # it held elements that nobody received, and could not say how many
    missing = sorted(set(range(elements)) - set(counts))
    counted = max(reading.counted for reading in readings)
    if len(missing) > counted:
        found.append(
            f"{len(missing)} elements are missing, but only {counted} were counted as lost: "
            f"{_few(missing)}"
        )
    return found


def _off(elements: int, reading: Reading, drains: int) -> list[str]:
    """Each task yields the dataset from the beginning in order; one at least to its end."""
    tasks = defaultdict(list)
    for number, task in reading.received:
        tasks[task].append(number)
    found = [
        f"task {task} yielded {_few(numbers)}, which is not the beginning of the dataset"
        for task, numbers in tasks.items()
        if numbers != list(range(len(numbers)))
    ]
    if reading.error:
        return found
    short = sum(len(numbers) < elements for numbers in tasks.values())
    if short == len(tasks):
        found.append("no task was read to its end")
    if short > reading.tasks_lost + drains:
        found.append(
            f"{short} tasks ended early; {reading.tasks_lost} were lost and {drains} drained"
        )
    return found


def _few(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:8]))
    return f"{text}, ..." if len(numbers) > 8 else text
