"""Refusals of a configuration file name the file, the key, and what may be meant."""

import pytest

from stoker.cli.options.sources import read_file
from stoker.cli.options.units import OptionError


def refusal(path) -> str:
    with pytest.raises(OptionError) as caught:
        read_file(str(path))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "port = 1",
            "the key port is in no table; write it below [dispatcher] or [worker]",
        ),
        (
            "[workers]",
            "there is no table [workers], only [dispatcher] and [worker]; did you mean worker?",
        ),
        ("dispatcher = 3", "dispatcher must be a table, [dispatcher], got 3"),
        (
            "[dispatcher]\nworker-timeout-ms = 3",
            "[dispatcher] has no key worker-timeout-ms; did you mean worker_timeout_ms?",
        ),
        ("[dispatcher]\nxyz = 3", "[dispatcher] has no key xyz"),
        (
            '[worker]\ngrace = "3s"',
            "[worker] has no key grace; did you mean shutdown_quiet_period_ms?",
        ),
        (
            "[worker]\nworker_timeout_ms = 3",
            "[worker] has no key worker_timeout_ms; it is a key of [dispatcher]",
        ),
        ("[dispatcher]\nport = true", "[dispatcher] port: it must be an integer, got true"),
        ('[dispatcher]\nport = "1"', "[dispatcher] port: it must be an integer, got '1'"),
        ("[dispatcher]\nport = 1.0", "[dispatcher] port: it must be an integer, got 1.0"),
        ("[dispatcher]\nhost = 1", "[dispatcher] host: it must be a string, got 1"),
        ("[worker]\ninsecure = 1", "[worker] insecure: it must be a boolean, got 1"),
        (
            '[worker]\nworker_tags = "a"',
            "[worker] worker_tags: it must be an array of strings, got 'a'",
        ),
        (
            "[worker]\nworker_tags = [1]",
            "[worker] worker_tags: it must be an array of strings, got [1]",
        ),
        (
            "[worker]\nbuffer_bytes = 1.5",
            '[worker] buffer_bytes: it must be an integer or a string such as "64MiB", got 1.5',
        ),
        (
            "[worker]\npeer_timeout_ms = [1]",
            '[worker] peer_timeout_ms: it must be an integer or a string such as "10s", got [1]',
        ),
        (
            '[worker]\nlog_level = "loud"',
            "[worker] log_level: there is no 'loud'; choose from debug, info, warning, error",
        ),
    ],
)
def test_a_refusal_names_file_key_and_near_matches(tmp_path, text, message):
    path = tmp_path / "stoker.toml"
    path.write_text(text)
    assert refusal(path) == f"{path}: {message}"


def test_a_file_that_is_not_toml_is_refused_with_its_line(tmp_path):
    path = tmp_path / "stoker.toml"
    path.write_text("[dispatcher]\nport = \n")
    assert refusal(path) == f"{path} is not TOML: Invalid value (at line 2, column 8)"
    path.write_bytes(b"\xff")
    assert refusal(path).startswith(f"{path} is not TOML: 'utf-8' codec can't decode byte 0xff")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    path = tmp_path / "none.toml"
    assert refusal(path) == f"cannot read {path}: No such file or directory"
    assert refusal(tmp_path) == f"cannot read {tmp_path}: Is a directory"


def test_an_empty_file_sets_nothing(tmp_path):
    path = tmp_path / "stoker.toml"
    path.touch()
    assert read_file(str(path)) == {}
