"""Shared memory between the two ends of a connection, both of them in this process."""

import fcntl
import gc
import os
import resource
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if sys.platform != "linux":
    pytest.skip("memfd is Linux's", allow_module_level=True)

from stoker.errors import InvalidArgumentError, UnavailableError, WireError
from stoker.wire.frames import Credit, Frame, Ready
from stoker.wire.transports.shm import Segments, ShmTransport, transport
from stoker.wire.transports.shm import envelope as e
from tests.wire.elements import TYPES, exact, frames_of_elements, message_bytes, parse
from tests.wire.pairs import connected, meets, shared_mappings

MIB = 1 << 20


@pytest.fixture
def pool():
    pool = Segments(64 * MIB)
    yield pool
    pool.close()


@pytest.fixture
def pair(pool):
    """`near` is a client's end, `far` the worker's."""
    with connected(ShmTransport(pool)) as pair:
        yield pair


def lent(pool):
    return pool.statistics()["lent_bytes"]


def elements_of(pair, elements, *, shared=False):
    """What arrives of a frame."""
    # A body that goes inline is larger than what the kernel holds.
    sender = threading.Thread(target=pair.far.send, args=(Frame(0, elements, shared=shared),))
    sender.start()
    try:
        return received(pair)
    finally:
        sender.join(5)


def received(pair):
    frame = pair.near.receive(5)
    assert isinstance(frame, Frame)
    return frame.elements


def returns(pair):
    """Let what the client has given back arrive."""
    pair.near.send(Ready(1))
    assert pair.far.receive(5) == Ready(1)


def mapped_at(view) -> str:
    """The file that the memory of an array is mapped from."""
    address = view.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split(maxsplit=5)
        first, last = (int(word, 16) for word in span.split("-"))
        if first <= address < last:
            return name
    return ""


def is_shared(view) -> bool:
    return "stoker-segment" in mapped_at(view)


def test_an_array_of_the_pool_is_seen_in_place(pair, pool):
    mine = pool.allocate((1000, 1000), np.float32)
    mine[:] = 3
    (yours,) = elements_of(pair, [mine])
    assert exact(yours) == exact(mine)
    yours[0, 0] = 5
    assert mine[0, 0] == 5


def test_shared_arrays_of_the_pool_are_copied_for_each_receiver(pair, pool):
    mine = pool.allocate((1000, 1000), np.float32)
    mine[:] = 3
    for _ in range(2):
        (yours,) = elements_of(pair, [mine], shared=True)
        assert is_shared(yours)
        assert (yours == 3).all()
        yours[:] = 5
    assert (mine == 3).all()


def test_ordinary_arrays_are_copied_once_into_the_pool(pair, pool):
    image = np.arange(50_000)
    (yours,) = elements_of(pair, [{"image": image, "label": 3}])
    assert (yours["image"] == image).all()
    assert yours["label"] == 3
    assert is_shared(yours["image"])
    yours["image"][:] = 0
    assert image[-1] == 49_999


def test_read_only_and_twice_sent_arrays_are_copied(pair, pool):
    shared = pool.allocate((MIB,), np.uint8)
    shared[:] = 1
    shared.flags.writeable = False
    kept = pool.allocate((MIB,), np.uint8)
    kept[:] = 2
    first = elements_of(pair, [shared, kept])
    second = elements_of(pair, [shared, kept])
    for element in [*first, *second]:
        assert is_shared(element)
        element[0] = 99
    assert shared[0] == 1
    assert kept[0] == 99
    assert second[1][1] == 2
    assert not np.shares_memory(first[1], second[1])


def test_parts_of_one_array_in_one_frame_are_all_seen(pair, pool):
    rows = pool.allocate((4, 100_000), np.int32)
    rows[:] = np.arange(4)[:, None]
    yours = elements_of(pair, list(rows))
    for n, row in enumerate(yours):
        assert (row == n).all()
        row[:] = -1
    assert sorted(rows[:, 0]) == [-1, 1, 2, 3]


def test_small_elements_are_copied_out_and_pin_nothing(pair, pool):
    yours = elements_of(pair, [np.full(100, n) for n in range(2000)])
    assert lent(pool) > 0
    returns(pair)
    assert lent(pool) == 0
    assert [int(element[0]) for element in yours] == list(range(2000))


def test_small_bodies_go_through_the_socket(pair, pool):
    assert elements_of(pair, [1, 2]) == [1, 2]
    assert pool.statistics()["bytes"] == 0


def test_the_next_message_returns_loans_without_views(pair, pool):
    (yours,) = elements_of(pair, [np.zeros(MIB, np.uint8)])
    part = yours[100:][::2][5:6]
    returns(pair)
    del yours
    returns(pair)
    assert lent(pool) > 0
    del part
    gc.collect()
    returns(pair)
    assert lent(pool) == 0


def test_a_client_that_keeps_all_elements_is_sent_copies(pair, pool):
    kept = []
    for n in range(100):
        kept += elements_of(pair, [np.full(MIB, n, np.uint8)])
    assert all((array == n).all() for n, array in enumerate(kept))
    assert 0 < sum(map(is_shared, kept)) <= 32
    assert pool.statistics()["refused"] == 100 - sum(map(is_shared, kept))
    kept.clear()
    returns(pair)
    assert lent(pool) == 0
    (again,) = elements_of(pair, [np.zeros(MIB, np.uint8)])
    assert is_shared(again)


def test_inline_arrays_are_aligned_and_writable(pool):
    small = Segments(4 * MIB)
    with connected(ShmTransport(small)) as pair:
        mine = small.allocate((MIB + 8,), np.uint8)
        mine[:] = 1
        frame = [{"a": mine, "b": b"x" * 13, "c": np.arange(200_000.0), "d": np.arange(300_000)}]
        (yours,) = elements_of(pair, frame)
        assert exact(yours) == exact(frame[0])
        assert not is_shared(yours["d"])
        for key in "acd":
            assert yours[key].flags.writeable
            assert yours[key].flags.aligned
    del yours
    small.close()


def test_no_segments_at_all_is_a_socket_like_any_other():
    with connected(ShmTransport(Segments(0))) as pair:
        arrays = [np.arange(100_000), np.arange(70_000)]
        assert [exact(a) for a in elements_of(pair, arrays)] == [exact(a) for a in arrays]


@settings(max_examples=50)
@given(st.lists(frames_of_elements(), min_size=1, max_size=4), st.integers(0, 2))
def test_every_element_arrives_as_it_was(frames, where):
    pool = Segments(MIB)
    big = np.zeros(20_000)
    with connected(ShmTransport(pool)) as pair:
        for plain in frames:
            # So large that the body is shared.
            elements = [(element, big, b"z" * 33_000) for element in plain] if where else plain
            if where == 2:
                mine = pool.allocate((70_001,), np.uint8)
                mine[:] = 7
                elements.append(mine)
            pair.near.types = TYPES
            got = elements_of(pair, elements)
            expected = parse(message_bytes(Frame(0, elements)), TYPES)
            assert isinstance(expected, Frame)
            assert list(map(exact, got)) == list(map(exact, expected.elements))
            del got
    pool.close()


def test_thousands_of_frames_use_the_same_memory_again(pair, pool):
    for n in range(3000):
        mine = pool.allocate((70_000,), np.uint8)
        mine[:] = n % 256
        a, b = elements_of(pair, [mine, np.full(50_000, n)])
        assert a[0] == a[-1] == n % 256
        assert b[0] == b[-1] == n
        del mine, a, b
        pair.near.send(Credit(n, 0, 0))
        assert pair.far.receive(5) == Credit(n, 0, 0)
    assert lent(pool) == 0
    assert pool.statistics()["bytes"] == 16 * MIB
    start = pool.allocate((MIB,), np.uint8).__array_interface__["data"][0]
    assert start == next(iter(pool._segments.values())).mapping.address


def test_views_outlive_the_connection_and_the_pool():
    pool = Segments(64 * MIB)
    with connected(ShmTransport(pool)) as pair:
        mine = pool.allocate((MIB,), np.uint8)
        mine[:] = 5
        one, two = elements_of(pair, [mine, np.full(MIB, 6, np.uint8)])
        part = two[1:][1:]
        del two, mine
    pool.close()
    del pair, pool
    gc.collect()
    assert (one == 5).all()
    assert (part == 6).all()
    one[:] = 7
    assert shared_mappings() == 1
    del one, part
    assert shared_mappings() == 0


def test_what_a_closed_connection_still_sees_is_not_used_again(pool):
    with connected(ShmTransport(pool)) as pair:
        (yours,) = elements_of(pair, [np.full(MIB, 1, np.uint8)])
    assert meets(lambda: pool.statistics()["lent_bytes"] == 0)
    assert pool.statistics()["retired_bytes"] > 0
    for _ in range(50):
        pool.allocate((MIB,), np.uint8)[:] = 2
    assert (yours == 1).all()


def test_closing_gives_back_what_nobody_sees_any_more(pool):
    with connected(ShmTransport(pool)) as pair:
        (yours,) = elements_of(pair, [np.full(MIB, 1, np.uint8)])
        del yours
        pair.near.close()
        with pytest.raises(UnavailableError):
            pair.far.receive(5)
    assert pool.statistics()["retired_bytes"] == pool.statistics()["lent_bytes"] == 0


def test_a_replaced_segment_is_unmapped_by_the_client_too():
    pool = Segments(4 * MIB)
    with connected(ShmTransport(pool)) as pair:
        for n in range(20):
            with connected(ShmTransport(pool)) as other:
                (kept,) = elements_of(other, [np.full(MIB, n, np.uint8)])
            (yours,) = elements_of(pair, [np.full(MIB // 2, n, np.uint8)])
            assert (kept == n).all()
            del yours
            returns(pair)
        del kept
        assert meets(lambda: shared_mappings() <= 8)  # four of the pool, which the client maps too
    pool.close()


def test_send_now_never_blocks_on_a_client_not_receiving():
    with connected(ShmTransport(Segments(0))) as pair:

        def received() -> Frame:
            message = pair.near.receive(5)
            assert isinstance(message, Frame)
            return message

        large = Frame(0, [np.zeros(MIB, np.uint8)])
        assert not pair.far.send_now(large)
        sender = threading.Thread(target=pair.flush_far)
        sender.start()
        assert received().elements[0].nbytes == MIB
        sender.join()
        sent = 1
        while pair.far.send_now(Frame(sent, list(range(1000)))):
            sent += 1
            assert sent < 10_000
        sender = threading.Thread(target=pair.flush_far)
        sender.start()
        assert [received().number for _ in range(sent)] == list(range(1, sent + 1))
        sender.join()


def test_buffered_messages_are_received_without_system_calls(pair):
    for n in range(101):
        pair.far.send(Ready(n))
    assert pair.near.receive(5) == Ready(0)
    reader = pair.near._reader
    reader._receive = None  # what would ask the kernel
    assert [pair.near.receive(5) for _ in range(100)] == [Ready(n) for n in range(1, 101)]
    del reader._receive


def test_a_frame_whose_parts_arrive_late_times_out_and_arrives(pair):
    raw = raw_of(pair.far)
    header, body = plain_frame(np.arange(20_000))
    data = e.pack(e.Envelope(e.EnvelopeKind.MESSAGE, header, (e.Part(len(body)),)))
    for cut in (1, 7, 8, 50, len(data)):
        raw.send(data[:cut])
        with pytest.raises(TimeoutError, match="no whole message in time"):
            pair.near.receive(0.01)
        raw.send(data[cut:])
        with pytest.raises(TimeoutError):
            pair.near.receive(0.01)
        raw.send(body[:100_000])
        with pytest.raises(TimeoutError):
            pair.near.receive(0.01)
        raw.send(body[100_000:])
        assert (received(pair)[0] == np.arange(20_000)).all()


def raw_of(connection):
    return connection._stream._socket


def plain_frame(*arrays):
    from stoker.wire.frames import PREFIX, encode

    first, *buffers = encode(Frame(0, list(arrays)))
    return bytes(first)[PREFIX.size :], b"".join(map(bytes, buffers))


_NUMBERS = st.integers(0, 2**64 - 1)
_PARTS = st.builds(e.Part, _NUMBERS, st.integers(0, 2**32 - 1), _NUMBERS, _NUMBERS)
_RETURNS = st.builds(e.Return, st.integers(0, 2**63 - 1), st.booleans())


@given(
    st.builds(
        e.Envelope,
        st.sampled_from(e.EnvelopeKind),
        st.binary(max_size=50),
        st.lists(_PARTS, max_size=4).map(tuple),
        st.lists(_RETURNS, max_size=4).map(tuple),
    ),
    st.integers(0, 9),
)
def test_an_envelope_is_parsed_as_it_was_packed(envelope, offset):
    data = bytes(offset) + e.pack(envelope) + b"what follows"
    size = e.parse_prefix(data, offset, 100)
    assert size == len(data) - offset - len(b"what follows")
    assert e.parse(data, offset, size) == envelope


# What a peer may do.


def memfd(size=MIB, seals=fcntl.F_SEAL_SHRINK, name="test"):
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    if seals:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def announce(raw, descriptor, size=MIB, number=1):
    data = e.pack(e.Envelope(e.EnvelopeKind.SEGMENT, parts=(e.Part(size, number),)))
    socket.send_fds(raw, [data], [] if descriptor is None else [descriptor])
    if descriptor is not None:
        os.close(descriptor)


def pipe():
    read, write = os.pipe()
    os.close(write)
    return read


def regular_file():
    descriptor = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
    os.ftruncate(descriptor, MIB)
    return descriptor


@pytest.mark.parametrize(
    ("make", "size", "message"),
    [
        (lambda: memfd(seals=0), MIB, "could shrink while it is read"),
        (lambda: memfd(seals=fcntl.F_SEAL_GROW), MIB, "could shrink while it is read"),
        (lambda: memfd(seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE), MIB, "seals"),
        (memfd, MIB + 1, f"claimed to have {MIB + 1} bytes but has {MIB}"),
        (memfd, 2**62, f"has {MIB}"),
        (memfd, 0, "claimed to have 0 bytes"),
        (lambda: memfd(size=0), 1, "claimed to have 1 bytes but has 0"),
        (regular_file, MIB, "is no memfd"),
        (lambda: os.open("/dev/null", os.O_RDWR), MIB, "is no memfd"),
        (lambda: os.memfd_create("test"), MIB, "seals"),
        (pipe, MIB, "is no memfd"),
        (lambda: None, MIB, "without a descriptor"),
    ],
)
def test_a_segment_that_is_none_is_refused_and_closed(pair, make, size, message):
    announce(raw_of(pair.far), make(), size)
    with pytest.raises(WireError, match=message):
        pair.near.receive(5)
    assert pair.near.closed
    assert shared_mappings() == 0


GOOD = e.Part(4096, 1, 1, 0)


def whole(data):
    """Return an envelope with any bytes."""
    return e.PREFIX.pack(b"stks", len(data)) + data


@pytest.mark.parametrize(
    "envelope",
    [
        e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (e.Part(4096, 2, 1, 0),)),
        e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (e.Part(MIB + 1, 1, 1, 0),)),
        e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (e.Part(1, 1, 1, MIB),)),
        e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (e.Part(0, 1, 1, 0),)),
        e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (e.Part(2**63, 1, 1, 2**63),)),
        e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (e.Part(4096, 1, 1, 2**64 - 4096),)),
        e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (e.Part(2**62),)),
        e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (GOOD, GOOD)),
        e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (GOOD,)),
        e.Envelope(e.EnvelopeKind.MESSAGE, b""),
        e.Envelope(e.EnvelopeKind.FORGET, b"", (e.Part(0, 2),)),
        e.Envelope(e.EnvelopeKind.FORGET),
        e.Envelope(e.EnvelopeKind.SEGMENT),
        e.Envelope(e.EnvelopeKind.SEGMENT, b"", (e.Part(MIB, 2),)),
        e.Envelope(e.EnvelopeKind.RETURNS, b"", (), (e.Return(1),)),
    ],
    ids=repr,
)
def test_a_garbage_envelope_of_a_worker_closes_the_connection(pair, envelope):
    raw = raw_of(pair.far)
    announce(raw, memfd())
    raw.send(e.pack(envelope))
    with pytest.raises(WireError, match="sent what is not a message"):
        pair.near.receive(5)
    assert pair.near.closed
    assert shared_mappings() == 0


@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_is_announced_once_and_is_not_the_socket(pair, number):
    raw = raw_of(pair.far)
    announce(raw, memfd())
    announce(raw, memfd(), number=number)
    with pytest.raises(WireError, match=f"announced segment {number}, which must be new"):
        pair.near.receive(5)


def test_descriptors_that_nobody_announced_are_closed(pair):
    raw = raw_of(pair.far)
    for _ in range(20):
        with Path("/dev/null").open() as null:
            data = e.pack(e.Envelope(e.EnvelopeKind.RETURNS))
            socket.send_fds(raw, [data], [null.fileno()])
    with pytest.raises(WireError, match="17 descriptors nobody announced"):
        pair.near.receive(5)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n",
        whole(b"\x94\x04\xc4\x00\x90\x90"),  # of an unknown kind
        whole(b"\x93\x00\xc4\x00\xdd\xff\xff\xff\xff"),  # 2**32 - 1 parts
        whole(b"\x94\x00\xc4\x00\x90\xdd\xff\xff\xff\xff"),  # 2**32 - 1 returned loans
        e.pack(e.Envelope(e.EnvelopeKind.RETURNS, b"", (), (e.Return(1),) * 4097)),
        e.pack(e.Envelope(e.EnvelopeKind.MESSAGE, b"", (e.Part(1),) * 4097)),
        e.pack(e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (e.Part(-1),))),
        e.PREFIX.pack(b"stks", 2**32 - 1),
        e.pack(e.Envelope(e.EnvelopeKind.RETURNS, b"", (), (e.Return(1),))),
        e.pack(e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (GOOD,))),
        e.pack(e.Envelope(e.EnvelopeKind.MESSAGE, b"\xc1", (e.Part(MIB + 1),))),
        e.pack(e.Envelope(e.EnvelopeKind.SEGMENT, b"", (e.Part(MIB, 1),))),
        e.pack(e.Envelope(e.EnvelopeKind.FORGET, b"", (e.Part(0, 1),))),
    ],
)
def test_garbage_of_a_client_closes_only_its_connection(pool, data):
    with connected(ShmTransport(pool)) as pair, connected(ShmTransport(pool)) as other:
        raw_of(pair.near).send(data)
        with pytest.raises(WireError, match="sent what is not a message"):
            pair.far.receive(5)
        assert pair.far.closed
        assert (elements_of(other, [np.arange(MIB)])[0] == np.arange(MIB)).all()


def receive_all(connection):
    while True:
        connection.receive(5)


@settings(max_examples=100)
@given(st.binary(max_size=300), st.booleans())
def test_bytes_of_any_kind_end_in_one_of_the_three_errors(data, known):
    with connected(ShmTransport(Segments(0))) as pair:
        if known:
            announce(raw_of(pair.far), memfd())
            data = whole(data)
        raw_of(pair.far).send(data or b"\0")
        pair.far.close()
        with pytest.raises((WireError, UnavailableError)):
            receive_all(pair.near)
        pair.near.close()
        assert shared_mappings() == 0


def test_a_client_gives_descriptors_to_nobody(pair):
    """A worker takes no segments: what comes with bytes is closed."""
    announce(raw_of(pair.near), memfd())
    with pytest.raises(WireError):
        pair.far.receive(5)


# Who may connect, and where.


def test_a_process_of_another_user_is_refused_on_both_sides(pool, monkeypatch):
    listener = ShmTransport(pool).listen("", 0, lambda connection: None)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UnavailableError, match="only between processes of one user"):
        ShmTransport().connect(listener.address, 5)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(transport._abstract(listener.address))
        raw.settimeout(5)
        assert raw.recv(1) == b""
    listener.close()


@pytest.mark.parametrize("address", ["nowhere", "", "localhost:5050", "stoker-1", "@other-1"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(InvalidArgumentError, match="@stoker-<random>"):
        ShmTransport().connect(address, 1)


def test_connect_error_suggests_another_host():
    with pytest.raises(UnavailableError, match="it is on another host, or ended"):
        ShmTransport().connect("@stoker-none", 1)


def test_a_process_that_cannot_map_stops_connecting(pool, monkeypatch):
    from stoker.wire.transports.shm import borrowing

    def cannot(descriptor, size):
        os.close(descriptor)
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(borrowing, "received_mapping", cannot)
    shm = ShmTransport(pool)
    with connected(shm) as pair:
        pair.far.send(Frame(0, [np.zeros(MIB)]))
        with pytest.raises(UnavailableError, match="mapping 16777216 bytes failed"):
            pair.near.receive(5)
        with pytest.raises(UnavailableError, match="this process cannot map shared memory"):
            shm.connect(pair.listener.address, 5)


def test_a_process_out_of_descriptors_is_told_what_to_raise(pool):
    shm = ShmTransport(pool)
    with connected(shm) as pair:
        pool.allocate((MIB,), np.uint8)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        filler = [os.open("/dev/null", os.O_RDONLY) for _ in range(highest + 1)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(filler) + 1, hard))
        try:
            pair.far.send(Frame(0, [np.zeros(MIB)]))
            with pytest.raises(UnavailableError, match="raise `ulimit -n`"):
                pair.near.receive(5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in filler:
                os.close(descriptor)


def test_a_host_without_memfd_cannot_be_listened_on(monkeypatch):
    def no_memfd(name, flags):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", no_memfd)
    with pytest.raises(UnavailableError, match="cannot share memory on this host"):
        ShmTransport().listen("", 0, lambda connection: None)


def test_frames_and_returns_cross_on_many_threads(pool):
    done = threading.Event()
    with connected(ShmTransport(pool)) as pair:

        def give_back():
            while not done.is_set():
                pair.near.send(Ready(1))

        def drain():
            while True:
                try:
                    pair.far.receive()
                except UnavailableError:
                    return

        def produce(mark):
            for n in range(200):
                mine = pool.allocate((30_000 + mark,), np.int32)
                mine[:] = n
                pair.far.send(Frame(n, [mine, np.full(20_000, n)]))

        threads = [
            threading.Thread(target=give_back),
            threading.Thread(target=drain),
            *(threading.Thread(target=produce, args=(mark,)) for mark in range(3)),
        ]
        for thread in threads:
            thread.start()
        for _ in range(600):
            frame = pair.near.receive(20)
            assert isinstance(frame, Frame)
            for view in frame.elements:
                assert view.min() == view.max() == frame.number
            del view, frame
        done.set()
        threads[0].join()
        pair.near.send(Ready(1))
        all_came_back = meets(lambda: lent(pool) == 0)
        pair.near.close()
        for thread in threads:
            thread.join(10)
    assert all_came_back
