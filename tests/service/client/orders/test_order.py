"""Orders: the task that a client reads next."""

from stoker.service.client.orders.order import ArrivalOrder, ReceivedChunk


def test_chunks_are_yielded_as_they_arrive_from_all_tasks():
    order = ArrivalOrder()
    chunks = [ReceivedChunk(["a"], 1, task_id=task, number=0) for task in (20, 22, 21)]
    for chunk in chunks:
        order.put(chunk)
    assert not order.empty
    assert [order.take() for _ in range(4)] == [*chunks, None]
    assert order.empty


def test_by_arrival_credit_goes_to_the_task_that_waits_longest():
    assert ArrivalOrder().needed_first({21: 1, 20: 5}.keys(), lambda _: 0) == 21
