"""cache(filename): the first whole epoch is kept in a folder, and later epochs read it."""

import errno
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.dataset.formats import elements_file
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context, number
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from stoker.service import distribute
from tests.dataset.splits import ScriptedSplits
from tests.dataset.verbs import tape_by
from tests.serving import Service, outcomes, read


class Counted:
    """A function x -> x * x that lists its calls."""

    def __init__(self, fails: int = -1) -> None:
        self.calls: list[int] = []
        self.fails = fails

    def __call__(self, x: int) -> int:
        self.calls.append(x)
        if x == self.fails:
            raise ValueError(x)
        return x * x


@pytest.fixture
def prefix(tmp_path) -> str:
    return str(tmp_path / "kept")


def state(prefix: str) -> str:
    """Return "absent", "unfinished" or "complete", by the files beside `prefix`."""
    folder = Path(prefix).parent
    names = sorted(
        re.sub("[0-9a-f]{12}", "R", str(p.relative_to(folder))) for p in folder.rglob("*")
    )
    return {
        (): "absent",
        ("kept.stoker", "kept.stoker/R-00000.elements", "kept.stoker/stoker.lock"): "unfinished",
        ("kept.stoker", "kept.stoker/R-00000.elements", "kept.stoker/stoker.json"): "complete",
    }[tuple(names)]


def squares(n: int) -> list[int]:
    return [x * x for x in range(n)]


def test_later_epochs_compute_nothing(prefix):
    function = Counted()
    dataset = stoker.Dataset.range(10).map(function).cache(prefix)
    for _ in range(3):
        assert list(dataset) == squares(10)
    assert function.calls == list(range(10))
    assert state(prefix) == "complete"


def test_another_object_of_the_same_pipeline_reads_it(prefix):
    assert list(stoker.Dataset.range(5).map(Counted()).cache(prefix)) == squares(5)
    function = Counted()
    dataset = stoker.Dataset.range(5).map(function).cache(Path(prefix))
    copy = stoker.Dataset(decode_tree(encode_tree(dataset.node)))
    assert list(dataset) == list(copy) == squares(5)
    assert function.calls == []


def test_a_later_process_reads_it(prefix):
    script = f"""
        import stoker
        def function(x):
            print("called", x)
            return x + 1
        print(list(stoker.Dataset.range(3).map(function).cache({prefix!r})))
    """
    outputs = [run(script) for _ in range(2)]
    assert outputs == ["called 0\ncalled 1\ncalled 2\n[1, 2, 3]\n", "[1, 2, 3]\n"]


def test_an_epoch_left_early_or_skipped_keeps_nothing(prefix):
    function = Counted()
    dataset = stoker.Dataset.range(4).map(function).cache(prefix)
    with dataset.iterator() as iterator:
        next(iterator)
        assert state(prefix) == "unfinished"
    assert state(prefix) == "absent"
    assert list(dataset.skip(1)) == squares(4)[1:]
    assert list(dataset.take(2)) == squares(2)
    assert state(prefix) == "absent"
    assert list(dataset) == squares(4)
    assert state(prefix) == "complete"


def test_while_one_epoch_writes_another_only_reads(prefix):
    function = Counted()
    dataset = stoker.Dataset.range(3).map(function).cache(prefix)
    with dataset.iterator() as writer:
        next(writer)
        assert list(dataset) == squares(3)
        assert state(prefix) == "unfinished"
        assert list(writer) == squares(3)[1:]
    assert state(prefix) == "complete"
    assert len(function.calls) == 6


def test_the_store_is_looked_up_at_the_first_read(prefix):
    function = Counted()
    dataset = stoker.Dataset.range(3).map(function).cache(prefix)
    with dataset.iterator() as early, dataset.iterator() as late:
        assert list(early) == list(late) == squares(3)
    assert len(function.calls) == 3


def test_the_elements_kept_are_those_of_epoch_0(prefix):
    dataset = stoker.Dataset.range(20).shuffle(20, seed=3)
    expected = list(dataset.iterator(epoch=0))
    cached = dataset.cache(prefix)
    assert list(cached.iterator(epoch=7)) == expected
    assert list(cached.iterator(epoch=9)) == expected
    assert list(cached.repeat(2)) == expected * 2


def test_arrays_from_the_store_are_writable_and_new(prefix):
    dataset = stoker.Dataset.range(3).batch(3).cache(prefix)
    for _ in range(3):
        [batch] = dataset
        assert batch.tolist() == [0, 1, 2]
        batch[:] = 9


def test_changes_to_elements_read_are_not_kept(prefix):
    dataset = stoker.Dataset.range(2).map(lambda x: {"x": np.full(3, x)}).cache(prefix)
    for element in dataset:
        element["x"][:] = 9
    assert [element["x"].tolist() for element in dataset] == [[0] * 3, [1] * 3]


def test_skipping_reads_one_record(prefix, monkeypatch):
    monkeypatch.setattr(elements_file, "RECORD_ELEMENTS", 10)
    dataset = stoker.Dataset.range(1000).cache(prefix)
    assert len(list(dataset)) == 1000
    records: list[int] = []
    read_record = elements_file.ElementsFile.read

    def counted(file: elements_file.ElementsFile, record: int) -> list[Any]:
        records.append(record)
        return read_record(file, record)

    monkeypatch.setattr(elements_file.ElementsFile, "read", counted)
    with dataset.skip(555).iterator() as iterator:
        assert next(iterator) == 555
    assert records == [55]


@pytest.mark.parametrize("fails", [-1, 0, 7])
@pytest.mark.parametrize(
    "rounds",
    [
        [("next", 1)],
        [("chunk", 4)],
        [("next", 1), ("chunk", 100)],
        [("chunk", 2), ("advance", 3), ("next", 1)],
    ],
)
def test_every_order_of_reading_gives_the_same_stream(prefix, fails, rounds):
    dataset = stoker.Dataset.range(23).map(Counted(fails)).cache(prefix)
    expected = [repr(ValueError(x)) if x == fails else x * x for x in range(23)]
    for epoch in range(3):
        stream = open_stream(dataset.node, Context(epoch=(epoch,)))
        found = tape_by(rounds, stream)
        assert len(found) == 23
        assert [e for e in found if e is not None] == [
            e for e, f in zip(expected, found, strict=True) if f is not None
        ]
        stream.close()
        stream.close()


def test_spec_and_cardinality_are_those_of_the_input(prefix):
    dataset = stoker.Dataset.range(7).batch(2)
    cached = dataset.cache(prefix)
    assert cached.element_spec == dataset.element_spec
    assert cached.cardinality() == 4


@pytest.mark.parametrize("filename", [None, 3, b"kept", "gs://bucket/kept"])
def test_a_filename_that_is_no_local_path_is_refused(filename):
    with pytest.raises(InvalidArgumentError, match="`filename` must be a"):
        stoker.Dataset.range(1).cache(filename)


# ── fingerprints ─────────────────────────────────────────────────────────────────────────────────
def test_a_store_of_another_pipeline_is_an_error(prefix):
    list(stoker.Dataset.range(3).cache(prefix))
    with pytest.raises(
        FailedPreconditionError, match="another pipeline: its structure differs; delete the folder"
    ):
        list(stoker.Dataset.range(4).cache(prefix))


def test_the_file_name_is_not_part_of_the_fingerprint(tmp_path):
    def dataset(first: str, second: str) -> stoker.Dataset:
        one = stoker.Dataset.range(9).cache(tmp_path / first)
        return one.snapshot(tmp_path / first / "snapshot").cache(tmp_path / second)

    iterator = iter(dataset("a", "b"))
    elements = [next(iterator) for _ in range(4)]
    resumed = dataset("c", "d").iterator(state=iterator.state_dict())
    assert elements + list(resumed) == list(range(9))
    assert list(dataset("e", "f")) == list(dataset("g", "f")) == list(range(9))


def test_a_given_seed_is_compared_if_a_node_uses_it(prefix):
    def dataset(seed: int | None, shuffled: bool) -> stoker.Dataset:
        base = stoker.Dataset.range(30)
        base = base.shuffle(30) if shuffled else base
        cached = base.cache(prefix + str(shuffled)).map(lambda x: x)
        return cached if seed is None else cached.with_options(stoker.Options(seed=seed))

    assert list(dataset(1, True)) == list(dataset(1, True))
    with pytest.raises(FailedPreconditionError, match="its seed differs"):
        list(dataset(2, True))
    assert list(dataset(1, False)) == list(dataset(2, False)) == list(dataset(None, False))


def test_a_drawn_seed_is_not_compared(prefix):
    first = list(stoker.Dataset.range(30).shuffle(30).cache(prefix))
    assert list(stoker.Dataset.range(30).shuffle(30).cache(prefix)) == first


def test_damage_is_an_error_at_the_damaged_elements(prefix, monkeypatch):
    monkeypatch.setattr(elements_file, "RECORD_ELEMENTS", 2)
    dataset = stoker.Dataset.range(6).cache(prefix)
    assert list(dataset) == list(range(6))
    [path] = Path(prefix + ".stoker").glob("*.elements")
    data = bytearray(path.read_bytes())
    file = elements_file.ElementsFile(path.open("rb"), "f")
    data[int(file._offsets[1])] ^= 1
    file.close()
    path.write_bytes(data)
    with dataset.iterator() as iterator:
        assert [next(iterator), next(iterator)] == [0, 1]
        for _ in range(2):
            with pytest.raises(DataLossError, match=r"kept.stoker/.* is damaged at byte \d+"):
                next(iterator)
        assert list(iterator) == [4, 5]
    assert list(dataset.ignore_errors()) == [0, 1, 4, 5]


# ── errors while writing ─────────────────────────────────────────────────────────────────────────
def test_an_epoch_with_an_error_keeps_nothing_and_warns(prefix, caplog):
    function = Counted(fails=2)
    dataset = stoker.Dataset.range(4).map(function).cache(prefix)
    for _ in range(2):
        with dataset.iterator() as iterator:
            assert [next(iterator), next(iterator)] == [0, 1]
            with pytest.raises(ValueError, match="2"):
                next(iterator)
            assert list(iterator) == [9]
        assert state(prefix) == "absent"
    assert "keeps nothing of this epoch: an element failed with ValueError: 2" in caplog.text
    kept = stoker.Dataset.range(4).map(function).ignore_errors().cache(prefix)
    assert list(kept) == list(kept) == [0, 1, 9]
    assert len(function.calls) == 12


def test_an_element_that_cannot_be_encoded_is_not_lost(prefix):
    things = [1, object(), 2]
    dataset = stoker.Dataset.range(3).map(lambda i: things[i]).cache(prefix)
    for _ in range(2):
        with dataset.iterator() as iterator:
            assert [next(iterator) for _ in range(3)] == things
            with pytest.raises(InvalidArgumentError, match="is a object"):
                next(iterator)
            assert list(iterator) == []
        assert state(prefix) == "absent"


def test_a_full_disk_raises_once_and_loses_no_element(prefix, monkeypatch):
    monkeypatch.setattr(elements_file, "RECORD_ELEMENTS", 10)

    def full(self: Any, pieces: Any) -> None:
        if self.count > 50:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, pieces)

    write = elements_file.ElementsWriter._write
    monkeypatch.setattr(elements_file.ElementsWriter, "_write", full)
    dataset = stoker.Dataset.range(100).cache(prefix)
    with dataset.iterator() as iterator:
        found = outcomes(iterator)
    [error] = [x for x in found if not isinstance(x, int)]
    assert (error.errno, error.filename) == (errno.ENOSPC, prefix + ".stoker")
    assert "No space left on device: what was written is removed" in str(error)
    assert [x for x in found if x is not error] == list(range(100))
    assert state(prefix) == "absent"
    monkeypatch.undo()
    assert list(dataset) == list(range(100))
    assert state(prefix) == "complete"


def test_a_file_size_limit_raises_once(prefix):
    script = f"""
        import resource, stoker
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
        dataset = stoker.Dataset.range(100_000).cache({prefix!r})
        iterator, found = iter(dataset), 0
        while True:
            try:
                next(iterator)
                found += 1
            except StopIteration:
                break
            except OSError as error:
                print(error)
        print(found)
    """
    said, found = run(script).splitlines()
    assert said.startswith("[Errno 27]")
    assert said.endswith(f"what was written is removed: '{prefix}.stoker'")
    assert found == "100000"
    assert state(prefix) == "absent"


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").touch()
    dataset = stoker.Dataset.range(3).cache(str(tmp_path / "file" / "kept"))
    with pytest.raises(OSError, match=r"file/kept.stoker"):
        list(dataset)


def test_missing_folders_are_created(tmp_path):
    list(stoker.Dataset.range(3).cache(str(tmp_path / "a" / "b" / "kept")))
    assert (tmp_path / "a" / "b" / "kept.stoker").exists()


def test_a_killed_process_leaves_no_store(prefix):
    script = f"""
        import os, signal, stoker
        dataset = stoker.Dataset.range(100_000).cache({prefix!r})
        iterator = iter(dataset)
        for _ in range(50_000):
            next(iterator)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with pytest.raises(subprocess.CalledProcessError) as killed:
        run(script)
    assert killed.value.returncode == -signal.SIGKILL
    assert state(prefix) == "unfinished"
    dataset = stoker.Dataset.range(100_000).cache(prefix)
    assert list(dataset) == list(range(100_000))
    assert state(prefix) == "complete"
    assert list(dataset) == list(range(100_000))


def test_a_forked_child_does_not_write_to_the_store(prefix):
    script = f"""
        import os, stoker
        dataset = stoker.Dataset.range(50_000).cache({prefix!r})
        iterator = iter(dataset)
        first = [next(iterator) for _ in range(20_000)]
        if os.fork() == 0:
            del iterator
            raise SystemExit  # an ordinary exit, which writes buffers
        os.wait()
        assert first + list(iterator) == list(range(50_000))
        assert list(dataset) == list(range(50_000))
    """
    assert run(script) == ""
    assert state(prefix) == "complete"


def test_tuning_arguments_are_not_in_the_fingerprint(prefix):
    called: list[int] = []
    slow = stoker.Dataset.range(9).map(str, num_parallel_calls=1).prefetch(2).cache(prefix)
    assert list(slow) == [str(x) for x in range(9)]
    faster = stoker.Dataset.range(9).map(called.append, num_parallel_calls=stoker.AUTOTUNE)
    assert list(faster.prefetch(5).cache(prefix)) == list(slow)
    assert not called


def test_racing_threads_read_the_whole_dataset(prefix):
    barrier = threading.Barrier(6)
    results: list[list[int]] = []

    def run_reader() -> None:
        dataset = stoker.Dataset.range(20_000).cache(prefix)
        barrier.wait(10)
        for _ in range(3):
            results.append(list(dataset))  # noqa: PERF401

    threads = [threading.Thread(target=run_reader) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 18
    assert all(result == list(range(20_000)) for result in results)
    assert state(prefix) == "complete"


def test_racing_processes_read_the_whole_dataset(prefix):
    script = f"""
        import sys, stoker
        dataset = stoker.Dataset.range(30_000).cache({prefix!r})
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(3):
            assert list(dataset) == list(range(30_000))
    """
    processes = [start(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=50)
        assert process.returncode == 0
    assert state(prefix) == "complete"


def test_closing_from_another_thread_keeps_nothing(prefix):
    dataset = stoker.Dataset.range(10).cache(prefix)
    iterator = dataset.iterator()
    next(iterator)
    closer = threading.Thread(target=iterator.close)
    closer.start()
    closer.join()
    assert state(prefix) == "absent"


# ── splits of a service ──────────────────────────────────────────────────────────────────────────
def split_read(dataset: stoker.Dataset, splits: Any) -> list[int]:
    numbers = number(dataset.node)
    stream = open_stream(dataset.node, Context(splits=splits, numbers=numbers))
    found = []
    while chunk := stream.next_chunk(100, 1 << 20):
        found += chunk
    stream.close()
    return found


def test_each_reader_of_splits_has_its_own_store(prefix):
    function = Counted()
    dataset = stoker.Dataset.range(10).map(function).cache(prefix).repeat(2)
    one, other = ScriptedSplits({0: [[(0, 3)]]}), ScriptedSplits({0: [[(5, 7)]]})
    assert split_read(dataset, one) == [0, 1, 4] * 2
    assert split_read(dataset, other) == [25, 36] * 2
    assert function.calls == [0, 1, 2, 5, 6]
    assert state(prefix) == "absent"
    assert list(dataset.take(10)) == squares(10)


def test_a_service_reads_each_element_once_per_epoch(prefix):
    dataset = stoker.Dataset.range(50).map(Counted()).cache(prefix).repeat(3)
    with Service(2) as service:
        dynamic = dataset.distribute(service.target, processing_mode="distributed_epoch")
        assert Counter(read(dynamic)) == dict.fromkeys(squares(50), 3)
        assert state(prefix) == "absent"


def test_workers_that_read_everything_share_one_store(prefix):
    dataset = stoker.Dataset.range(50).cache(prefix)
    with Service(3) as service:
        for _ in range(2):
            off = dataset.apply(distribute("parallel_epochs", service.target))
            assert Counter(read(off)) == dict.fromkeys(range(50), 3)
            assert state(prefix) == "complete"


def start(script: str, **kwargs: Any) -> Any:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
    return subprocess.Popen(command, text=True, **kwargs)


def run(script: str) -> str:
    process = start(script, stdout=subprocess.PIPE)
    output, _ = process.communicate(timeout=50)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, "python", output)
    return str(output)
