"""The dispatcher's search for elements that end processes, by values."""

import pytest

from stoker.dataset.streams.calls.call_ranges import NO_DIGEST, CallRange, PoisonedCall, common
from stoker.service import messages as m
from stoker.service.dispatcher.entities import poison
from stoker.service.dispatcher.entities.poison import PoisonSearch
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.dispatcher.test_dispatcher_logic import C1, S1, W1, W2, Talk, only

STREAM, DIGEST, HOW = 5, 77, "it was killed"


def at(*indices: int) -> list[CallRange]:
    return [CallRange(STREAM, index, index + 1) for index in indices]


class _Search(PoisonSearch):
    def die(
        self, *calls: CallRange, alone: int = NO_DIGEST, seed: int = 1, known: int | None = None
    ) -> None:
        known = len(self.poisoned) if known is None else known
        self.add(seed, known, list(calls), alone, HOW)


def test_calls_of_one_death_are_not_suspects():
    search = _Search()
    search.die(*at(4, 7))
    assert (search.suspects(), search.traced(), search.poisoned) == ([], [], [])


def test_calls_that_two_deaths_have_in_common_are_suspects():
    search = _Search()
    search.die(*at(3, 4, 9))
    search.die(*at(4, 5, 9))
    search.die(*at(20))
    assert search.suspects() == at(4, 9)
    assert search.poisoned == []


def test_a_suspect_that_kills_alone_is_poisoned():
    search = _Search()
    search.die(*at(3, 4))
    search.die(*at(4, 5))
    search.die(*at(4), alone=DIGEST)
    assert search.poisoned == [PoisonedCall(STREAM, 4, DIGEST, HOW)]
    assert (search.suspects(), search.deaths) == ([], [])


@pytest.mark.parametrize(
    ("calls", "alone"), [(at(4), NO_DIGEST), (at(4, 5), NO_DIGEST), (at(8), DIGEST)]
)
def test_a_third_death_without_proof_accuses_nobody(calls, alone):
    search = _Search()
    search.die(*at(3, 4))
    search.die(*at(4, 5))
    search.die(*calls, alone=alone)
    assert search.poisoned == []
    assert common(search.suspects(), at(4)) == at(4)


def test_deaths_that_a_found_element_explains_do_not_count():
    search = _Search()
    search.die(*at(3, 4))
    search.die(*at(4, 5))
    search.die(*at(4), alone=DIGEST)
    search.die(*at(4, 9), known=0)  # another worker, which began before it was found
    search.die(*at(9), known=1)
    assert search.suspects() == []
    search.die(*at(9), known=1)
    assert search.suspects() == at(9)


def test_ranges_of_cheap_calls_are_traced_before_they_run_alone():
    search = _Search()
    wide = CallRange(STREAM, 0, poison.MOST_SUSPECTS + 1)
    search.die(wide)
    assert (search.traced(), search.suspects()) == ([wide], [])
    search.die(wide)
    assert (search.traced(), search.suspects()) == ([wide], [])
    search.die(*at(4))
    assert search.suspects() == at(4)
    search.die(*at(4), alone=DIGEST)
    assert [each.index for each in search.poisoned] == [4]


def test_a_short_range_in_common_runs_alone_at_once():
    search = _Search()
    search.die(CallRange(STREAM, 0, 100))
    search.die(CallRange(STREAM, 90, 200))
    assert search.suspects() == [CallRange(STREAM, 90, 100)]


def test_memory_of_deaths_is_bounded(monkeypatch):
    monkeypatch.setattr(poison, "REMEMBERED_DEATHS", 3)
    monkeypatch.setattr(poison, "REMEMBERED_SEEDS", 2)
    search = _Search()
    for index in range(10):
        search.die(*at(index), seed=index)
    assert search.deaths == [at(7), at(8), at(9)]
    assert search.seeds == [8, 9]


def test_a_dead_seed_is_repeated_by_one_task_at_a_time():
    search = _Search()
    search.die(*at(1), seed=11)
    search.die(*at(2), seed=12)
    assert search.seed_to_repeat({11}) == 12
    assert search.seed_to_repeat({11, 12, 13}) is None


# ── in the dispatcher ────────────────────────────────────────────────────────────────────────────
class _Dying(Talk):
    def __init__(self, mode: ShardingPolicy = ShardingPolicy.OFF) -> None:
        super().__init__()
        self.join(W1)
        [(_, start)] = only(self.read(C1, mode), m.TaskStart)
        self.start = start
        self.say(S1, m.SupervisorHello(1, 1))

    def die(self, *calls: CallRange, alone: int = NO_DIGEST) -> m.TaskStart:
        """Let the worker die in these calls; return the task of the next one."""
        in_flight = {self.task(W1): list(calls)} if calls else {}
        report = m.WorkerDied(self.worker_ids[W1], HOW, self.key(W1), in_flight, alone)
        self.say(S1, report)
        [(_, start)] = only(self.join(W1), m.TaskStart)
        return start


def test_a_task_that_starts_later_gets_suspects_and_errors():
    talk = _Dying()
    first = talk.die(*at(4, 7))
    assert (first.suspects, first.traced, first.poisoned) == ([], [], [])
    assert talk.die(*at(4)).suspects == at(4)
    third = talk.die(*at(4), alone=DIGEST)
    assert (third.suspects, third.poisoned) == ([], [PoisonedCall(STREAM, 4, DIGEST, HOW)])


def test_a_task_in_place_of_a_dead_one_repeats_its_seed():
    talk = _Dying()
    later = talk.die(*at(4))
    assert later.seed == talk.start.seed
    assert later.task_id != talk.start.task_id
    [(_, other)] = only(talk.join(W2), m.TaskStart)
    assert other.seed != later.seed


def test_a_task_after_another_death_has_a_new_seed():
    talk = _Dying()
    assert talk.die().seed != talk.start.seed


def test_begun_splits_never_run_again_so_nothing_is_searched():
    talk = _Dying(ShardingPolicy.DYNAMIC)
    for _ in range(2):
        start = talk.die(*at(4))
        assert (start.suspects, start.poisoned) == ([], [])
    [iteration] = talk.logic.state.iterations.values()
    assert iteration.poison == PoisonSearch()


def test_a_report_of_unknown_tasks_removes_the_worker():
    talk = _Dying()
    worker_id = talk.worker_ids[W1]
    talk.say(S1, m.WorkerDied(worker_id, HOW, talk.key(W1), {1: at(4)}, DIGEST))
    assert worker_id not in talk.logic.state.workers


@pytest.mark.parametrize(
    "calls", [[CallRange(5, -1, 4)], [CallRange(5, 4, 4)], [CallRange(5, 9, 4)], []]
)
def test_a_report_of_impossible_calls_searches_nothing(calls):
    talk = _Dying()
    talk.die(*calls, alone=DIGEST)
    [iteration] = talk.logic.state.iterations.values()
    assert iteration.poison == PoisonSearch()


def test_ranges_that_run_alone_accuse_no_call():
    search = _Search()
    search.die(*at(4))
    search.die(*at(4))
    search.die(CallRange(STREAM, 0, 9), alone=DIGEST)
    assert search.poisoned == []
