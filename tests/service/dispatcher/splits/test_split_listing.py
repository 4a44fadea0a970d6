"""Lists of splits, which a worker sends to the dispatcher in pages."""

import msgspec

from stoker.dataset.tree.splits import ListedSplits
from stoker.service import messages as m
from stoker.service.control import rpc
from stoker.service.dispatcher.entities.listed_values import MAX_LISTED_BYTES
from tests.service.dispatcher.test_dispatcher_logic import C1, VERSIONS, W1, W2, Talk, only, page


def _listing() -> tuple[Talk, int]:
    """Return a dispatcher that has the first page of a list of two, and the list's id."""
    talk = Talk(ListedSplits())
    talk.join(W1)
    talk.join(W2)
    [(_, request)] = only(talk.read(C1), m.ListSplits)
    talk.say(W1, page(request.listing_id, ["a", "b"], total=3))
    return talk, request.listing_id


def test_a_list_arrives_in_pages():
    talk = Talk(ListedSplits())
    talk.join(W1)
    [(_, request)] = only(talk.read(C1), m.ListSplits)
    said = talk.say(W1, page(request.listing_id, ["a", "b"], total=3))
    assert said == [(W1, msgspec.structs.replace(request, start=2))]
    said = talk.say(W1, page(request.listing_id, ["c"], 2, total=3))
    assert (W1, m.StopListing(request.listing_id)) in said
    [(_, start)] = only(said, m.TaskStart)
    assert start.mode == m.SplitTask(sources=[m.SplitSource(0, 3)])
    [(_, grant)] = only(
        talk.say(W1, m.SplitRequest(start.task_id, 0, 0, want=9, least=9)), m.SplitGrant
    )
    assert grant.splits == [(0, "a"), (1, "b"), (2, "c")]


def test_a_repeated_page_is_ignored():
    talk, listing_id = _listing()
    assert talk.say(W1, page(listing_id, ["a", "b"], total=3)) == []
    [iteration] = talk.logic.state.iterations.values()
    assert list(iteration.values[0]) == ["a", "b"]


def test_an_interrupted_list_starts_anew_on_another_worker():
    talk, listing_id = _listing()
    [(peer, request)] = only(talk.say(W1, m.WorkerLeave()), m.ListSplits)
    assert (peer, request.start) == (W2, 0)
    assert request.listing_id != listing_id
    [iteration] = talk.logic.state.iterations.values()
    assert iteration.values == {}
    for stale in (page(listing_id, ["c"], 2, total=3), page(listing_id, ["x"])):
        assert talk.say(W2, stale) == []
    assert only(talk.say(W2, page(request.listing_id, ["c"])), m.TaskStart)
    assert list(iteration.values[0]) == ["c"]


def test_the_list_of_a_dropped_iteration_is_discarded():
    talk = Talk(ListedSplits())
    talk.join(W1)
    [(_, request)] = only(talk.read(C1, named=False), m.ListSplits)
    talk.say(W1, page(request.listing_id, ["a", "b"], total=3))
    assert (W1, m.StopListing(request.listing_id)) in talk.say(C1, m.ClientClose())
    [iteration] = talk.logic.state.iterations.values()
    assert iteration.values == {}
    assert talk.say(W1, page(request.listing_id, ["c"], 2, total=3)) == []
    assert (iteration.values, iteration.sources) == ({}, None)


def test_a_new_session_continues_the_list():
    talk, listing_id = _listing()
    [(_, welcome)] = only(talk.join(3), m.WorkerWelcome)
    hello = m.WorkerHello(
        1,
        1,
        "host:1",
        {"tcp": "host:1"},
        VERSIONS,
        worker_id=talk.worker_ids[W1],
        journal_id=welcome.journal_id,
        listings=[listing_id, 7],
        key=talk.key(W1),
    )
    said = talk.say(4, hello)
    [(_, request)] = only(said, m.ListSplits)
    assert (request.listing_id, request.start) == (listing_id, 2)
    assert only(said, m.StopListing) == [(4, m.StopListing(7))]


def test_a_worker_that_drains_lists_nothing():
    talk = Talk(ListedSplits())
    talk.join(W1, draining=True)
    assert only(talk.read(C1), m.ListSplits) == []
    assert only(talk.join(W2), m.ListSplits)


def test_splits_of_long_names_are_assigned_in_bounded_messages():
    talk = Talk(ListedSplits())
    talk.join(W1)
    [(_, request)] = only(talk.read(C1), m.ListSplits)
    names = [f"{k}" + MAX_LISTED_BYTES // 3 * "x" for k in range(8)]
    talk.say(W1, page(request.listing_id, names))
    task = talk.task(W1)
    sizes: list[int] = []
    while sum(sizes) < 8:
        said = talk.say(W1, m.SplitRequest(task, 0, 0, want=8, least=8))
        [(_, grant)] = only(said, m.SplitGrant)
        assert len(rpc.encode(grant)) < MAX_LISTED_BYTES + 1000
        sizes.append(len(grant.splits))
    assert sizes == [2, 2, 2, 2]


def test_the_pages_of_a_finished_iteration_are_freed():
    talk, listing_id = _listing()
    talk.say(W1, page(listing_id, ["c"], 2, total=3))
    [iteration] = talk.logic.state.iterations.values()
    values = iteration.values[0]
    talk.pass_time(1)
    assert len(values.pages) == 2
    talk.say(C1, m.ClientClose())
    talk.logic._iterations.remove(iteration)
    assert len(values.pages) == 2  # not at once
    talk.pass_time(1)
    assert values.pages == []
