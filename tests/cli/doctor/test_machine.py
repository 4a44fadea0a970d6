"""Checks of the machine that the doctor runs on."""

from stoker.cli.doctor.findings import Level
from stoker.cli.doctor.machine import check_machine
from tests.cli.doctor.staging import healthy_machine, troubles


def test_few_open_files():
    assert troubles(check_machine(healthy_machine(open_files=1024), 1000)) == []
    few = healthy_machine(open_files=256)
    assert troubles(check_machine(few, 2)) == [(Level.WARNING, "few-open-files")]
    assert troubles(check_machine(few, 100)) == [(Level.FAULT, "few-open-files")]


def test_a_small_dev_shm_concerns_only_pytorch():
    facts = {"dev_shm_bytes": 64 << 20}
    with_torch = healthy_machine(**facts, modules=frozenset({"torch"}))
    [found] = check_machine(with_torch, 1)
    assert (found.level, found.name) == (Level.WARNING, "small-dev-shm")
    assert "/dev/shm has 64 MiB" in found.seen
    assert check_machine(healthy_machine(**facts, modules=frozenset()), 1) == []
