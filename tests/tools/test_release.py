"""A release: what is checked before, what is built, and that the same sources give the same bytes."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tools import release
from tracker import __version__

ROOT = Path(__file__).parents[2]
NEW = "7.1.0"
CHANGELOG = "# Changelog\n\n## {} - {}\n\n### Upgrade notes\n\n- None.\n"


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@example", *words], check=True
    )


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that is ready for version NEW."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "t")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "t@example")
    root = tmp_path / "checkout"
    (root / "tracker").mkdir(parents=True)
    (root / "tracker/__init__.py").write_text(f'__version__ = "{NEW}"\n')
    (root / "CHANGELOG.md").write_text(CHANGELOG.format(NEW, "unreleased"))
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "first")
    return root


def test_a_checkout_that_is_ready_has_no_problems_and_gets_its_day(checkout: Path) -> None:
    assert release.problems(NEW, checkout) == []
    release.date_changelog(NEW, "2030-01-31", checkout)
    assert (checkout / "CHANGELOG.md").read_text() == CHANGELOG.format(NEW, "2030-01-31")
    assert release.problems(NEW, checkout) == []  # and the day is committed


def test_a_checkout_that_is_not_ready_is_refused_with_every_reason(checkout: Path) -> None:
    git(checkout, "tag", f"v{NEW}")
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    (checkout / "tracker/__init__.py").write_text('__version__ = "7.0.9"\n')
    reasons = "\n".join(release.problems(NEW, checkout))
    for part in ("another version", "does not begin with", "has changes", "tag v7.1.0 exists"):
        assert part in reasons
    assert "no version such as" in "\n".join(release.problems("7.1", checkout))


def test_the_changelog_of_this_version_is_short_and_begins_with_upgrade_notes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    sections = re.findall(r"^## (\S+)", text, re.MULTILINE)
    assert sections[0] == __version__
    for section in text.split("\n## ")[1:]:
        assert section.split("\n### ")[1].startswith("Upgrade notes\n")


def test_wheel_and_source_distribution_are_the_same_bytes_again(tmp_path: Path) -> None:
    """Built from two copies, in folders of other names, at other times and with another umask."""
    variables = {"TRACKER_COMMIT": "0123456789ab", "SOURCE_DATE_EPOCH": "1800000000"}
    built = []
    for name, mode in (("one", 0o600), ("two", 0o644)):
        sources = tmp_path / name
        sources.mkdir()
        for each in (
            "tracker",
            "docs",
            "pyproject.toml",
            "hatch_build.py",
            "redis.conf",
            "README.md",
            "LICENSE",
        ):
            copy = shutil.copytree if (ROOT / each).is_dir() else shutil.copyfile
            copy(ROOT / each, sources / each)
        shutil.copyfile(ROOT / "CHANGELOG.md", sources / "CHANGELOG.md")
        (sources / "tracker/bittorrent.py").chmod(mode)
        folder = tmp_path / f"dist-{name}"
        release.build_python(sources, folder, variables)
        built.append({each.name: each.read_bytes() for each in folder.iterdir()})
    assert built[0] == built[1]
    assert sorted(built[0]) == [
        f"swarmkeeper-{__version__}-py3-none-any.whl",
        f"swarmkeeper-{__version__}.tar.gz",
    ]
    with ZipFile(folder / f"swarmkeeper-{__version__}-py3-none-any.whl") as wheel:
        packed = set(wheel.namelist())
    with tarfile.open(folder / f"swarmkeeper-{__version__}.tar.gz") as archive:
        packed &= {name.partition("/")[2] for name in archive.getnames()}
    files = [each.relative_to(ROOT) for each in (ROOT / "tracker").rglob("*") if each.is_file()]
    assert {str(each) for each in files if "__pycache__" not in each.parts} <= packed


def test_the_list_of_components_names_every_locked_dependency(tmp_path: Path) -> None:
    listed = json.loads(json.dumps(release.components(ROOT, NEW, 1_800_000_000)))
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.5")
    assert listed["metadata"]["timestamp"] == "2027-01-15T08:00:00Z"
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", listed["serialNumber"])
    named = [each["purl"] for each in listed["components"]]
    lines = (ROOT / "requirements/site.txt").read_text().splitlines()
    pins = [line.split()[0].rstrip(";") for line in lines if re.match(r"[a-z]", line)]
    assert set(named) == {f"pkg:pypi/{pin.replace('==', '@')}" for pin in pins} and len(named) > 20
    assert listed["dependencies"] == [{"ref": f"pkg:pypi/swarmkeeper@{NEW}", "dependsOn": named}]


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    release.write_checksums(tmp_path)
    release.write_checksums(tmp_path)  # not of itself
    done = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "a: OK\nb: OK\n"


def test_the_command_line_asks_for_a_version() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/release.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "name a version" in done.stderr
