"""Search for the elements of an iteration that end the processes of its workers.

When a worker dies, its supervisor reports the calls of user functions in flight. Calls that two
deaths have in common are *suspects*: tasks that start later run each of them alone. If a worker
dies of a suspect that runs alone, that is *poisoned*, and later tasks yield an error in its place.
"""

from collections.abc import Container

import msgspec

from stoker.dataset.streams.calls.call_ranges import (
    NO_DIGEST,
    CallRange,
    PoisonedCall,
    common,
    merged,
    without,
)

REMEMBERED_DEATHS = 256
"""Most deaths without an explanation that an iteration remembers: many workers may die of the same
element, each at another position."""

REMEMBERED_SEEDS = 64
"""Most seeds of dead tasks that an iteration remembers."""

MOST_SUSPECTS = 1024
"""Most consecutive calls that run alone. If two deaths have more in common, which is so for cheap
functions, the calls are recorded one by one first, and the next death shows which it was."""

LONGEST_HOW = 500
"""Most characters kept of the description of a death."""


# Poisoned elements are found by the calls in flight when processes die. (docs/decisions/073)
class PoisonSearch(msgspec.Struct, array_like=True):
    """Deaths of the workers of one iteration, and their causes; part of the recorded state.

    Attributes:
        deaths: the calls in flight at each that no poisoned call explains, the latest last.
        in_common: the calls in flight at two deaths or more.
        seeds: the seeds of tasks that died. A task in place of one of them repeats its seed, so
            that it has the same elements at the same positions.
        poisoned: in the order in which they were found.
    """

    deaths: list[list[CallRange]] = []
    in_common: list[CallRange] = []
    seeds: list[int] = []
    poisoned: list[PoisonedCall] = []

    def add(self, seed: int, known: int, calls: list[CallRange], alone: int, how: str) -> None:
        """Add the death of a task.

        Args:
            seed: the seed of the task.
            known: the length of `poisoned` when it was started.
            calls: its calls in flight.
            alone: the digest of the element of the only call, if that ran alone.
            how: describes the death.
        """
        if seed not in self.seeds:
            self.seeds = [*self.seeds, seed][-REMEMBERED_SEEDS:]
        found_since = [CallRange(x.stream, x.index, x.index + 1) for x in self.poisoned[known:]]
        # A call that was found poisoned after the start of the task explains the death.
        if common(calls, found_since):
            return
        is_one = len(calls) == 1 and calls[0].stop == calls[0].first + 1
        if alone != NO_DIGEST and is_one and common(self.in_common, calls):
            self._accuse(calls[0], alone, how)
        else:
            self._add(calls)

    def _accuse(self, call: CallRange, digest: int, how: str) -> None:
        """Declare a call poisoned, which explains the deaths at which it was in flight."""
        self.poisoned.append(PoisonedCall(call.stream, call.first, digest, how[:LONGEST_HOW]))
        for death in [x for x in self.deaths if common(x, [call])]:
            self.deaths.remove(death)
            # Calls of a death that is explained are no suspects.
            self.in_common = without(self.in_common, death)

    def _add(self, calls: list[CallRange]) -> None:
        narrowed = []
        for each in self.in_common:
            # A range too wide to run alone is narrowed by each death that has calls in it.
            both = common([each], calls) if _is_wide(each) else []
            narrowed += both or [each]
        for other in self.deaths:
            narrowed += common(other, calls)
        self.in_common = merged(narrowed)
        self.deaths = [*self.deaths, calls][-REMEMBERED_DEATHS:]

    def suspects(self) -> list[CallRange]:
        """Return the calls that tasks run alone."""
        return [each for each in self.in_common if not _is_wide(each)]

    def traced(self) -> list[CallRange]:
        """Return the calls that tasks record one by one."""
        calls = (call for death in self.deaths for call in death)
        return merged(call for call in calls if call.stop - call.first > 1)

    def seed_to_repeat(self, running: Container[int]) -> int | None:
        """Return the seed of a dead task that no task repeats; ``None`` if there is none.

        Args:
            running: the seeds of the present tasks.
        """
        return next((seed for seed in self.seeds if seed not in running), None)


def _is_wide(calls: CallRange) -> bool:
    return calls.stop - calls.first > MOST_SUSPECTS
