"""Places of workers among the configured addresses."""

import pytest

from stoker.service import messages as m
from stoker.service.dispatcher.places import Places, fits, place_of
from stoker.service.dispatcher.records import WorkerAdded

VERSIONS = m.Versions("3.11", "2")


@pytest.mark.parametrize(
    ("address", "configured", "place"),
    [
        ("a:1", ["a"], 0),
        ("a:1", ["a:1"], 0),
        ("a:1", ["a:2"], None),
        ("a:1", ["a:%port%"], 0),
        ("a:1", ["a:%grpc_worker%"], 0),
        ("a:1", ["a:worker"], None),
        ("a:1", ["b", "a"], 1),
        ("a:1", ["a", "a:1"], 1),
        ("A.example:1", ["a.EXAMPLE"], 0),
        ("localhost:1", ["127.0.0.1"], 0),
        ("127.0.0.1:1", ["[::1]:1"], 0),
        ("[::1]:1", ["localhost:%port%"], 0),
        ("[fe80::1]:1", ["fe80::1"], 0),
        ("[fe80::1]:1", ["[fe80::1]"], 0),
        ("[fe80::1]:1", ["[fe80::2]"], None),
        ("127.0.0.2:1", ["127.0.0.1"], None),
        ("a:1", [], None),
    ],
)
def test_a_worker_gets_the_place_of_its_address(address, configured, place):
    assert place_of(address, configured) == place


def test_places_of_a_host_are_taken_in_order():
    configured = ["a", "b", "a:%port%", "a:7"]
    assert place_of("a:1", configured) == 0
    assert place_of("a:1", configured, {0}) == 2
    assert place_of("a:1", configured, {0, 2}) is None
    assert place_of("a:7", configured, {0, 2}) == 3


def test_an_entry_with_a_port_is_for_one_worker_only():
    assert fits("a:1", "a:1")
    assert not fits("a:2", "a:1")


def test_places_that_grow_are_used_again():
    places = Places()
    for place in range(3):
        assert places.grow(f"a:{place}") == place
        places.add(WorkerAdded(place, f"a:{place}", {}, [], VERSIONS, place=place))
    places.remove(places.workers[1])
    assert places.grow("a:9") == 1
    assert places.addresses == ["a:0", "a:9", "a:2"]
