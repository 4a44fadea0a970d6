"""A journal in an object store: its fence, faults of the store, and what it refuses."""

import threading
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from stoker.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from stoker.service.journal import object_store
from stoker.service.journal.object_names import group_name
from tests.manual_clock import ManualClock
from tests.service.journal.recording import OpenJournal, keep_last, opened

URL = "faulty://work"


def test_a_newcomer_takes_over(work_dir):
    if "://" not in work_dir:
        pytest.skip("a local directory is locked")
    with opened(work_dir) as old:
        old.commit(b"one")
        with opened(work_dir) as new:
            assert new.content == [b"one"]
            new.commit(b"two")
            old.append(b"lost")
            error = old.wait_failed()
            assert isinstance(error, FailedPreconditionError)
            assert "another dispatcher serves `work_dir`" in str(error)
            assert work_dir in str(error)
            new.commit(b"three")
        assert old.reported == [1]
    with opened(work_dir) as journal:
        assert journal.content == [b"one", b"two", b"three"]


def test_an_idle_dispatcher_notices_its_successor(faulty):
    clock = ManualClock()
    with opened(URL, clock=clock) as old, opened(URL), clock.running():
        assert "another dispatcher serves" in str(old.wait_failed())


def test_an_idle_dispatcher_survives_an_unreachable_store(faulty, caplog):
    clock = ManualClock()

    def unreachable(method, path):
        raise ConnectionError("unreachable")

    with opened(URL, clock=clock) as journal:
        faulty.before = staticmethod(unreachable)
        assert clock.eventually(lambda: "cannot be read: ConnectionError" in caplog.text)
        faulty.before = staticmethod(lambda method, path: None)
        journal.commit(b"unit")


def test_exactly_one_of_two_racing_dispatchers_goes_on(faulty):
    for attempt in range(100):
        faulty.objects.clear()
        with opened(URL) as journal:
            journal.commit(b"first")
        barrier = threading.Barrier(2)
        journals: list[OpenJournal] = []

        def race(name, barrier=barrier, journals=journals):
            barrier.wait()
            try:
                journal = OpenJournal(URL)
            except FailedPreconditionError:
                return
            for _ in range(20):
                journal.append(name)
            journals.append(journal)

        threads = [threading.Thread(target=race, args=(name,)) for name in (b"a", b"b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for journal in journals:
            journal.append(b"last")
            journal.close()
        assert [len(journal.failures) for journal in journals].count(0) == 1, attempt
        with opened(URL) as journal:
            assert journal.content[-21:] in ([*[b"a"] * 20, b"last"], [*[b"b"] * 20, b"last"])


def test_a_boot_in_a_race_is_refused_once_another_won(faulty):
    with opened(URL) as journal:
        journal.commit(b"unit")
    others: list[Any] = []

    def boot_first(method, path):
        if method == "create" and path.endswith(group_name(3)) and not others:
            others.append(None)
            others[0] = OpenJournal(URL)

    faulty.before = staticmethod(boot_first)
    with pytest.raises(FailedPreconditionError, match="has just started to serve"):
        OpenJournal(URL)
    others[0].commit(b"other")
    others[0].close()


def test_a_newcomer_reads_what_is_written_meanwhile(faulty):
    with opened(URL) as old:
        old.commit(b"one")
        writes = iter([b"two", b"three"])

        def write_first(method, path):
            if method == "create" and "group" in path and threading.current_thread() is here:
                for unit in writes:
                    old.commit(unit)
                    break

        here = threading.current_thread()
        faulty.before = staticmethod(write_first)
        with opened(URL) as new:
            assert new.content == [b"one", b"two", b"three"]


def test_a_newcomer_lists_again_after_a_compaction(faulty, monkeypatch):
    """The dispatcher before it deletes groups between the listing and the reading."""
    with opened(URL, keep_last) as old:
        old.commit(b"one")
        old.commit(b"two")
        once: list[str] = []

        def compact_first(method, path):
            if method == "read" and path.endswith(group_name(3)) and not once:
                once.append(path)
                old.store.compact(lambda history: keep_last(history.snapshot, history.units))

        faulty.before = staticmethod(compact_first)
        with opened(URL) as new:
            assert once
            assert new.content == [b"two"]
            assert new.journal.position == 2


def test_a_newcomer_frozen_over_a_compaction_starts_again(faulty):
    """Its number was deleted meanwhile, so it can create it, and it must not serve."""
    with opened(URL, keep_last) as old:
        old.commit(b"one")
        once: list[str] = []

        def compact_first(method, path):
            if threading.current_thread() is not here or method != "create" or once:
                return
            if "group" in path:
                once.append(path)
                for number in range(5):
                    old.commit(b"later %d" % number)
                old.store.compact(lambda history: keep_last(history.snapshot, history.units))
                old.commit(b"last")

        here = threading.current_thread()
        faulty.before = staticmethod(compact_first)
        with opened(URL) as new:
            assert new.content == [b"later 4", b"last"]
            new.commit(b"new")
            old.append(b"lost")
            assert "another dispatcher" in str(old.wait_failed())
    with opened(URL) as journal:
        assert journal.content == [b"later 4", b"last", b"new"]


def test_a_frozen_dispatcher_finds_its_number_taken_after_compactions(faulty):
    frozen = OpenJournal(URL, keep_last)
    frozen.commit(b"one")
    for boot in range(object_store.KEPT_BOOTS - 1):
        with opened(URL, keep_last) as journal:
            journal.commit(b"boot %d" % boot)
            journal.store.compact(lambda history: keep_last(history.snapshot, history.units))
    assert len(faulty.objects) <= object_store.KEPT_BOOTS + 5
    frozen.append(b"lost")
    assert "another dispatcher" in str(frozen.wait_failed())
    frozen.close()
    for _ in range(50):
        with opened(URL, keep_last) as journal:
            journal.store.compact(lambda history: keep_last(history.snapshot, history.units))
    assert len(faulty.objects) <= object_store.KEPT_BOOTS + 5


def test_a_lost_answer_is_not_taken_for_another_dispatcher(faulty):
    lost = []

    def lose(method, path):
        if method == "create" and path not in lost:
            lost.append(path)
            raise TimeoutError("no answer")

    faulty.after = staticmethod(lose)
    with opened(URL, keep_last) as journal:
        for number in range(20):
            journal.commit(b"%d" % number)
        journal.store.compact(lambda history: keep_last(history.snapshot, history.units))
    assert len(lost) > 20
    with opened(URL) as journal:
        assert journal.content == [b"19"]
        assert journal.journal.position == 20


def test_transient_errors_are_retried(faulty, caplog):
    calls, clock = [], ManualClock()

    def fail_often(method, path):
        calls.append(path)
        if len(calls) % 3:
            raise OSError("503 slow down")

    faulty.before = staticmethod(fail_often)
    with clock.running(), opened(URL, clock=clock) as journal:
        for number in range(10):
            journal.commit(b"%d" % number)
    with clock.running(), opened(URL, clock=clock) as journal:
        assert journal.content == [b"%d" % number for number in range(10)]
    assert "trying again: OSError: 503 slow down" in caplog.text


def test_a_store_that_stays_unreachable_fails(faulty):
    clock = ManualClock()
    with clock.running(), opened(URL, clock=clock) as journal:
        journal.commit(b"unit")

        def fail(method, path):
            raise ConnectionError("unreachable")

        faulty.before = staticmethod(fail)
        journal.append(b"lost")
        error = journal.wait_failed()
        assert isinstance(error, UnavailableError)
        assert "faulty://work/journal cannot be written: ConnectionError: unreachable" in str(error)
        with pytest.raises(UnavailableError, match="cannot be listed"):
            OpenJournal(URL, clock=clock)
    assert journal.reported == [1]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(PermissionError, PermissionDeniedError), (FileNotFoundError, NotFoundError)],
)
def test_permanent_errors_are_not_retried(faulty, raised, expected):
    calls = []

    def fail(method, path):
        if method == "create":
            calls.append(path)
            raise raised(path)

    faulty.before = staticmethod(fail)
    with pytest.raises(expected, match="faulty://work/journal cannot be written"):
        OpenJournal(URL)
    assert len(calls) == 1


def test_slow_commits_are_grouped(faulty):
    """Each commit takes 200 ms, and contains all that was appended during the one before."""
    with opened(URL) as journal:
        entered, may_go_on = threading.Semaphore(0), threading.Semaphore(0)

        def slow(method, path):
            if method == "create":
                entered.release()
                assert may_go_on.acquire(timeout=30)

        faulty.before = staticmethod(slow)
        for number in range(1, 4):
            journal.append(*[b"unit"] * 100)
            assert entered.acquire(timeout=30)
            journal.append(*[b"unit"] * 100)
            assert journal.reported == [100, 300][: number - 1] or number > 2
            may_go_on.release()
        for _ in range(3):
            may_go_on.release()
        journal.wait_durable(600)
        assert len(journal.reported) <= 5


def test_a_store_without_conditional_create_is_refused(faulty):
    faulty.conditional = False
    with pytest.raises(FailedPreconditionError, match="does not create objects conditionally"):
        OpenJournal(URL)
    assert [name for name in faulty.objects if "group" in name] == []


def test_a_store_with_the_default_create_is_refused(faulty, tmp_path):
    """It looks first and writes then, so two dispatchers may both create an object."""

    class Default(LocalFileSystem):  # type: ignore[misc]
        protocol = "default"

    fsspec.register_implementation("default", Default, clobber=True)
    with pytest.raises(FailedPreconditionError, match=r"Default of .* does not create"):
        OpenJournal(f"default://{tmp_path}/work")


def test_a_missing_package_is_named():
    with pytest.raises(FailedPreconditionError, match="needs a package that is not installed"):
        OpenJournal("hdfs://host/work" if not _has("pyarrow") else "oci://bucket/work")
    with pytest.raises(InvalidArgumentError, match="nonsense://bucket"):
        OpenJournal("nonsense://bucket/work")


def test_foreign_objects_are_refused_unchanged(faulty):
    faulty.objects["work/journal/model.bin"] = b"weights"
    before = dict(faulty.objects)
    with pytest.raises(FailedPreconditionError, match=r"'model.bin', which is no object"):
        OpenJournal(URL)
    assert faulty.objects == before


def test_other_objects_in_the_work_dir_do_not_matter(faulty):
    faulty.objects["work/model.bin"] = b"weights"
    with opened(URL) as journal:
        journal.commit(b"unit")
    assert faulty.objects["work/model.bin"] == b"weights"


def test_damaged_objects_are_refused_unchanged(faulty):
    with opened(URL, keep_last) as journal:
        journal.commit(b"one")
        journal.store.compact(lambda history: keep_last(history.snapshot, history.units))
        journal.commit(b"two")
        journal.commit(b"three")
    good = dict(faulty.objects)
    assert len(good) == 5  # a boot, two blocks of a snapshot, two groups
    for name, content in good.items():
        harmless = name.endswith(group_name(1))  # a boot that the snapshot replaces
        for at in range(len(content)):
            faulty.objects[name] = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
            check_refused(faulty, name, harmless)
        faulty.objects[name] = content[:-1]
        check_refused(faulty, name, harmless)
        faulty.objects[name] = content
    for name in good:
        del faulty.objects[name]
        # Without the last group, the journal is one of a moment before.
        check_refused(faulty, name, name.endswith((group_name(1), group_name(4))))
        faulty.objects.clear()
        faulty.objects.update(good)


def check_refused(faulty, name, harmless) -> None:
    before = dict(faulty.objects)
    if harmless:
        with opened(URL):
            pass
        faulty.objects.clear()
        faulty.objects.update(before)
        return
    with pytest.raises((DataLossError, FailedPreconditionError), match="faulty://work/journal"):
        OpenJournal(URL)
    assert faulty.objects == before, name


def test_a_missing_group_is_an_error(faulty):
    with opened(URL) as journal:
        journal.commit(b"one")
        journal.commit(b"two")
    del faulty.objects[f"work/journal/{group_name(2)}"]
    with pytest.raises(DataLossError, match=r"group-0*2 is missing"):
        OpenJournal(URL)


def test_an_interrupted_snapshot_does_not_count(faulty):
    with opened(URL) as journal:
        journal.commit(b"one")

        def fail_at_end(method, path):
            if method == "create" and "snapshot" in path and not path.endswith("-00000"):
                raise PermissionError(path)

        faulty.before = staticmethod(fail_at_end)
        with pytest.raises(PermissionDeniedError):
            journal.store.compact(lambda history: keep_last(history.snapshot, history.units))
        faulty.before = staticmethod(lambda method, path: None)
    with opened(URL, keep_last) as journal:
        assert journal.content == [b"one"]
        journal.commit(b"two")
        journal.store.compact(lambda history: keep_last(history.snapshot, history.units))
    # Two boots, and a snapshot of two objects; nothing of the interrupted one.
    assert len(faulty.objects) == 4


def test_objects_that_cannot_be_deleted_are_a_warning(faulty, caplog):
    with opened(URL, keep_last) as journal:
        journal.commit(b"one")
        journal.commit(b"two")

        def fail(method, path):
            if method == "delete":
                raise PermissionError(path)

        faulty.before = staticmethod(fail)
        journal.store.compact(lambda history: keep_last(history.snapshot, history.units))
        journal.commit(b"three")
    assert "2 objects in faulty://work/journal cannot be deleted" in caplog.text


def _has(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None
