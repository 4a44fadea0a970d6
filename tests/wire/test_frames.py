import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.elements.codec import columns as c
from stoker.elements.codec.dtypes import Field, Structured
from stoker.errors import ErrorRecord, FailedPreconditionError, WireError
from stoker.wire.frames import (
    MAX_HEADER_BYTES,
    PREFIX,
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    Bye,
    Counts,
    Credit,
    Frame,
    FrameHeader,
    GiveBack,
    Hello,
    Ready,
    Report,
    TaskEnd,
    Want,
    Welcome,
    WorkerProbe,
    WorkerProbeReply,
    decode,
    encode,
    negotiate,
    parse_prefix,
)
from tests.wire.elements import frames_of_elements, message_bytes, parse

MESSAGES = [
    Hello(1, 2, -5, 2**63 - 1, 0, "trainer-a"),
    Hello(1, 2, 3, 4, 5, compression="ZSTD"),
    WorkerProbe(3, 65536),
    WorkerProbeReply(1, 1, "host:1", 7, "host:5050", "0.1", 1.5e9, "boot"),
    Welcome(1, "host:1"),
    Credit(1, 2, 3),
    Want(1, 2, 3),
    Want(1, 2**62, 2**63, [(5, 6, 7), (2**62 - 1, 1, 1)], [(0, 2**40, 2**20)]),
    Ready(4),
    Counts({"errors_ignored": 3}),
    Report(b"evidence", 4, 3),
    TaskEnd(0),
    GiveBack(7, 3),
    Bye(),
    Bye(ErrorRecord("NotFoundError", "no task 7")),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_equal(message):
    assert parse(message_bytes(message)) == message


def test_a_frame_carries_an_error_instead_of_elements():
    record = ErrorRecord("UserFunctionError", "boom", worker="w", element=3)
    frame = parse(message_bytes(Frame(12, [], record)))
    assert (frame.number, frame.elements, frame.error) == (12, [], record)


@pytest.mark.parametrize("positions", [[], [(3, 2, 5)], [(9, 1, 1), (0, 1, 1)]])
def test_a_frame_names_the_positions_of_its_elements(positions):
    frame = parse(message_bytes(Frame(12, ["a", "b"], positions=positions)))
    assert (frame.elements, frame.positions) == (["a", "b"], positions)


def test_a_frame_names_the_position_of_its_error():
    record = ErrorRecord("UserFunctionError", "boom")
    frame = parse(message_bytes(Frame(12, [], record, positions=[(7, 1, 3)])))
    assert (frame.error, frame.positions) == (record, [(7, 1, 3)])


@pytest.mark.parametrize(
    ("elements", "error", "positions"),
    [
        (["a", "b"], None, [(0, 1, 1)]),
        (["a", "b"], None, [(0, 2, 1), (5, 1, 1)]),
        (["a"], None, [(0, 0, 1)]),
        (["a"], None, [(0, 2**63, 1), (0, 2**63, 1)]),
        ([], ErrorRecord("UserFunctionError", "boom"), [(0, 2, 1)]),
        ([], None, [(0, 1, 1)]),
    ],
)
def test_a_frame_that_names_another_number_of_positions_is_refused(elements, error, positions):
    with pytest.raises(WireError, match=r"names \d+ positions, and has"):
        parse(message_bytes(Frame(0, elements, error, positions=positions)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("needed", -1),
        ("limit", -1),
        ("bytes", 1.5),
        ("ranges", [(0, 1, 0)]),
        ("ranges", [(0, 1, -1)]),
        ("ranges", [(-1, 1, 1)]),
        ("cancelled", [(0, -1, 1)]),
        ("cancelled", [(0, 1)]),
        ("ranges", [(0, 1, 1, 1)]),
        ("ranges", [0]),
        ("ranges", None),
        ("ranges", [(0, 1.5, 1)]),
    ],
)
def test_a_want_that_names_no_positions_is_refused(field, value):
    honest = {"type": "Want", "needed": 0, "limit": 1, "bytes": 1, "ranges": [], "cancelled": []}
    assert decode(msgspec.msgpack.encode(honest)) == Want(0, 1, 1)
    with pytest.raises(WireError, match="not a header"):
        decode(msgspec.msgpack.encode({**honest, field: value}))


def test_negotiate_takes_the_newest_version_both_speak():
    assert negotiate(PROTOCOL_MIN, PROTOCOL_MAX + 5) == PROTOCOL_MAX


@pytest.mark.parametrize("theirs", [(PROTOCOL_MAX + 1, PROTOCOL_MAX + 2), (-3, PROTOCOL_MIN - 1)])
def test_negotiate_names_both_ranges_where_they_do_not_meet(theirs):
    ranges = f"speaks {PROTOCOL_MIN} to {PROTOCOL_MAX}, the other {theirs[0]} to {theirs[1]}"
    with pytest.raises(FailedPreconditionError, match=ranges):
        negotiate(*theirs)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (PREFIX.pack(b"GET ", 1, 0), "does not speak stoker's protocol"),
        (PREFIX.pack(b"stk1", MAX_HEADER_BYTES + 1, 0), "header of 16777217 bytes"),
        (PREFIX.pack(b"stk1", 1, 2**60), "body of 1152921504606846976 bytes"),
    ],
)
def test_a_prefix_that_is_none_or_claims_too_much_is_refused(prefix, message):
    with pytest.raises(WireError, match=message):
        parse_prefix(prefix, 1 << 20)


def header(column, count=1):
    return msgspec.msgpack.encode(FrameHeader(0, count, column))


HUGE = 2**60
INT64 = np.dtype("<i8")


def numbers(*values):
    return np.array(values, INT64).tobytes()


@pytest.mark.parametrize(
    ("column", "count", "body"),
    [
        (c.Nones(), HUGE, b"\0"),
        (c.Items("tuple", []), HUGE, b"\0"),
        (c.Dicts([], []), HUGE, b"\0"),
        (c.Numbers("<i8"), HUGE, b"\0" * 8),
        (c.Numbers("<i8"), 1, b"\0" * 7),
        (c.Numbers("<i8"), 1, b"\0" * 9),
        (c.Strs(), 1, numbers(HUGE)),
        (c.Strs(), 2, numbers(HUGE, -HUGE)),
        (c.BigInts(), 1, numbers(-1)),
        (c.Sequences("list", c.Nones()), 1, numbers(HUGE)),
        (c.Sequences("list", c.Items("tuple", [])), 2, numbers(2**62, 2**62)),
        (c.Arrays("<f4", [HUGE]), 1, b"\0" * 64),
        (c.Arrays("<f4", [0, HUGE, HUGE]), 1, b"\0"),
        (c.Arrays("<f4", [1] * 100), 1, b"\0" * 4),
        (c.Arrays("|O8", [1]), 1, b"\0" * 8),
        (c.Arrays("O", [1]), 1, b"\0" * 8),
        (c.Arrays("i4,i4", [1]), 1, b"\0" * 8),
        (c.Arrays("|V0", [HUGE]), HUGE, b"\0"),
        (c.Arrays("<M8[25x]", [1]), 1, b"\0" * 8),
        (c.Arrays(Structured((Field("a", "<f4", 100),), 4), [1]), 1, b"\0" * 4),
        (c.Arrays(Structured((Field("a", "<f4", 0, (-1,)),), 4), [1]), 1, b"\0" * 4),
        (c.Arrays(Structured((Field("a", "|V0", 0, (HUGE, HUGE)),), 4), [1]), 1, b"\0" * 4),
        (c.VariedArrays("|u1", 1, False), 1, numbers(-1)),
        (c.VariedArrays("|u1", 2, True), 1, numbers(HUGE, HUGE)),
        (c.ObjectArrays(1, c.Nones()), 1, numbers(HUGE)),
        (c.ObjectArrays(0, c.Numbers("<i8")), 1, b"\0" * 64 + numbers(3)),
        (c.Mixed([]), 1, b"\0" * 4),
        (c.Mixed([c.Nones()]), 1, b"\1\0\0\0" + b"\0" * 61),
        (c.Dicts(["a", "a"], [c.Nones(), c.Nones()]), 1, b"\0" * 65),
        (c.Dicts(["a"], []), 1, b"\0"),
        (c.NamedRecords("namedtuple", "P", ["x"], []), 1, b"\0"),
        (c.NamedRecords("namedtuple", "P", ["_x"], [c.Nones()]), 1, b"\0"),
        (c.NamedRecords("dataclass", "P", ["__class__"], [c.Nones()]), 1, b"\0"),
        (c.NamedRecords("dataclass", "P", ["x=print(1)"], [c.Nones()]), 1, b"\0"),
        (c.Raggeds(c.Nones(), c.Nones()), 1, b"\0" * 65),
        (c.Raggeds(c.Arrays("|u1", [1]), c.Arrays("<i8", [1])), 1, b"\0" * 64 + numbers(5)),
        (c.Sparses(c.Nones(), c.Nones(), c.Nones()), 1, b"\0" * 129),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_description_that_does_not_fit_its_body_is_refused(column, count, body):
    with pytest.raises(WireError):
        decode(header(column, count), bytearray(body))


def test_a_dtype_of_a_newer_ml_dtypes_is_a_matter_of_versions():
    with pytest.raises(FailedPreconditionError, match="upgrade it"):
        decode(header(c.Arrays("ml_dtypes.finfo", [1])), bytearray(8))


def nested(depth):
    column: c.Column = c.Nones()
    for _ in range(depth):
        column = c.Items("list", [column])
    return column


def test_a_description_nested_too_deep_is_refused():
    with pytest.raises(WireError, match="nested more than 64 deep"):
        decode(header(nested(100)), bytearray(1))


def test_a_header_nested_beyond_any_stack_is_refused():
    with pytest.raises(WireError, match="not a header"):
        decode(b"\x91" * 1_000_000, None)


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (msgspec.msgpack.encode(Ready(1)), b"\0"),
        (header(None, 1), None),
        (header(None, 0), b"\0"),
        (header(c.Nones(), 1), None),
        (msgspec.msgpack.encode({"type": "Frame", "number": -1, "count": 0}), None),
        (msgspec.msgpack.encode({"type": "Credit", "consumed": "1"}), None),
        (msgspec.msgpack.encode({"type": "Pickle"}), None),
        (b"", None),
        (b"\xc1", None),
    ],
)
def test_a_header_that_is_no_message_is_refused(message, body):
    with pytest.raises(WireError):
        decode(message, body and bytearray(body))


@settings(max_examples=300)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_random_bytes_are_refused(head, body):
    with pytest.raises(WireError):
        decode(head, bytearray(body))


@settings(max_examples=400)
@given(frames_of_elements(), st.data())
def test_a_corrupted_frame_decodes_or_is_refused(elements, data):
    message = bytearray(message_bytes(Frame(0, elements)))
    size, _ = parse_prefix(message, 1 << 30)
    head, body = message[PREFIX.size : PREFIX.size + size], message[PREFIX.size + size :]
    for part in (head, body):
        for _ in range(data.draw(st.integers(0, 3))):
            if part:
                part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
        del part[data.draw(st.sampled_from([len(part), len(part) - 1, len(part) // 2])) :]
        part.extend(data.draw(st.sampled_from([b"", b"", b"\0", b"\x91\x91"])))
    try:
        frame = decode(head, body)
    except (WireError, FailedPreconditionError):
        # The latter for a name that may be of a newer ml_dtypes.
        return
    assert isinstance(frame, Frame)


def test_what_a_read_only_body_holds_arrives_writable():
    data = message_bytes(Frame(0, [np.zeros(100_000, np.uint8)]))
    size, _ = parse_prefix(data, 1 << 30)
    frame = decode(data[PREFIX.size : PREFIX.size + size], data[PREFIX.size + size :])
    assert isinstance(frame, Frame)
    frame.elements[0][0] = 1
    assert frame.elements[0][0] == 1


def test_a_frame_of_too_many_structures_is_refused_by_its_sender():
    elements = [{f"{'key' * 400}{i}": None} for i in range(15_000)]
    with pytest.raises(FailedPreconditionError, match="too many different keys or classes"):
        encode(Frame(3, elements))
