"""The lock files pin exact versions with hashes, name no index, and cover the requirements of pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = [*sorted((ROOT / "requirements").glob("*.txt")), ROOT / "tests/frontends/work/libraries.txt"]
PIN = re.compile(r"^([a-z0-9.-]+)==([^\s;]+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements" / name).read_text(encoding="utf-8")))


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[><=;\s\[]", line)[0].lower() for line in requirements}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_pins_everything_by_hash_and_names_no_index(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    requirements = [line for line in text.replace("\\\n", " ").splitlines() if line[:1] not in ("#", " ", "")]
    assert requirements
    assert all(PIN.match(line) and "--hash=sha256:" in line for line in requirements)
    assert "://" not in text
    assert not re.search(r"^\s*-", text.replace("--hash=", ""), re.MULTILINE), (
        "a lock contains an option of pip, such as an index"
    )


def test_the_locks_cover_the_requirements_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = names_of(project["project"]["dependencies"])
    assert needed <= set(pins("run.txt"))
    extras = {name: names_of(each) for name, each in project["project"]["optional-dependencies"].items()}
    assert needed | extras["seed"] <= set(pins("seed.txt"))
    assert needed | extras["site"] <= set(pins("site.txt"))
    assert needed | extras["seed"] | extras["site"] | extras["dev"] <= set(pins("dev.txt"))
    assert names_of(project["build-system"]["requires"]) <= set(pins("build.txt"))


def test_the_locks_agree_with_each_other() -> None:
    """All are installed into the same environment."""
    dev = pins("dev.txt")
    for name, version in {**pins("build.txt"), **pins("run.txt"), **pins("seed.txt"), **pins("site.txt")}.items():
        assert dev.get(name, version) == version


def test_a_server_needs_no_library_of_volunteers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert not names_of(project["project"]["optional-dependencies"]["seed"]) & set(pins("run.txt"))


def test_every_installation_requires_hashes() -> None:
    """Every line that installs a lock contains --require-hashes, itself or through the Makefile's LOCKED."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    assert re.search(r"^LOCKED := .*--require-hashes", makefile, re.MULTILINE)
    text = makefile + (ROOT / "deploy" / "image" / "install.sh").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.search(r" -r \"?requirements/", line)]
    assert len(lines) >= 6
    assert not [line for line in lines if "--require-hashes" not in line and "$(LOCKED)" not in line]
