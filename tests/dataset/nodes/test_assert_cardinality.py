"""assert_cardinality: the declared number is known and checked while reading."""

import pytest

from stoker.compat import tf
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.errors import FailedPreconditionError, InvalidArgumentError
from tests.serving import outcomes


def asserted(expected, actual=5):
    dataset = tf.data.Dataset.range(2 * actual).filter(lambda x: x % 2)
    return dataset.apply(tf.data.experimental.assert_cardinality(expected))


def test_the_declared_cardinality_is_known():
    assert len(asserted(5)) == 5
    assert asserted(-1).cardinality() == tf.data.INFINITE_CARDINALITY
    assert asserted(5).element_spec == tf.TensorSpec((), tf.int64)


def test_the_elements_are_the_inputs():
    assert list(asserted(5)) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("expected", "position", "message"),
    [
        (7, 5, "expected to contain 7 elements but contained only 5"),
        (3, 3, "expected to contain 3 elements but contained at least 4"),
        (0, 0, "expected to contain 0 elements but contained at least 1"),
        (-1, 5, "an infinite number of elements but contained only 5"),
    ],
)
def test_another_number_is_an_error_after_the_matching_elements(expected, position, message):
    found = outcomes(iter(asserted(expected)))
    assert found[:-1] == [1, 3, 5, 7, 9][:position]
    assert isinstance(found[-1], FailedPreconditionError)
    assert message in str(found[-1])


def tape(stream, verbs):
    """All that the verbs give: elements, how many were passed, ``error`` and ``end``."""
    found = []
    for verb, n in verbs:
        try:
            if verb == "chunks":
                while chunk := stream.next_chunk(n, 9999):
                    found += chunk
                found.append("end")
            else:
                found.append(stream.advance(n) if verb == "advance" else stream.next())
        except StopIteration:
            found.append("end")
        except FailedPreconditionError:
            found.append("error")
    return found


@pytest.mark.parametrize(
    ("expected", "verbs", "given"),
    [
        (3, [("chunks", 9)] * 2, [1, 3, 5, "error", "end"]),
        (7, [("chunks", 2)] * 2, [1, 3, 5, 7, 9, "error", "end"]),
        (5, [("chunks", 9)] * 2, [1, 3, 5, 7, 9, "end", "end"]),
        (3, [("advance", 3), ("next", 1), ("next", 1)], [3, "error", "end"]),
        (3, [("advance", 4), ("next", 1), ("advance", 1)], [4, "end", 0]),
        (7, [("advance", 9), ("next", 1), ("chunks", 1)], [6, "end", "end"]),
        (5, [("advance", 9), ("next", 1)], [5, "end"]),
        (-1, [("advance", 4), ("next", 1), ("next", 1)], [4, 9, "error"]),
    ],
)
def test_all_verbs_meet_the_error_at_its_position(expected, verbs, given):
    stream = open_stream(asserted(expected).node, Context())
    found = tape(stream, verbs)
    stream.close()
    assert found == given


def test_a_failing_element_counts():
    dataset = tf.data.Dataset.range(3).map(lambda x: 1 // x)
    found = outcomes(iter(dataset.apply(tf.data.experimental.assert_cardinality(3))))
    assert [type(each) for each in found] == [ZeroDivisionError, int, int]


def test_it_has_a_wire_form():
    node = decode_tree(encode_tree(asserted(3).node))
    assert (node.kind, node.cardinality()) == ("assert_cardinality", 3)


@pytest.mark.parametrize("expected", [-2, 1.5, "3", None])
def test_an_invalid_count_is_refused(expected):
    with pytest.raises(InvalidArgumentError, match="expected_cardinality"):
        tf.data.experimental.assert_cardinality(expected)
