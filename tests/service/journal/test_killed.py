"""A process that appends is killed at random moments."""

import random

import pytest

from tests.service.journal.processes import Child, append_for_ever, count_units, start_server
from tests.service.journal.recording import opened

pytestmark = pytest.mark.slow

KILLS = 25


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server()


@pytest.mark.parametrize("kind", ["local", "directory"])
def test_what_was_reported_survives_kill_9(tmp_path, kind):
    work_dir = str(tmp_path / "work") if kind == "local" else f"directory://{tmp_path}/work"
    dice = random.Random(7)
    count = 0
    for kill in range(KILLS):
        child = Child(append_for_ever, work_dir, kill)
        reported = [child.receive() for _ in range(dice.randrange(1, 60))]
        child.kill()
        reported += child.receive_all()
        child.close()
        assert reported == sorted(set(reported))
        with opened(work_dir) as journal:
            assert journal.journal.position >= reported[-1] > count
            count = journal.journal.position
            # Its units are in order and without a gap, behind those that the snapshot has counted.
            snapshot = [part for part in journal.content if b" " not in part]
            units = journal.content[len(snapshot) :]
            assert list(count_units(snapshot, units)) == [b"%d" % count]
