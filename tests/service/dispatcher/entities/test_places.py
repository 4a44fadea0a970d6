"""Places of workers among the configured addresses."""

import pytest

from stoker.errors import AlreadyExistsError
from stoker.service import messages as m
from stoker.service.dispatcher.entities.places import Places, place_of
from stoker.service.dispatcher.state import records as r

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


def _worker(place: int | None, address: str) -> r.WorkerAdded:
    return r.WorkerAdded(place or 0, address, {}, [], VERSIONS, place=place)


def _find(
    places: Places, address: str, silent: tuple[int, ...] = (), connected: tuple[int, ...] = (0, 1)
) -> int | None:
    return places.find(address, silent.__contains__, connected.__contains__)


def test_only_a_silent_worker_leaves_its_place():
    places = Places()
    assert _find(places, "a:1") is None
    places.addresses = ["a", "a"]
    for place in range(2):
        assert _find(places, f"a:{place}") == place
        places.add(_worker(place, f"a:{place}"))
    with pytest.raises(RuntimeError, match=r"for worker a:2. Configured workers list: \[{a, a}\]"):
        _find(places, "a:2")
    with pytest.raises(AlreadyExistsError, match=r"a:1 has the place of 'a'.* not connected"):
        _find(places, "a:2", connected=(0,))
    assert _find(places, "a:2", silent=(1,)) == 1


@pytest.mark.parametrize(
    ("place", "addresses", "kept"),
    [
        (None, [], True),
        (None, ["a"], False),
        (0, [], True),
        (0, ["a"], True),
        (0, ["b", "a"], False),
        (1, ["a"], False),
    ],
)
def test_workers_keep_places_that_fit_the_list(place, addresses, kept):
    places = Places()
    places.addresses = addresses
    assert places.keeps(_worker(place, "a:1")) is kept


def test_places_that_grow_are_used_again():
    places = Places()
    places.grows = True
    for place in range(3):
        assert _find(places, f"a:{place}") == place
        places.add(_worker(place, f"a:{place}"))
    places.remove(places.workers[1])
    assert _find(places, "a:9") == 1
    assert places.addresses == ["a:0", "a:9", "a:2"]
