"""Values of flags, variables and the file, their priority, and errors that name their origin."""

import re
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.options.options import LogFields, ProcessFields
from stoker.cli.options.units import OptionError
from stoker.cli.options.values import Values, read_values
from stoker.service import DispatcherConfig, WorkerConfig


def values(table: str, path: Path | None = None, environ: Any = None, **flags: Any) -> Values:
    return read_values(table, flags, None if path is None else str(path), environ or {})


def dispatcher(path: Any = None, environ: Any = None, **flags: Any) -> DispatcherConfig:
    return values("dispatcher", path, environ, **flags).build(DispatcherConfig)


def worker(path: Path | None = None, environ: Any = None, **flags: Any) -> WorkerConfig:
    flags = {"dispatcher_address": "host:5050", **flags}
    return values("worker", path, environ, **flags).build(WorkerConfig)


def write(directory: Path, text: str) -> Path:
    path = directory / "stoker.toml"
    path.write_text(text)
    return path


CASES = [
    ("worker_timeout_ms", "20s", '"20s"', 20_000),
    ("worker_timeout_ms", "1500", "1500", 1500),
    ("job_gc_timeout_ms", "-1", "-1", -1),
    ("port", "80", "80", 80),
    ("gc_dynamic_sharding_jobs", "yes", "true", True),
    ("work_dir", "s3://journal", '"s3://journal"', "s3://journal"),
    ("worker_addresses", "a:1,b", '["a:1", "b"]', ["a:1", "b"]),
]


@pytest.mark.parametrize(("name", "text", "toml", "value"), CASES)
def test_each_way_gives_the_same_value(tmp_path, name, text, toml, value):
    flag: Any = True if text == "yes" else [text] if name == "worker_addresses" else text
    assert getattr(dispatcher(**{name: flag}), name) == value
    assert getattr(dispatcher(environ={f"STOKER_{name.upper()}": text}), name) == value
    path = write(tmp_path, f"[dispatcher]\n{name} = {toml}\n")
    assert getattr(dispatcher(path), name) == value


def test_flags_precede_variables_which_precede_the_file(tmp_path):
    path = write(tmp_path, '[dispatcher]\nport = 1\nhost = "::1"\npeer_timeout_ms = "3s"')
    environ = {"STOKER_PORT": "2", "STOKER_HOST": "127.0.0.1"}
    config = dispatcher(path, environ, port="3")
    assert (config.port, config.host, config.peer_timeout_ms) == (3, "127.0.0.1", 3000)


def test_a_flag_turns_a_variable_off():
    assert dispatcher(environ={"STOKER_INSECURE": "1"}).insecure
    assert not dispatcher(environ={"STOKER_INSECURE": "1"}, no_insecure=True).insecure


def test_defaults_are_those_of_the_config_but_for_port_and_grace():
    assert dispatcher() == DispatcherConfig(port=5050)
    assert worker() == WorkerConfig("host:5050", shutdown_quiet_period_ms=25_000)
    assert values("worker").build(ProcessFields) == ProcessFields(1)
    assert values("worker").build(LogFields) == LogFields("info", "text")


def test_an_empty_variable_is_not_set():
    assert dispatcher(environ={"STOKER_WORK_DIR": ""}).work_dir is None


def test_one_file_serves_both_servers(tmp_path):
    path = write(
        tmp_path,
        '[dispatcher]\nport = 6000\n[worker]\nbuffer_bytes = "1MiB"\nworker_tags = ["a,b"]',
    )
    assert dispatcher(path).port == 6000
    assert (worker(path).buffer_bytes, worker(path).worker_tags) == (1 << 20, ["a,b"])
    assert worker(path).port == 0


@pytest.mark.parametrize(
    ("alias", "written", "name", "value"),
    [
        ("tags", ["a,b", "c"], "worker_tags", ["a", "b", "c"]),
        ("cross_trainer_cache_bytes", "1GiB", "cross_trainer_cache_size_bytes", 1 << 30),
        ("grace", "2.5", "shutdown_quiet_period_ms", 2500),
        ("grace", "300ms", "shutdown_quiet_period_ms", 300),
    ],
)
def test_an_alias_is_another_flag_of_its_option(alias, written, name, value):
    assert getattr(worker(**{alias: written}), name) == value


def test_a_number_that_no_message_carries_names_its_origin(tmp_path):
    path = write(tmp_path, f"[worker]\nbuffer_bytes = {10**29}")
    message = f"{re.escape(str(path))}: \\[worker\\] buffer_bytes: `buffer_bytes` must be below"
    with pytest.raises(OptionError, match=message):
        worker(path)
    with pytest.raises(OptionError, match=r"^--buffer-bytes: `buffer_bytes` must be below"):
        worker(buffer_bytes="99999999TiB")
    with pytest.raises(OptionError, match=r"^--job-gc-timeout-ms: `job_gc_timeout_ms` must be"):
        dispatcher(job_gc_timeout_ms="999999999999999h")


def test_an_empty_entry_of_a_list_names_its_origin():
    with pytest.raises(OptionError, match=r"^STOKER_WORKER_TAGS: 'a,b,' has an empty entry$"):
        worker(environ={"STOKER_WORKER_TAGS": "a,b,"})


def test_an_alias_and_its_name_are_not_both_given():
    message = "--dispatcher-address and --dispatcher are both given; give one of them"
    with pytest.raises(OptionError, match=message):
        worker(dispatcher="host:1", dispatcher_address="host:1")


def test_a_missing_address_says_the_three_ways():
    with pytest.raises(OptionError) as caught:
        values("worker").build(WorkerConfig)
    assert str(caught.value) == (
        "dispatcher_address is missing: pass --dispatcher-address, set STOKER_DISPATCHER_ADDRESS, "
        "or write the key dispatcher_address in [worker] of a file for --config"
    )


@pytest.mark.parametrize(
    ("flags", "environ", "toml", "message"),
    [
        ({"port": "x"}, {}, "", "--port: 'x' is not a whole number"),
        ({"log_level": "loud"}, {}, "", "--log-level: there is no 'loud'; choose from debug, "),
        ({}, {"STOKER_PORT": "70000"}, "", "STOKER_PORT: `port` must be in [0, 65535], got 70000"),
        ({}, {"STOKER_INSECURE": "oui"}, "", "STOKER_INSECURE: 'oui' is neither true nor false"),
        ({}, {"STOKER_WORKER_TIMEOUT_MS": "1MB"}, "", "STOKER_WORKER_TIMEOUT_MS: '1MB' is not a "),
        ({}, {}, "worker_timeout_ms = 0", "FILE: [dispatcher] worker_timeout_ms: `worker_timeout_"),
        ({}, {}, 'host = "0.0.0.0"', "FILE: [dispatcher] host: `host` '0.0.0.0' can be reached"),
        ({"protocol": "http"}, {}, "", "--protocol: there is no 'http'; choose from grpc"),
    ],
)
def test_a_wrong_value_names_its_origin(tmp_path, flags, environ, toml, message):
    path = write(tmp_path, f"[dispatcher]\n{toml}")
    with pytest.raises(OptionError) as caught:
        dispatcher(path, environ, **flags)
    assert str(caught.value).startswith(message.replace("FILE", str(path)))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("localhost:", "`dispatcher_address` 'localhost:' has no port; write 'localhost:port'"),
        ("", "`dispatcher_address` must not be empty"),
        ("http://a:1", "`dispatcher_address` 'http://a:1' has the protocol of web servers, and "),
        ("grp://a:1", "No credentials factory has been registered for protocol grp: "),
        ("grpc://a:99999", "`dispatcher_address` 'a:99999' has the port 99999, which is not in "),
    ],
)
def test_an_address_that_is_none_names_its_origin(address, message):
    with pytest.raises(OptionError) as caught:
        worker(dispatcher_address=address)
    assert str(caught.value).startswith(f"--dispatcher-address: {message}")


def test_a_missing_address_names_a_variable_with_a_typing_error():
    with pytest.raises(OptionError) as caught:
        values("worker", environ={"STOKER_DISPATCHER_ADRESS": "host:1"}).build(WorkerConfig)
    assert str(caught.value).endswith(
        "the environment variable STOKER_DISPATCHER_ADRESS has no effect: it is no option of "
        "stoker; did you mean STOKER_DISPATCHER_ADDRESS?"
    )


@pytest.mark.parametrize("empty", [None, False, (), []])
def test_an_empty_flag_leaves_the_variable(empty):
    environ = {"STOKER_WORKER_TAGS": "a", "STOKER_INSECURE": "yes"}
    config = worker(environ=environ, worker_tags=empty, tags=empty, insecure=empty)
    assert (config.worker_tags, config.insecure) == (["a"], True)


def test_a_negative_grace_is_refused():
    message = "--grace: `shutdown_quiet_period_ms` must not be negative, got -1"
    with pytest.raises(OptionError, match=message):
        worker(grace="-1")
