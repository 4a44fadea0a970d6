"""Epochs of a rank: its part, the seeds that loaders share, and states."""

import json
import warnings
from typing import Any

import pytest

import stoker
from stoker import Dataset
from stoker.adapters.epochs import Epochs, Framework
from stoker.adapters.iteration import LoaderIterator
from stoker.adapters.passes import _counter_of_jobs
from stoker.adapters.ranks import Rank
from stoker.adapters.steps import Steps
from stoker.compat import tf
from stoker.errors import InvalidArgumentError

ALONE = Rank()


class Ranks(Framework):
    """A process with the rank `rank`, which gets the values that rank 0 put in `of_rank_0`."""

    def __init__(self, rank=ALONE, of_rank_0=None):
        self.rank = rank
        self.of_rank_0 = {} if of_rank_0 is None else of_rank_0
        self.seeds = iter(range(5, 100))
        self.agreements = 0

    def current_rank(self):
        return self.rank

    def agree(self):
        def agreed(values):
            self.agreements += 1
            return self.of_rank_0.setdefault(self.agreements, values)

        return agreed

    def draw_seed(self):
        return next(self.seeds)


def epochs(dataset, framework=None, **changes):
    options: dict[str, Any] = {
        "batch_size": None,
        "drop_last": False,
        "shuffle": None,
        "seed": None,
    }
    options |= {"rank": None, "prefetch": 0} | changes
    return Epochs(dataset, framework or Ranks(), **options)


@pytest.fixture(autouse=True)
def _no_named_jobs():
    """Counts of named jobs live as long as the process, and have descriptors."""
    yield
    _counter_of_jobs.cache_clear()


def read(part):
    return [int(x) for x in begun(part, 0)]


def begun(part, count):
    """Return the iterator of a loader after `count` elements."""
    iterator, progress = part.start()
    reader = LoaderIterator(iterator, progress, Steps(iterator, list.pop))
    for _ in range(count):
        next(reader)
    return reader


def test_rank_that_is_known_after_the_length_has_its_part():
    frameworks = [Ranks(), Ranks()]
    parts = [epochs(Dataset.range(10).shuffle(10), framework) for framework in frameworks]
    for part in parts:
        assert len(part) == 10
        part.state_dict()
    for index, framework in enumerate(frameworks):
        framework.rank = Rank(index, 2)
    assert [len(part) for part in parts] == [5, 5]
    assert sorted(read(parts[0]) + read(parts[1])) == list(range(10))


@pytest.mark.parametrize("resumes", [False, True])
def test_take_and_skip_of_one_shuffled_dataset_do_not_overlap(resumes):
    def halves():
        order = Dataset.range(100).shuffle(100)
        return epochs(order.take(80)), epochs(order.skip(80))

    train, held_out = halves()
    if resumes:
        state = train.state_dict()
        train, held_out = halves()
        train.load_state_dict(state)
    assert sorted(read(train) + read(held_out)) == list(range(100))


def test_loaders_that_shuffle_have_orders_of_their_own():
    dataset = Dataset.range(50)
    framework = Ranks()
    one, other = (epochs(dataset, framework, shuffle=True) for _ in range(2))
    assert read(one) != read(other)


def test_state_has_the_order_of_shuffle():
    part = epochs(Dataset.range(50), shuffle=True)
    begun(part, 20)
    framework = Ranks()
    framework.draw_seed()
    resumed = epochs(Dataset.range(50), framework, shuffle=True)
    resumed.load_state_dict(part.state_dict())
    rest = read(resumed)
    assert len(rest) == 30
    assert rest == read(epochs(Dataset.range(50), shuffle=True))[20:]
    assert read(resumed) != rest


@pytest.mark.parametrize("count", [0, 7, 50])
@pytest.mark.parametrize("shuffle", [None, True])
def test_state_has_the_drawn_seeds_of_the_dataset(count, shuffle):
    def make():
        tf.data.Dataset.range(5).shuffle(5)
        dataset = tf.data.Dataset.range(50).shuffle(9)
        return epochs(dataset, shuffle=shuffle)

    part = make()
    reader = begun(part, count)
    state = json.loads(json.dumps(part.state_dict()))
    rest = [int(x) for x in reader]
    following = [rest, read(part)] if rest else [read(part)]
    resumed = make()
    resumed.load_state_dict(state)
    assert [read(resumed) for _ in following] == following


def test_ranks_take_the_seed_of_rank_0():
    common: dict[int, list[str]] = {}
    parts = [
        epochs(Dataset.range(10).shuffle(10), Ranks(Rank(rank, 2), common), seed=7 + rank)
        for rank in range(2)
    ]
    assert sorted(read(parts[0]) + read(parts[1])) == list(range(10))
    state = parts[0].state_dict()
    assert [part.state_dict() for part in parts] == [state, state]
    for rank in range(2):
        resumed = epochs(Dataset.range(10), Ranks(Rank(rank, 2), common), seed=7 + rank)
        resumed.load_state_dict(state)


def test_state_is_taken_without_the_other_ranks():
    framework = Ranks(Rank(0, 2))
    with stoker.LocalCluster(1, threads=True) as cluster:
        part = epochs(Dataset.range(10).distribute(cluster), framework, seed=1)
        part.load_state_dict(part.state_dict())
    assert framework.agreements == 0


def test_state_after_the_last_element_is_the_next_epoch():
    part = epochs(Dataset.range(3))
    begun(part, 3)
    state = part.state_dict()
    assert (state["epoch"], state["iterator"]) == (1, None)
    begun(part, 2)
    resumed = epochs(Dataset.range(3))
    resumed.load_state_dict(part.state_dict())
    begun(resumed, 1)
    assert resumed.state_dict()["epoch"] == 2


def test_epoch_of_a_service_starts_again_with_a_warning():
    with stoker.LocalCluster(1, threads=True) as cluster:
        part = epochs(Dataset.range(10).distribute(cluster, processing_mode="distributed_epoch"))
        read(part)
        begun(part, 2).close()
        with pytest.warns(UserWarning, match="this state is within epoch 1, which cannot"):
            state = part.state_dict()
        assert part.state_dict() == state  # one warning
        resumed = epochs(Dataset.range(10).distribute(cluster, processing_mode="distributed_epoch"))
        with pytest.warns(UserWarning, match="within epoch 1"):
            resumed.load_state_dict(state)
        assert (state["epoch"], sorted(read(resumed))) == (1, list(range(10)))
        begun(part, 10)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            resumed.load_state_dict(part.state_dict())


def test_state_of_a_named_job_is_that_of_its_reader():
    with stoker.LocalCluster(1, threads=True) as cluster:
        dataset = Dataset.range(10).distribute(cluster, job_name="shared")
        one, other = epochs(dataset), epochs(dataset)
        first, second = begun(one, 1), begun(other, 0)
        with pytest.warns(UserWarning, match="within epoch 0"):
            state = one.state_dict()
        first.close()
        second.close()
    assert (state["epoch"], state["within"]) == (0, True)


def test_named_jobs_of_two_services_count_apart():
    for _ in range(2):
        with stoker.LocalCluster(1, threads=True) as cluster:
            part = epochs(Dataset.range(3).distribute(cluster, job_name="train"))
            read(part)
            assert part.state_dict()["epoch"] == 1


def test_seed_repeats_the_order_of_a_service():
    with stoker.LocalCluster(1, threads=True) as cluster:
        dataset = Dataset.range(50).shuffle(50).distribute(cluster)
        orders = [read(epochs(dataset, seed=seed)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_seed_of_a_registered_dataset_is_refused():
    with stoker.LocalCluster(1, threads=True) as cluster:
        dataset_id = stoker.service.register_dataset(cluster, Dataset.range(3))
        dataset = stoker.service.from_dataset_id("parallel_epochs", cluster, dataset_id)
        with pytest.raises(InvalidArgumentError, match="before register_dataset"):
            epochs(dataset, seed=1)


def test_state_that_does_not_fit_fails_again():
    part = epochs(Dataset.range(9))
    begun(part, 2)
    other = epochs(Dataset.range(9).map(abs))
    other.load_state_dict(part.state_dict())
    for _ in range(2):
        with pytest.raises(InvalidArgumentError):
            other.start()
    other.set_next(0)
    assert read(other) == list(range(9))


def test_epoch_that_could_not_be_opened_is_not_counted(monkeypatch):
    part = epochs(Dataset.range(3))

    def fail(*_, **__):
        raise OSError("unreachable")

    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "iterator", fail)
        with pytest.raises(OSError, match="unreachable"):
            part.start()
    _, progress = part.start()
    assert progress.epoch == 0


def test_state_of_another_number_of_ranks_is_named():
    part = epochs(Dataset.range(20), Ranks(Rank(0, 2)))
    begun(part, 2)
    other = epochs(Dataset.range(20), Ranks(Rank(0, 4)))
    other.load_state_dict(part.state_dict())
    with pytest.raises(InvalidArgumentError, match="of 2 ranks, and this training has 4"):
        other.start()
