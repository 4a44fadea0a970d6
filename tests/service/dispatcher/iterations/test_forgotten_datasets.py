"""Datasets that no job, client or reader of an id needs are forgotten."""

import msgspec
import pytest

import stoker
from stoker.dataset.tree.splits import Source, Unsplittable
from stoker.dataset.tree.structure import WireNode, structure_of
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.service import messages as m
from stoker.service.dispatcher.iterations import dataset_collector
from stoker.service.rules.processing_modes import ShardingPolicy
from stoker.service.worker.pipelines import dataset_cache
from tests.service.dispatcher.test_dispatcher_logic import FOUR, W1, W2, Talk, only
from tests.serving import Service, read

SHORT = {
    "job_gc_timeout_ms": 1000,
    "job_gc_check_interval_ms": 250,
    "worker_timeout_ms": 10**9,
    "client_timeout_ms": 10**9,
}


def _tree(data: bytes) -> bytes:
    return msgspec.msgpack.encode([WireNode("sim", [], msgspec.Raw(b"\x80"), {"f": data}, "")])


def _registration(name: str, size: int = 10) -> m.RegisterDataset:
    tree = _tree(bytes(size))
    return m.RegisterDataset(
        digest=name,
        tree=tree,
        spec=spec_to_wire(UnknownSpec()),
        sources=[Source(0, "sim", "train.py:1", FOUR)],
        structure=structure_of(tree),
        functions=[m.Function("train.py:2", name)],
    )


class _Reader:
    """A client that sends its hello without the tree, then with it if it is asked to."""

    last_peer = 100

    def __init__(self, talk: Talk, name: str, job: str = "", epoch: int = 0, size: int = 10):
        _Reader.last_peer += 1
        self.talk, self.peer = talk, _Reader.last_peer
        parameters = m.JobParameters(ShardingPolicy.DYNAMIC)
        whole = _registration(name, size)
        brief = msgspec.structs.replace(whole, tree=b"")
        hello = m.ClientHello(
            1, 1, "", job or f"of {name}", parameters, (epoch,), named=bool(job), registration=brief
        )
        said = talk.say(self.peer, hello)
        self.sent_tree = said == [(self.peer, m.DatasetUnknown())]
        if self.sent_tree:
            said = talk.say(self.peer, msgspec.structs.replace(hello, registration=whole))
        [(_, self.welcome)] = only(said, m.ClientWelcome)

    def close(self) -> None:
        self.talk.say(self.peer, m.ClientClose())


@pytest.fixture
def talk() -> Talk:
    running = Talk(**SHORT)
    running.join(W1)
    return running


def _held(talk: Talk) -> dict[str, bool]:
    """Return the datasets, and whether their trees are held."""
    return {name: bool(x.tree) for name, x in talk.logic.state.datasets.items() if name != "data"}


def test_a_dataset_is_removed_with_its_last_job(talk, monkeypatch):
    monkeypatch.setattr(dataset_collector, "IDLE_TREE_BYTES", 0)
    readers = [_Reader(talk, "one"), _Reader(talk, "one", job="named")]
    assert [reader.sent_tree for reader in readers] == [True, False]
    readers[0].close()
    talk.pass_time(3)
    assert _held(talk) == {"one": True}
    readers[1].close()
    talk.pass_time(3)
    assert _held(talk) == {"one": True}  # a named job with dynamic sharding stays, with its tasks
    talk.say(W1, m.WorkerLeave())
    talk.join(W2)
    _Reader(talk, "two").close()
    assert _held(talk) == {"one": False, "two": True}


def test_nothing_is_left_of_anonymous_jobs(talk):
    for number in range(20):
        _Reader(talk, str(number)).close()
    talk.pass_time(3)
    state = talk.logic.state
    assert _held(talk) == {}
    left = (state.jobs, state.jobs_of, state.iterations, state.tasks, state.clients)
    assert left == ({}, {}, {}, {}, {})


def test_registered_datasets_are_kept(talk):
    talk.call(_registration("by call"))
    reader = _Reader(talk, "first a client's")
    assert not _Reader(talk, "by call").sent_tree
    talk.call(_registration("first a client's"))
    reader.close()
    talk.pass_time(3)
    assert _held(talk) == {"by call": True, "first a client's": True}


def test_trees_of_jobs_without_clients_are_bounded(talk, monkeypatch):
    monkeypatch.setattr(dataset_collector, "IDLE_TREE_BYTES", 250_000)
    for number in range(5):
        _Reader(talk, str(number), size=100_000).close()
    assert [name for name, held in _held(talk).items() if held] == ["3", "4"]
    reader = _Reader(talk, "large", size=1_000_000)
    assert _held(talk)["4"]
    reader.close()
    assert [name for name, held in _held(talk).items() if held] == ["large"]


def test_an_idle_dataset_that_is_registered_keeps_its_tree(talk, monkeypatch):
    monkeypatch.setattr(dataset_collector, "IDLE_TREE_BYTES", 0)
    _Reader(talk, "one").close()
    talk.call(_registration("one"))
    _Reader(talk, "two").close()
    _Reader(talk, "three").close()
    assert _held(talk) == {"one": True, "two": False, "three": True}


def test_a_tree_is_held_while_one_of_its_jobs_is_read(talk, monkeypatch):
    monkeypatch.setattr(dataset_collector, "IDLE_TREE_BYTES", 0)
    readers = [_Reader(talk, "one", job=job) for job in ("", "named")]
    readers[0].close()
    _Reader(talk, "two").close()
    _Reader(talk, "three").close()
    assert _held(talk) == {"one": True, "two": False, "three": True}


def test_the_next_epoch_sends_a_dropped_tree_again(talk, monkeypatch):
    monkeypatch.setattr(dataset_collector, "IDLE_TREE_BYTES", 0)
    _Reader(talk, "one").close()
    again = _Reader(talk, "one", epoch=1)
    assert not again.sent_tree
    again.close()
    _Reader(talk, "two").close()
    assert _Reader(talk, "one", epoch=2).sent_tree
    assert isinstance(talk.call(m.GetDataset("one")), m.DatasetReply)


def test_a_running_task_of_a_named_job_keeps_the_tree(talk, monkeypatch):
    monkeypatch.setattr(dataset_collector, "IDLE_TREE_BYTES", 0)
    _Reader(talk, "one", job="named").close()
    _Reader(talk, "two").close()
    _Reader(talk, "three").close()
    assert _held(talk) == {"one": True, "two": False, "three": True}
    assert isinstance(talk.call(m.GetDataset("one")), m.DatasetReply)
    dropped, unknown = (talk.call(m.GetDataset(name)).error for name in ("two", "four"))
    assert "Dataset id two not found. The job that brought it has not been" in dropped.message
    assert "kept if they are registered with register_dataset" in dropped.message
    assert "Dataset id four not found. It must be registered" in unknown.message
    assert dropped.code == unknown.code == "NotFoundError"


def test_a_job_goes_on_with_the_dataset_of_another_client(talk, monkeypatch):
    monkeypatch.setattr(dataset_collector, "IDLE_TREE_BYTES", 0)
    _Reader(talk, "one", job="named").close()
    talk.say(W1, m.WorkerLeave())
    _Reader(talk, "other").close()
    talk.pass_time(3)
    job = talk.logic.state.jobs["named"]
    job.add_code("two")  # as if it had been read by such a client before: it does not start anew
    talk.logic._iterations._idle_since.clear()
    reader = _Reader(talk, "two", job="named")
    assert reader.sent_tree
    assert "created with another function at train.py:2" in reader.welcome.warning
    assert "those of this process are used" in reader.welcome.warning
    assert _held(talk) == {"two": True}
    assert job.dataset_id == "two"


def test_a_refused_dataset_is_not_kept(talk):
    source = Source(0, "sim", "train.py:1", Unsplittable("it is one"))
    registration = msgspec.structs.replace(_registration("bad"), sources=[source])
    parameters = m.JobParameters(ShardingPolicy.DYNAMIC)
    hello = m.ClientHello(1, 1, "", "job", parameters, (0,), registration=registration)
    [(_, refused), _] = talk.say(50, hello)
    assert isinstance(refused, m.Refused)
    assert _held(talk) == {}


def test_epochs_of_forgotten_datasets_are_read_over_a_service(monkeypatch):
    monkeypatch.setattr(dataset_collector, "IDLE_TREE_BYTES", 0)
    monkeypatch.setattr(dataset_cache, "IDLE_TREE_BYTES", 0)
    with Service(2) as service:
        plus_one, plus_two = (
            stoker.Dataset.range(5).map(lambda x, n=n: x + n).distribute(service.target)
            for n in (1, 2)
        )
        for _ in range(3):
            assert sorted(read(plus_one)) == [1, 2, 3, 4, 5]
            assert sorted(read(plus_two)) == [2, 3, 4, 5, 6]
            held = [dataset for dataset in service.state.datasets.values() if dataset.tree]
            assert len(held) == 1
        for worker in service.workers:
            assert len(worker._shell._loader.cache._replies) <= 1  # type: ignore[union-attr]
