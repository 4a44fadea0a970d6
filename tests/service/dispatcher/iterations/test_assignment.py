"""Assignment of tasks to clients that read two at a time."""

import pytest

from stoker.dataset.tree.node import INFINITE_CARDINALITY
from stoker.service import messages as m
from stoker.service.dispatcher.iterations.assignment import WAITING_SECONDS
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.scale.cluster import Cluster

BOTH = pytest.mark.parametrize("mode", [ShardingPolicy.OFF, ShardingPolicy.DYNAMIC])


def _cluster(workers: int, clients: int, mode=ShardingPolicy.DYNAMIC, **fields):
    """Return a cluster, the sessions of its workers and those of its clients."""
    cluster = Cluster(1000, tasks_per_client=2, **fields)
    worker_peers = cluster.add_workers(workers)
    client_peers = cluster.add_clients(clients, "job", mode)
    cluster.work()
    return cluster, worker_peers, client_peers


def _read(cluster: Cluster) -> dict[int, int]:
    """Return the number of readers of each task."""
    tasks = [start.task_id for _, start in cluster.running()]
    return {x: sum(x in mine for mine in cluster.tasks.values()) for x in tasks}


def _end(cluster: Cluster, worker: int) -> None:
    """Let the newest task of a worker be computed and delivered."""
    task_id = cluster.started[worker][-1].task_id
    cluster.say(worker, m.TaskProgress(task_id, exhausted=True, delivered=True))
    cluster.work()


@BOTH
@pytest.mark.parametrize(("workers", "clients"), [(1, 1), (2, 1), (2, 5), (3, 2), (4, 2), (9, 7)])
def test_every_task_has_a_reader(mode: ShardingPolicy, workers: int, clients: int):
    cluster, _, peers = _cluster(workers, clients, mode)
    assert len(_read(cluster)) == min(workers, 2 * clients)
    assert min(_read(cluster).values()) >= 1
    assert all(len(cluster.tasks[peer]) == min(workers, 2) for peer in peers)


@BOTH
def test_up_to_the_limit_every_client_reads_all_tasks(mode: ShardingPolicy):
    cluster, _, _ = _cluster(2, 3, mode)
    assert list(_read(cluster).values()) == [3, 3]


def test_a_worker_that_waits_starts_when_a_task_is_delivered():
    cluster, workers, clients = _cluster(3, 1, ShardingPolicy.OFF)
    [waiting] = [x for x in workers if not cluster.started[x]]
    _end(cluster, workers[0])
    assert len(cluster.started[waiting]) == 1
    _end(cluster, workers[1])
    assert cluster.computed == set()
    _end(cluster, waiting)
    assert cluster.computed == set(clients)
    assert cluster.most == 2


def test_workers_that_wait_and_leave_are_not_waited_for():
    cluster, workers, clients = _cluster(4, 1, ShardingPolicy.OFF)
    for worker in workers[2:]:
        cluster.say(worker, m.WorkerLeave())
    for worker in workers[:2]:
        _end(cluster, worker)
    assert cluster.computed == set(clients)


def test_dynamic_workers_that_wait_are_not_needed():
    cluster, workers, clients = _cluster(3, 1)
    for worker in workers[:2]:
        task_id = cluster.started[worker][0].task_id
        cluster.say(worker, m.TaskProgress(task_id, exhausted=True))
    for worker in workers[:2]:
        _end(cluster, worker)
    assert cluster.computed == set(clients)
    assert cluster.started[workers[2]] == []


@BOTH
def test_tasks_of_a_client_that_closes_get_other_readers(mode: ShardingPolicy):
    cluster, _, [first, second] = _cluster(2, 2, mode)
    cluster.say(first, m.ClientClose())
    [third] = cluster.add_clients(1, "job", mode)
    cluster.say(second, m.ClientClose())
    cluster.work()
    assert len(cluster.tasks[third]) == 2


@BOTH
def test_a_task_without_a_reader_waits_for_room(mode: ShardingPolicy):
    cluster, workers, [first, second] = _cluster(4, 2, mode)
    orphans = set(cluster.tasks[first])
    cluster.say(first, m.ClientClose())
    cluster.work()
    mine = {x for x in workers if cluster.started[x][0].task_id not in orphans}
    for worker in mine:
        assert second not in cluster.computed
        _end(cluster, worker)
    assert set(cluster.tasks[second]) == orphans


def test_a_task_without_a_reader_gets_no_splits():
    cluster, workers, [first, second] = _cluster(4, 2)
    [orphan, *_] = cluster.tasks[first]
    [worker] = [x for x in workers if cluster.started[x][0].task_id == orphan]
    cluster.say(first, m.ClientClose())
    cluster.work()
    assert cluster.to_workers[worker][-1] == m.ReturnSplits(orphan)
    cluster.say(worker, m.SplitRequest(orphan, 0, 0, want=1))
    assert cluster.to_workers[worker][-1] == m.ReturnSplits(orphan)
    other = next(x for x in workers if cluster.started[x][0].task_id in cluster.tasks[second])
    _end(cluster, other)
    assert isinstance(cluster.to_workers[worker][-1], m.SplitGrant)


def test_clients_leave_shared_tasks_for_a_new_worker():
    cluster, _, clients = _cluster(2, 3)
    cluster.add_workers(2)
    cluster.work()
    assert len(_read(cluster)) == 4
    assert min(_read(cluster).values()) >= 1
    assert all(len(cluster.tasks[client]) == 2 for client in clients)
    assert cluster.most == 2


def test_a_client_reads_a_task_again_under_another_id():
    cluster, _, [first, second] = _cluster(2, 2)
    before = {x: dict(cluster.tasks[x]) for x in (first, second)}
    [late] = cluster.add_workers(1)
    cluster.work()
    [(client, task_id)] = [
        (client, task_id)
        for client, tasks in before.items()
        for task_id in tasks
        if task_id not in cluster.tasks[client]
    ]
    assert before[client][task_id].reader_id == cluster.client_ids[client]
    cluster.say(late, m.WorkerLeave())
    cluster.work()
    again = cluster.tasks[client][task_id]
    assert again.reader_id not in (0, cluster.client_ids[client])
    assert again.key != before[client][task_id].key


def test_what_a_client_had_consumed_is_passed_on():
    cluster, workers, _ = _cluster(2, 2)
    state = cluster.logic.state
    for said in cluster.to_workers.values():
        said.clear()
    cluster.add_workers(1)
    while cluster.logic.has_work:
        cluster._receive(cluster.logic.work(0.0))
    [(peer, left)] = cluster._leaving
    cluster._leaving.clear()
    worker = next(x for x in workers if cluster.started[x][0].task_id == left.task_id)
    wrong = m.TaskLeft(left.task_id, left.reader_id + 1, (7, 1))
    cluster.say(peer, wrong)
    assert cluster.to_workers[worker] == []
    cluster.say(peer, m.TaskLeft(left.task_id, left.reader_id, (7, 1)))
    released = m.ClientReleased(left.task_id, left.reader_id, (7, 1))
    assert cluster.to_workers[worker] == [released]
    cluster.say(peer, m.TaskLeft(left.task_id, left.reader_id, (7, 1)))
    assert cluster.to_workers[worker] == [released]
    [iteration] = state.iterations.values()
    assert iteration.left == {left.reader_id: {left.task_id: (7, 1)}}


@BOTH
def test_a_warning_says_that_workers_wait(mode: ShardingPolicy):
    cluster, _, [client] = _cluster(3, 1, mode)
    cluster.tick(WAITING_SECONDS)
    assert cluster.warnings == {}
    cluster.tick(WAITING_SECONDS)
    cluster.work()
    if mode is ShardingPolicy.OFF:  # its turn comes when a task has ended
        assert cluster.warnings == {}
    else:
        text = (
            "1 worker has no task of job 'job': its client reads at most 2 workers at a time; "
            "read it with more clients, or use fewer workers"
        )
        assert cluster.warnings == {client: [text]}


def test_workers_of_endless_data_may_wait_for_ever():
    cluster, _, [client] = _cluster(3, 1, ShardingPolicy.OFF, size=INFINITE_CARDINALITY)
    cluster.tick(2 * WAITING_SECONDS)
    cluster.work()
    assert len(cluster.warnings[client]) == 1


def test_every_client_reads_a_worker_that_comes_when_none_is_left():
    """Where clients ask for positions, a client without a task would never read."""
    cluster = Cluster(1000, tasks_per_client=1)
    [drained] = cluster.add_workers(1)
    clients = cluster.add_clients(6, "job", ShardingPolicy.OFF)
    cluster.work()
    cluster.say(drained, m.WorkerDraining())
    task_id = cluster.started[drained][-1].task_id
    cluster.say(drained, m.TaskProgress(task_id, delivered=True))
    cluster.work()
    [worker] = cluster.add_workers(1)
    cluster.work()
    task_id = cluster.started[worker][-1].task_id
    assert [task_id in cluster.tasks[client] for client in clients] == [True] * 6


def test_local_workers_do_not_count():
    """Clients read all workers of their own process."""
    cluster = Cluster(1000, tasks_per_client=2)
    cluster.add_workers(3, "here")
    cluster.add_workers(3, "there")
    [here] = cluster.add_clients(1, "job", process="here", target_workers="LOCAL")
    [there] = cluster.add_clients(1, "job", process="there", target_workers="LOCAL")
    cluster.work()
    assert len(cluster.tasks[here]) == len(cluster.tasks[there]) == 3
    assert not set(cluster.tasks[here]) & set(cluster.tasks[there])


def test_the_next_client_of_a_private_task_gets_its_splits():
    cluster = Cluster(1000)
    [worker] = cluster.add_workers(1, "here")
    [first] = cluster.add_clients(1, "job", process="here", target_workers="LOCAL")
    cluster.work()
    task_id = cluster.started[worker][0].task_id
    cluster.say(first, m.ClientClose())
    cluster.say(worker, m.SplitRequest(task_id, 0, 0, want=1))
    assert not isinstance(cluster.to_workers[worker][-1], m.SplitGrant)
    cluster.add_clients(1, "job", process="here", target_workers="LOCAL")
    assert isinstance(cluster.to_workers[worker][-1], m.SplitGrant)


def test_elements_that_no_client_can_read_are_lost():
    """A worker that is read in its process only has no reader left; others must not wait."""
    cluster = Cluster(1000)
    [remote] = cluster.add_workers(1)
    [colocated] = cluster.add_workers(1, "here", ["COLOCATED"])
    [here] = cluster.add_clients(1, "job", process="here")
    [there] = cluster.add_clients(1, "job", process="there")
    cluster.work()
    assert (len(cluster.tasks[here]), len(cluster.tasks[there])) == (2, 1)
    cluster.say(here, m.ClientClose())
    cluster.work()
    task_id = cluster.started[colocated][0].task_id
    assert cluster.to_workers[colocated][-1] == m.TaskStop(task_id)
    _end(cluster, remote)
    assert cluster.computed == {there}


def test_a_resumed_client_is_asked_again_to_leave():
    cluster, _, _ = _cluster(2, 2)
    cluster.add_workers(1)
    while cluster.logic.has_work:
        cluster._receive(cluster.logic.work(0.0))
    [(peer, left)] = cluster._leaving
    cluster._leaving.clear()
    client = cluster.logic.state.clients[cluster.client_ids[peer]]
    journal_id = cluster.logic._ledger.journal_id
    key = client.key
    hello = m.ClientHello(
        1,
        1,
        "data",
        "job",
        m.JobParameters(ShardingPolicy.DYNAMIC),
        (0,),
        client_id=client.client_id,
        journal_id=journal_id,
        key=key,
    )
    cluster.tasks[99] = dict(cluster.tasks[peer]) | {left.task_id: m.TaskInfo(0, "", {})}
    cluster.say(99, hello)
    assert cluster._leaving == [(99, left)]


@BOTH
def test_workers_that_come_while_nobody_reads_are_used_later(mode: ShardingPolicy):
    cluster, _, [first] = _cluster(1, 1, mode)
    cluster.say(first, m.ClientClose())
    cluster.add_workers(1)
    [second] = cluster.add_clients(1, "job", mode)
    cluster.work()
    assert len(cluster.tasks[second]) == 2


def test_a_new_client_hears_of_its_tasks_before_the_end():
    cluster, workers, [first] = _cluster(3, 1)
    for worker in workers[:2]:
        task_id = cluster.started[worker][0].task_id
        cluster.say(worker, m.TaskProgress(task_id, exhausted=True))
    [waiting] = [x for x in workers if not cluster.started[x]]
    cluster.say(waiting, m.WorkerLeave())
    cluster.add_workers(1)
    [second] = cluster.add_clients(1, "job")  # the workers that wait are searched again
    cluster.say(first, m.ClientClose())
    cluster.say(second, m.ClientClose())
    heard: list[m.Tasks] = []
    _end(cluster, workers[0])
    cluster.on_tasks = heard.append
    cluster.add_clients(1, "job")
    assert heard
    assert all(len(x.added) == 1 for x in heard)
