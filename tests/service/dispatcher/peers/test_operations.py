"""Jobs that are cancelled and datasets that are forgotten by an operator."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import stoker
from stoker.dataset.tree.splits import IndexSplits
from stoker.dataset.tree.structure import structure_of
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.errors import CancelledError, ErrorRecord, StokerError
from stoker.service import messages as m
from stoker.service.control import rpc
from stoker.service.dispatcher.state.snapshot import dump
from stoker.service.keys import KEY_BYTES
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.dispatcher.test_dispatcher_logic import C1, C2, TREE, W1, W2, Talk, only
from tests.serving import Service, eventually, read

KEY = b"k" * KEY_BYTES
CANCELLED = ErrorRecord("CancelledError", "job 'job' was cancelled with `stoker jobs cancel`")


def _reading(mode: ShardingPolicy = ShardingPolicy.DYNAMIC, splits: int = 4) -> Talk:
    talk = Talk(IndexSplits(splits))
    talk.join(W1)
    talk.join(W2)
    talk.read(C1, mode, key=KEY)
    return talk


def _cancel(talk: Talk, job: str = "job") -> tuple[m.Reply, list[tuple[int, object]]]:
    reply, actions = talk.logic.call(m.CancelJob(job), talk.now)
    return reply, talk._shown(actions)


@pytest.mark.parametrize("mode", [ShardingPolicy.OFF, ShardingPolicy.DYNAMIC])
def test_cancelled_job_stops_tasks_and_refuses_clients(mode):
    talk = _reading(mode)
    tasks = {talk.task(W1), talk.task(W2)}
    reply, said = _cancel(talk)
    text = "job 'job' was cancelled; 1 client is refused, 2 tasks end"
    assert reply == m.Done(text)
    assert {stop.task_id for _, stop in only(said, m.TaskStop)} == tasks
    assert only(said, m.Refused) == [(C1, m.Refused(CANCELLED))]
    assert said[-1] == (C1, "end")
    state = talk.logic.state
    assert not [*state.jobs, *state.iterations, *state.tasks, *state.clients]
    assert not any(worker.tasks for worker in state.workers.values())


def test_client_of_a_cancelled_job_is_refused_when_it_connects_again():
    talk = _reading()
    talk.logic.disconnected(C1, talk.now)
    [client_id] = talk.logic.state.clients
    _cancel(talk)
    journal = talk.logic.state.history.journal_id
    resumed = talk.read(C2, client_id=client_id, journal_id=journal, key=KEY)
    assert only(resumed, m.Refused) == [(C2, m.Refused(CANCELLED))]
    lost_welcome = talk.read(C2, key=KEY)
    assert only(lost_welcome, m.Refused) == [(C2, m.Refused(CANCELLED))]
    assert not talk.logic.state.jobs


def test_new_client_begins_a_cancelled_job_anew():
    talk = _reading()
    old = next(iter(talk.logic.state.iterations))
    _cancel(talk)
    said = talk.read(C2)
    [(_, welcome)] = only(said, m.ClientWelcome)
    assert welcome.iteration_id != old
    assert len(only(said, m.TaskStart)) == 2


def test_failed_job_can_be_cancelled():
    talk = _reading()
    [iteration] = talk.logic.state.iterations.values()
    talk.logic._iterations._fail(iteration, ErrorRecord("NotFoundError", "no file"))
    talk.pass_time(0.25)
    reply, said = _cancel(talk)
    assert isinstance(reply, m.Done)
    assert only(said, m.Refused) == [(C1, m.Refused(CANCELLED))]
    assert not talk.logic.state.jobs


def test_all_epochs_of_a_job_are_cancelled():
    talk = _reading()
    hello = m.ClientHello(
        1, 1, "data", "job", m.JobParameters(ShardingPolicy.DYNAMIC), (1,), named=True
    )
    talk.say(C2, hello)
    _, said = _cancel(talk)
    assert {peer for peer, _ in only(said, m.Refused)} == {C1, C2}
    assert not talk.logic.state.iterations


def test_consumers_of_a_cancelled_job_are_refused():
    talk = Talk()
    talk.join(W1)
    parameters = m.JobParameters(ShardingPolicy.OFF, num_consumers=2)
    for index, peer in enumerate((C1, C2)):
        hello = m.ClientHello(1, 1, "data", "job", parameters, (0,), named=True)
        talk.say(peer, msgspec.structs.replace(hello, consumer_index=index))
    _, said = _cancel(talk)
    assert {peer for peer, _ in only(said, m.Refused)} == {C1, C2}
    assert not talk.logic.state.jobs
    talk.pass_time(1.0)


def test_work_in_slices_goes_on_after_a_cancel():
    talk = Talk()
    for worker in range(100, 250):
        talk.join(worker)
    for number in range(40):
        talk.read(1000 + number)
    assert talk.logic.has_work
    _cancel(talk)
    while talk.logic.has_work:
        talk.logic.work(talk.now)
    talk.pass_time(1.0)
    state = talk.logic.state
    assert not [*state.tasks, *state.clients]


def test_late_work_for_a_cancelled_job_does_nothing():
    talk = Talk()
    talk.join(W1)
    brought = m.RegisterDataset(
        "brought", TREE, spec_to_wire(UnknownSpec()), structure=structure_of(TREE)
    )
    parameters = m.JobParameters(ShardingPolicy.OFF)
    talk.say(C1, m.ClientHello(1, 1, "", "job", parameters, (0,), registration=brought))
    [iteration] = talk.logic.state.iterations.values()
    _cancel(talk)
    assert list(talk.logic.state.datasets) == ["data"]
    talk.logic._iterations._after(iteration, [])


def test_dataset_of_a_cancelled_job_can_be_forgotten():
    talk = Talk()
    talk.join(W1)
    talk.read(C1)
    talk.read(C2)
    _cancel(talk)
    assert list(talk.logic.state.datasets) == ["data"]
    assert talk.call(m.ForgetDataset("data")) == m.Done("dataset data was forgotten")
    assert not talk.logic.state.datasets


def test_unknown_job_is_refused_and_names_others():
    reply, said = _cancel(_reading(), "jib")
    assert isinstance(reply, m.Failed)
    assert reply.error.message == "no job is named 'jib'; the jobs of this dispatcher: 'job'"
    assert said == []


def test_dataset_of_a_job_is_not_forgotten():
    talk = _reading()
    before = list(dump(talk.logic.state))
    reply = talk.call(m.ForgetDataset("data"))
    assert isinstance(reply, m.Failed)
    assert reply.error == ErrorRecord(
        "FailedPreconditionError",
        "dataset data is that of 'job'; end them with `stoker jobs cancel NAME`, or wait until "
        "they are removed",
    )
    assert list(dump(talk.logic.state)) == before


def test_unknown_dataset_is_not_forgotten():
    reply = Talk().call(m.ForgetDataset("none"))
    assert isinstance(reply, m.Failed)
    assert (reply.error.code, reply.error.message) == (
        "NotFoundError",
        "Dataset id none not found",
    )


def test_cancel_is_a_warning_of_the_log():
    talk = _reading()
    talk.logic.take_log()
    _cancel(talk)
    first = talk.logic.take_log()[0]
    assert (first.text, first.fields) == (
        "the job was cancelled; 1 client is refused",
        {"job": "job"},
    )


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_next_read_of_a_cancelled_job_names_the_command(mode):
    with Service(2) as service:
        numbers = stoker.Dataset.range(10**6)
        job = numbers.distribute(service.target, mode, job_name="train")
        with job.iterator() as iterator:
            next(iterator)
            address = service.target.removeprefix("grpc://")
            rpc.call(address, m.CancelJob("train"), 10)
            with pytest.raises(CancelledError, match=r"'train' was cancelled with `stoker jobs"):
                read(iterator)
            with pytest.raises(CancelledError):
                next(iterator)
        assert eventually(lambda: not service.tasks)
        assert len(read(numbers.take(100).distribute(service.target, mode))) in (100, 200)


def test_cancelled_job_stays_cancelled_after_a_restart(tmp_path: Path):
    fields: dict[str, Any] = {"work_dir": str(tmp_path), "fault_tolerant_mode": True}
    with Service(1, **fields) as service:
        job = stoker.Dataset.range(10**6).distribute(service.target, job_name="train")
        with job.iterator() as iterator:
            next(iterator)
            state = service.state
            key, *_ = [client.key for client in state.clients.values()]
            rpc.call(service.target.removeprefix("grpc://"), m.CancelJob("train"), 10)
            service.restart_dispatcher(**fields)
            assert service.state.history.cancelled == {key: "train"}
            assert not service.state.jobs
            with pytest.raises(CancelledError):
                read(iterator)


def test_ignored_errors_do_not_hide_a_cancel():
    with Service(1) as service:
        job = stoker.Dataset.range(10**6).distribute(service.target, job_name="train")
        with job.ignore_errors().iterator() as iterator:
            next(iterator)
            rpc.call(service.target.removeprefix("grpc://"), m.CancelJob("train"), 10)
            with pytest.raises(StokerError, match="was cancelled"):
                read(iterator)
            assert iterator.stats().get("errors_ignored", 0) == 0
