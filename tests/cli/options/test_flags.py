"""Words of a command line and variables reach the configuration through typer."""

from typing import Any

import pytest
from typer.testing import CliRunner

import stoker.cli.servers
from stoker.cli.app import app
from stoker.cli.options.values import Values
from stoker.service import DispatcherConfig, WorkerConfig


def configure(monkeypatch: pytest.MonkeyPatch, words: str, **environ: str) -> Any:
    """Return the configuration of the server that `words` start."""
    built: list[Any] = []

    def run_dispatcher(values: Values) -> None:
        built.append(values.build(DispatcherConfig))

    def run_worker(values: Values) -> None:
        built.append(values.build(WorkerConfig))

    monkeypatch.setattr(stoker.cli.servers, "run_dispatcher", run_dispatcher)
    monkeypatch.setattr(stoker.cli.servers, "run_worker", run_worker)
    result = CliRunner().invoke(app, words.split(), env=environ)
    assert (result.output, result.exit_code) == ("", 0)
    return built[0]


def test_flags_of_every_type_are_read(monkeypatch):
    words = "dispatcher --insecure --worker-addresses a,b --worker-addresses c --port=0"
    config = configure(monkeypatch, f"{words} --worker-timeout-ms 2min --job-gc-timeout-ms -1")
    assert (config.insecure, config.worker_addresses, config.port) == (True, ["a", "b", "c"], 0)
    assert (config.worker_timeout_ms, config.job_gc_timeout_ms) == (120_000, -1)


def test_variables_are_read_without_flags(monkeypatch):
    config = configure(
        monkeypatch,
        "worker",
        STOKER_DISPATCHER_ADDRESS="host:5050",
        STOKER_WORKER_TAGS="a,b",
        STOKER_INSECURE="yes",
        STOKER_BUFFER_BYTES="1MiB",
    )
    assert (config.dispatcher_address, config.worker_tags) == ("host:5050", ["a", "b"])
    assert (config.insecure, config.buffer_bytes) == (True, 1 << 20)


def test_flags_precede_variables(monkeypatch):
    environ = {
        "STOKER_WORKER_TAGS": "a",
        "STOKER_INSECURE": "1",
        "STOKER_DISPATCHER_ADDRESS": "h:1",
    }
    config = configure(monkeypatch, "worker --tags b --no-insecure --dispatcher h:2", **environ)
    assert (config.worker_tags, config.insecure, config.dispatcher_address) == (["b"], False, "h:2")


def test_aliases_are_flags(monkeypatch):
    words = "worker --dispatcher h:1 --grace 3 --cross-trainer-cache-bytes 2GB"
    config = configure(monkeypatch, words)
    assert config.shutdown_quiet_period_ms == 3000
    assert config.cross_trainer_cache_size_bytes == 2 * 10**9


def test_an_alias_and_its_name_end_with_code_2(monkeypatch):
    monkeypatch.setattr(stoker.cli.servers, "run_worker", lambda values: None)
    words = ["worker", "--dispatcher", "h:1", "--dispatcher-address", "h:1"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert result.stderr == (
        "stoker: --dispatcher-address and --dispatcher are both given; give one of them\n"
    )
