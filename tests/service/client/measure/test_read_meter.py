"""Times of a client, on a clock that the tests advance."""

from stoker.dataset.streams.measure.stopwatch import Stopwatch


def test_a_client_is_measured_from_its_first_read_to_its_end():
    now = [10.0]
    reads = Stopwatch(lambda: now[0])
    now[0] = 15.0
    assert reads.seconds() == 0.0
    reads.run(1, 15.0)
    reads.run(1, 17.0)
    now[0] = 18.0
    assert reads.seconds() == 3.0
    reads.run(0)
    now[0] = 50.0
    reads.run(0)
    assert reads.seconds() == 3.0
