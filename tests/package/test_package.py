"""The sdist and the wheel are complete, and a fresh environment with the wheel alone works."""

import email
import email.message
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from stoker.version import VERSION
from tests.docs.session import ROOT
from tests.package.interpreters import interpreters

INTERPRETERS = interpreters()

READ_BY_A_CLUSTER = """
import stoker

with stoker.LocalCluster(num_workers=2) as cluster:
    total = sum(stoker.Dataset.range(100).map(lambda i: i * i).distribute(cluster))
assert total == 328350, total
assert "site-packages" in stoker.__file__, stoker.__file__
print(stoker.__version__)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel, built as for a release."""
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    [path] = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(f"stoker-{VERSION}.dist-info/METADATA"))


@pytest.mark.timeout(600)
def test_twine_accepts_the_sdist_and_the_wheel(dist: Path):
    _run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())
    assert {path.name for path in dist.iterdir()} == {
        f"stoker-{VERSION}.tar.gz",
        f"stoker-{VERSION}-py3-none-any.whl",
    }


def test_metadata_tells_an_index_what_stoker_is(metadata: email.message.Message):
    links = dict(link.split(", ") for link in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Changelog"} <= set(links)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] or metadata["Author-email"]
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    assert {f"Programming Language :: Python :: {minor}" for minor in INTERPRETERS} <= set(
        classifiers
    )


def test_extras_of_error_messages_exist(metadata: email.message.Message):
    extras = set(metadata.get_all("Provides-Extra", []))
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"stoker\[([\w,-]+)\]", source))
    assert named
    assert named <= extras


def test_wheel_has_all_of_the_package_and_nothing_else(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    listed = _run("git", "-C", ROOT, "ls-files", "src").split()
    assert names == {name.removeprefix("src/") for name in listed}
    assert "stoker/py.typed" in names


def test_sdist_has_what_a_packager_needs(dist: Path):
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "tests/conftest.py"} <= names
    assert not any(name.startswith((".venv", "dist/", "build/")) for name in names)


@pytest.fixture(scope="module", params=list(INTERPRETERS.values()), ids=list(INTERPRETERS))
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of commands of a fresh virtual environment with the wheel, for each Python."""
    folder = tmp_path_factory.mktemp("venv")
    _run(request.param, "-m", "venv", folder)
    _run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    return folder / "bin"


@pytest.mark.timeout(300)
def test_installed_wheel_reads_from_a_cluster(installed: Path, tmp_path: Path):
    script = tmp_path / "read.py"
    script.write_text(READ_BY_A_CLUSTER)
    assert _run(installed / "python", "-W", "error", script, cwd=tmp_path).strip() == VERSION


def test_installed_wheel_has_the_command(installed: Path, tmp_path: Path):
    assert "--directory" in _run(installed / "stoker", "demo", "--help", cwd=tmp_path)
    assert VERSION in _run(installed / "stoker", "--version", cwd=tmp_path)


@pytest.mark.timeout(600)
def test_demo_of_an_installed_wheel_delivers_every_image(wheel: Path, tmp_path: Path):
    *_, newest = INTERPRETERS.values()
    _run(newest, "-m", "venv", tmp_path / "venv")
    commands = tmp_path / "venv" / "bin"
    _run(commands / "python", "-m", "pip", "install", "--quiet", f"{wheel}[demo]")
    printed = _run(commands / "stoker", "demo", cwd=tmp_path)
    assert re.search(r"repeated\W+0\b.*", printed), printed


def test_dockerfile_needs_the_package_index_only():
    """Nothing here builds it: an image needs a Docker daemon and a registry."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line for line in lines if line.startswith("RUN ")]
    assert steps
    assert not [step for step in steps if re.search(r"apt-get|curl|wget|git |https?:", step)]
    assert any(re.search(r"pip install .*\.whl", step) for step in steps)


def test_versions_agree():
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(\d\S+)\]", changes, re.MULTILINE)[0] == VERSION
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    """Return the output of a command, which must succeed, without this checkout on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
