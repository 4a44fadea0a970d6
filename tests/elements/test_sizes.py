import numpy as np

from stoker.elements.ragged import RaggedArray
from stoker.elements.sizes import PLAIN_BYTES, chunk_bytes, element_bytes
from tests.wire.elements import Sample


def test_numbers_count_as_objects():
    assert chunk_bytes(list(range(1000))) == 1000 * element_bytes(7) == 1000 * PLAIN_BYTES


def test_arrays_text_and_containers_count_their_contents():
    array = np.zeros((10, 10))
    assert element_bytes(array) == PLAIN_BYTES + 800
    assert element_bytes(("abc", b"de")) == 3 * PLAIN_BYTES + 5
    assert element_bytes({"a": array, "b": [array]}) == 4 * PLAIN_BYTES + 1600
    assert element_bytes(Sample(array, 3)) == 3 * PLAIN_BYTES + 800
    assert element_bytes(np.float32(1)) == PLAIN_BYTES + 4
    ragged = RaggedArray.from_rows([[1, 2], [3]])
    assert element_bytes(ragged) == PLAIN_BYTES + ragged.nbytes


def test_an_object_array_counts_its_items():
    assert element_bytes(np.array(["x" * 1000, None], object)) >= 1000


def test_a_large_element_among_numbers_is_counted():
    assert chunk_bytes([*range(1000), np.zeros(1 << 20, np.uint8)]) > 1 << 20
