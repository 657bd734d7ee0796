"""A release: what is checked before, what is built, and that the same sources give the same bytes."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.deploy.test_built_image import Buildah
from tools import release
from tracker import __version__

ROOT = Path(__file__).parents[2]
NEW = "7.1.0"
CHANGELOG = "# Changelog\n\n## {} - {}\n\n### Upgrade notes\n\n- None.\n"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@example", *words], check=True)


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


SOURCES = (
    "tracker", "docs", "pyproject.toml", "hatch_build.py", "redis.conf", "README.md", "LICENSE", "CHANGELOG.md",
)  # fmt: skip


def test_wheel_and_source_distribution_are_the_same_bytes_again(tmp_path: Path) -> None:
    """Built from two copies, in folders of other names, at other times and with another umask."""
    variables = {"TRACKER_COMMIT": "0123456789ab", "SOURCE_DATE_EPOCH": "1800000000"}
    one, again = tmp_path / "one", tmp_path / "again"
    for sources, mode in ((one, 0o600), (again / "copy", 0o644)):
        sources.mkdir(parents=True)
        for each in SOURCES:
            copy = shutil.copytree if (ROOT / each).is_dir() else shutil.copyfile
            copy(ROOT / each, sources / each)
        (sources / "tracker/bittorrent.py").chmod(mode)
    folder = tmp_path / "dist"
    release.build_python(one, folder, variables)
    release.check_reproducible(folder, again, variables)
    assert sorted(each.name for each in folder.iterdir()) == [
        f"swarmkeeper-{__version__}-py3-none-any.whl",
        f"swarmkeeper-{__version__}.tar.gz",
    ]
    with ZipFile(folder / f"swarmkeeper-{__version__}-py3-none-any.whl") as wheel:
        packed = set(wheel.namelist())
    with tarfile.open(folder / f"swarmkeeper-{__version__}.tar.gz") as archive:
        packed &= {name.partition("/")[2] for name in archive.getnames()}
    files = [each.relative_to(ROOT) for each in (ROOT / "tracker").rglob("*") if each.is_file()]
    assert {str(each) for each in files if "__pycache__" not in each.parts} <= packed
    (again / "copy/LICENSE").write_text("another")
    with pytest.raises(SystemExit, match=r"whl is not reproducible: two builds differ"):
        release.check_reproducible(folder, again, variables)


def test_the_list_of_components_is_valid_and_names_every_dependency() -> None:
    listed = json.loads(json.dumps(release.components(ROOT, NEW, 1_800_000_000)))
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.5")
    assert listed["metadata"]["timestamp"] == "2027-01-15T08:00:00Z"
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", listed["serialNumber"])
    named = [each["purl"] for each in listed["components"]]
    lines = (ROOT / "requirements/site.txt").read_text().splitlines()
    pins = [line.split()[0].rstrip(";") for line in lines if re.match(r"[a-z]", line)]
    of_browser = {"pkg:npm/htmx.org@2.0.11", "pkg:npm/uplot@1.6.32"}
    assert set(named) - of_browser == {f"pkg:pypi/{pin.replace('==', '@')}" for pin in pins}
    assert set(named) > of_browser and len(named) > 20
    assert is_cyclonedx(json.dumps(listed))
    assert not is_cyclonedx(json.dumps(listed | {"components": [{"name": "of no type"}]}))
    assert listed["dependencies"] == [{"ref": f"pkg:pypi/swarmkeeper@{NEW}", "dependsOn": named}]


def is_cyclonedx(text: str) -> bool:
    # Each process of a run would take two seconds for these.
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    return JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    release.write_checksums(tmp_path)
    release.write_checksums(tmp_path)  # not of itself
    done = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "a: OK\nb: OK\n"


@pytest.fixture
def buildah(tmp_path: Path) -> Buildah | None:
    """With the base of test_built_image.py, where there is what makes it."""
    if os.getuid() != 0 or not all(map(shutil.which, ("buildah", "debootstrap"))):
        return None
    (tmp_path / "buildah").mkdir()
    return Buildah(tmp_path / "buildah")


def copied_checkout(root: Path) -> Path:
    """A repository of its own with the files of this checkout as they are now."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter((lambda name: (ROOT / name).is_file()), listed.stdout.strip("\0").split("\0")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    git(root, "init", "--quiet")
    git(root, "config", "user.name", "t")
    git(root, "config", "user.email", "t@example")
    return root


def released(root: Path, *words: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, root / "tools/release.py", *words]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.once
def test_a_release_from_end_to_end(buildah: Buildah | None, tmp_path: Path) -> None:
    """In a copy of this checkout whose checks fail at first."""
    root = copied_checkout(tmp_path / "checkout")
    version, checks = __version__, root / ".ci/run"
    own = checks.read_text("utf-8")
    checks.write_text("#!/bin/sh\nexit 1\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "first")
    variables, options = (buildah.variables, ("--base", buildah.base())) if buildah else ({}, ())
    done = released(root, version, *options, variables=variables)
    assert done.returncode == 1 and done.stderr == "release: .ci/run failed\n"
    assert output(root, "tag") == "" and not (root / "dist").exists()

    checks.write_text(own)
    git(root, "commit", "--quiet", "--message", "second", ".ci/run")
    done = released(root, version, "--checked", *options, variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"dist/ has version {version}. Push the commit and the tag v{version}.\n")
    assert output(root, "status", "--porcelain") == ""
    assert output(root, "rev-parse", f"v{version}^{{commit}}") == output(root, "rev-parse", "HEAD")
    assert output(root, "cat-file", "-t", f"v{version}") == "tag"
    assert f"## {version} - unreleased" not in (root / "CHANGELOG.md").read_text("utf-8")
    check_files(root / "dist", output(root, "rev-parse", "--short=12", "HEAD"), has_image=bool(buildah))
    done = released(root, version, "--checked", variables=variables)
    assert done.stderr == f"release: the tag v{version} exists\n"


def output(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def check_files(dist: Path, commit: str, *, has_image: bool) -> None:
    stem = f"swarmkeeper-{__version__}"
    expected = {"SHA256SUMS", f"{stem}.cdx.json", f"{stem}-py3-none-any.whl", f"{stem}.tar.gz"}
    expected |= {f"{stem}-image.tar"} if has_image else set()
    files = {each.name for each in dist.iterdir()}
    assert {each for each in files if not each.endswith(".deb")} == expected
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True)
    assert len((dist / "SHA256SUMS").read_text().splitlines()) == len(files) - 1
    with ZipFile(dist / f"{stem}-py3-none-any.whl") as wheel:
        assert wheel.read("tracker/commit.txt").decode() == f"{commit}\n"
    listed = (dist / f"{stem}.cdx.json").read_text("utf-8")
    assert is_cyclonedx(listed)
    for package in dist.glob("*.deb"):
        shown = subprocess.run(
            ["dpkg-deb", "--field", package, "Package", "Version"], capture_output=True, text=True, check=True
        )
        assert shown.stdout == f"Package: swarmkeeper\nVersion: {__version__}\n"
    if has_image:
        with tarfile.open(dist / f"{stem}-image.tar") as archive:
            manifest = archive.extractfile("manifest.json")
            assert manifest
            (image,) = json.load(manifest)
            settings = archive.extractfile(image["Config"])
            assert settings
            labels = json.load(settings)["config"]["Labels"]
        assert {name.rpartition("/")[2] for name in image["RepoTags"]} == {f"swarmkeeper:{__version__}"}
        assert labels["org.opencontainers.image.revision"] == commit


def test_a_folder_that_has_files_is_not_built_into(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    done = released(ROOT, "--build", str(tmp_path), variables={})
    assert done.returncode == 1 and done.stderr == f"release: {tmp_path} is not empty\n"
    assert (tmp_path / "mine").read_text() == "kept"


def test_the_command_line_asks_for_a_version() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/release.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "name a version" in done.stderr
