"""A journal in S3: s3fs and the server of moto, which refuses a second creation as S3 does."""

import concurrent.futures
import http.server
import threading
import uuid
from collections.abc import Iterator

import fsspec.asyn
import pytest

from stoker.errors import FailedPreconditionError, NotFoundError, UnavailableError
from stoker.service.journal import object_store, objects
from tests.service.journal.recording import OpenJournal, keep_last, opened

pytest.importorskip("s3fs", reason="needs stoker[test-s3]")
moto_server = pytest.importorskip("moto.server", reason="needs stoker[test-s3]")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Return the URL of a server."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # The threads of fsspec live as long as the process, so they must exist before a test.
    loop = fsspec.asyn.get_loop()
    executor = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    executor.submit(int).result()
    loop.call_soon_threadsafe(loop.set_default_executor, executor)
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint, monkeypatch) -> str:
    """Return the URL of an empty bucket, for which fsspec is configured."""
    import s3fs

    options = {"key": "x", "secret": "x", "endpoint_url": endpoint, "skip_instance_cache": True}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    name = f"bucket-{uuid.uuid4()}"
    system = s3fs.S3FileSystem(**options)
    system.mkdir(name)
    return f"s3://{name}"


def test_units_are_read_again_in_order(bucket):
    work_dir = f"{bucket}/some/folder"
    units = [b"%d" % number for number in range(500)]
    with opened(work_dir) as journal:
        assert journal.content == []
        for start in range(0, 500, 50):
            journal.commit(*units[start : start + 50])
    with opened(work_dir) as journal:
        assert journal.content == units
        assert journal.journal.position == 500


def test_a_bucket_itself_may_be_the_work_dir(bucket):
    with opened(bucket) as journal:
        journal.commit(b"unit")
    with opened(f"{bucket}/") as journal:
        assert journal.content == [b"unit"]


def test_a_newcomer_takes_over(bucket):
    with opened(bucket) as old:
        old.commit(b"one")
        with opened(bucket) as new:
            assert new.content == [b"one"]
            new.commit(b"two")
            old.append(b"lost")
            assert "another dispatcher serves" in str(old.wait_failed())
        assert old.reported == [1]


def test_exactly_one_of_two_racing_dispatchers_goes_on(bucket):
    for attempt in range(5):
        work_dir = f"{bucket}/{attempt}"
        barrier = threading.Barrier(2)
        journals: list[OpenJournal] = []

        def race(work_dir=work_dir, barrier=barrier, journals=journals):
            barrier.wait()
            try:
                journal = OpenJournal(work_dir)
            except FailedPreconditionError:
                return
            journal.append(*[b"unit"] * 5)
            journals.append(journal)

        threads = [threading.Thread(target=race) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for journal in journals:
            journal.append(b"last")
            journal.close()
        assert [len(journal.failures) for journal in journals].count(0) == 1
        with opened(work_dir) as journal:
            assert journal.content[-6:] == [*[b"unit"] * 5, b"last"]


def test_a_compaction_deletes_what_it_replaces(bucket, monkeypatch):
    monkeypatch.setattr(object_store, "_PART_BYTES", 1_000)
    with opened(bucket, keep_last) as journal:
        for number in range(40):
            journal.commit(b"%d" % number * 100)
        store = journal.store
        store.compact(lambda history: iter([*history.units]))
        journal.commit(b"last")
        names = store._objects.names()
    assert len([name for name in names if name.startswith("group")]) == 2  # a boot, the last
    with opened(bucket) as journal:
        assert journal.content == [*(b"%d" % number * 100 for number in range(40)), b"last"]


def test_a_bucket_that_does_not_exist_is_named(bucket):
    with pytest.raises(NotFoundError, match="s3://missing-bucket/work/journal cannot be written"):
        OpenJournal("s3://missing-bucket/work")


def test_a_server_that_does_not_answer_is_named(bucket, monkeypatch):
    class Refusing(http.server.BaseHTTPRequestHandler):
        def answer(self):
            self.send_error(503)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer  # noqa: N815 - of http.server

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        monkeypatch.setattr(objects, "RETRY_SECONDS", 0.1)
        monkeypatch.setitem(
            fsspec.config.conf["s3"], "endpoint_url", f"http://127.0.0.1:{server.server_port}"
        )
        with pytest.raises(UnavailableError, match="cannot be listed"):
            OpenJournal(bucket)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
