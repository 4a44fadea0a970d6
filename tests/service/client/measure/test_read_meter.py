"""Times of a client, on a clock that the tests advance."""

from stoker.service.client.measure.read_meter import ReadMeter


def test_a_client_is_measured_from_its_first_read_to_its_end():
    now = [10.0]
    meter = ReadMeter(lambda: now[0])
    now[0] = 15.0
    assert meter.seconds == 0.0
    meter.begin(15.0)
    meter.begin(17.0)
    now[0] = 18.0
    assert (meter.opened_at, meter.seconds, meter.until) == (10.0, 3.0, 18.0)
    meter.end()
    now[0] = 50.0
    meter.end()
    assert (meter.seconds, meter.until) == (3.0, 18.0)
