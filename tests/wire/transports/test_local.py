import subprocess
import sys

import numpy as np
import pytest

from stoker.elements.ragged import RaggedArray
from stoker.errors import InvalidArgumentError, UnavailableError
from stoker.wire.frames import Frame
from stoker.wire.transports.local import LOCAL, process_token
from tests.wire.pairs import connected


def test_elements_are_handed_over_as_the_objects_they_are():
    with connected(LOCAL) as pair:
        array, anything = np.zeros(3), object()
        pair.near.send(Frame(0, [(array, anything)]))
        received = pair.far.receive(5)
        assert isinstance(received, Frame)
        assert received.elements[0][0] is array
        assert received.elements[0][1] is anything


def test_a_frame_of_plain_values_is_the_senders_own():
    with connected(LOCAL) as pair:
        frame = Frame(0, [1, "a", None])
        pair.near.send(frame)
        assert pair.far.receive(5) is frame


def test_shared_elements_are_copied_for_each_receiver():
    array = np.zeros(3)
    ragged = RaggedArray.from_rows([[1], [2, 3]])
    with connected(LOCAL) as pair:
        for _ in range(2):
            pair.near.send(Frame(0, [{"array": array, "list": [ragged, "text"]}], shared=True))
            received = pair.far.receive(5)
            assert isinstance(received, Frame)
            [element] = received.elements
            assert (element["array"] == 0).all()
            assert element["list"][0].to_list() == [[1], [2, 3]]
            element["array"][:] = 7
            element["list"][0].values[:] = 7
            element["list"].clear()
    assert (array == 0).all()
    assert ragged.to_list() == [[1], [2, 3]]


def test_addresses_begin_with_the_token_of_the_process():
    with connected(LOCAL) as pair:
        assert pair.listener.address.startswith(f"{process_token()}/")


def test_another_process_has_another_token():
    code = "from stoker.wire.transports.local import process_token; print(process_token())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    token = other.stdout.strip()
    assert len(token) == len(process_token())
    with pytest.raises(UnavailableError, match="it is in another process; read it over tcp"):
        LOCAL.connect(f"{token}/0", 5)


def test_what_is_no_local_address_is_refused():
    with pytest.raises(InvalidArgumentError, match="<process token>/<number>"):
        LOCAL.connect("localhost:5050", 5)
