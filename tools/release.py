"""Makes a release from the checked-out commit.

    python tools/release.py 1.0.0              checks, dates the changelog, builds into dist/, and tags v1.0.0
    python tools/release.py 1.0.0 --checked    the same for a commit that `.ci/run` has passed
    python tools/release.py --build FOLDER     only builds, from what is committed

The checks are a clean checkout, the version of the package, a section of the changelog that begins with upgrade notes,
and `.ci/run`. A release is a wheel and a source distribution, which are the same bytes whenever and wherever they are
built (they are built twice), a Debian package, an image, a list of components (CycloneDX) and checksums. `--base`
names another base of the image than the Dockerfile's. Nothing is pushed.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
_PIN = re.compile(r"^([a-z0-9.-]+)==([^\s;\\]+)", re.MULTILINE)
_BROWSER_FILE = re.compile(r"(\w+)-([\d.]+)\.min\.js")
_ON_NPM = {"htmx": "htmx.org", "uplot": "uplot"}
_SECTION = r"^## {} - (\S+)\n\n### Upgrade notes\n"


def run(*command: str | Path, cwd: Path = ROOT, variables: Mapping[str, str] | None = None) -> str:
    """What the command prints. Raises SystemExit if it fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(variables or {})}, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"release: {' '.join(map(str, command))} failed")
    return done.stdout.strip()


def problems(version: str, root: Path = ROOT) -> list[str]:
    """Why the checkout is no release of this version."""
    found = []
    if not re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", version):
        found.append(f"{version} is no version such as 1.0.0")
    if f'__version__ = "{version}"' not in (root / "tracker/__init__.py").read_text("utf-8"):
        found.append(f"tracker/__init__.py has another version than {version}")
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    newest = re.search(r"^## .*", changelog, re.MULTILINE)
    if not re.search(_SECTION.format(re.escape(version)), changelog, re.MULTILINE) or not (
        newest and newest[0].startswith(f"## {version} ")
    ):
        found.append(f"CHANGELOG.md does not begin with a section `## {version} - …` and its upgrade notes")
    if run("git", "status", "--porcelain", cwd=root):
        found.append("the checkout has changes")
    if run("git", "tag", "--list", f"v{version}", cwd=root):
        found.append(f"the tag v{version} exists")
    return found


def date_changelog(version: str, day: str, root: Path = ROOT) -> None:
    """Replaces `unreleased` by the day, and commits that."""
    page = root / "CHANGELOG.md"
    text = page.read_text("utf-8")
    dated = text.replace(f"## {version} - unreleased\n", f"## {version} - {day}\n")
    if dated != text:
        page.write_text(dated, "utf-8")
        run("git", "commit", "--quiet", "--message", f"Release {version}", "CHANGELOG.md", cwd=root)


def build(folder: Path, base: str | None, root: Path = ROOT) -> None:
    """Builds everything from the last commit."""
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    if any(folder.iterdir()):
        sys.exit(f"release: {folder} is not empty")
    commit = run("git", "rev-parse", "--short=12", "HEAD", cwd=root)
    seconds = run("git", "log", "-1", "--format=%ct", cwd=root)
    variables = {"TRACKER_COMMIT": commit, "SOURCE_DATE_EPOCH": seconds}
    with TemporaryDirectory() as scratch:
        sources = Path(scratch) / "sources"
        sources.mkdir()
        run("git", "archive", "--format=tar", f"--output={scratch}/sources.tar", "HEAD", cwd=root)
        run("tar", "--extract", f"--file={scratch}/sources.tar", f"--directory={sources}")
        shutil.copytree(sources, Path(scratch) / "again" / "copy", symlinks=True)
        build_python(sources, folder, variables)
        check_reproducible(folder, Path(scratch) / "again", variables)
        if shutil.which("dpkg-deb"):
            run("sh", "deploy/debian/build.sh", folder, cwd=sources, variables=variables)
        else:
            print("release: no Debian package without dpkg-deb", file=sys.stderr)
        version = version_of(sources)
        build_image(sources, folder, version, commit, base)
        listed = components(sources, version, int(seconds))
    text = json.dumps(listed, indent=2, sort_keys=True)
    (folder / f"swarmkeeper-{version}.cdx.json").write_text(f"{text}\n", "utf-8")
    write_checksums(folder)


def version_of(sources: Path) -> str:
    found = re.search(r'^__version__ = "(.+)"', (sources / "tracker/__init__.py").read_text("utf-8"), re.MULTILINE)
    assert found
    return found[1]


def build_python(sources: Path, folder: Path, variables: Mapping[str, str]) -> None:
    """The source distribution and the wheel."""
    command = (sys.executable, "-m", "hatchling", "build", "--directory", folder)
    run(*command, cwd=sources, variables=variables)


def check_reproducible(folder: Path, again: Path, variables: Mapping[str, str]) -> None:
    """Builds a copy of the sources, in another folder. Raises SystemExit if a byte differs."""
    build_python(again / "copy", again / "dist", variables)
    for second in sorted((again / "dist").iterdir()):
        if (folder / second.name).read_bytes() != second.read_bytes():
            sys.exit(f"release: {second.name} is not reproducible: two builds differ")


def build_image(sources: Path, folder: Path, version: str, commit: str, base: str | None) -> None:
    """An image as an archive that `docker load` reads."""
    archive = folder / f"swarmkeeper-{version}-image.tar"
    name = f"swarmkeeper:{version}"
    given = [f"VERSION={version}", f"REVISION={commit}", *([f"BASE={base}"] if base else [])]
    arguments = [*(word for each in given for word in ("--build-arg", each)), "--tag", name, "."]
    if shutil.which("buildah"):
        run("buildah", "build", *arguments, cwd=sources)
        run("buildah", "push", name, f"docker-archive:{archive}:{name}")
    elif shutil.which("docker"):
        run("docker", "build", *arguments, cwd=sources)
        run("docker", "save", "--output", archive, name)
    else:
        print("release: no image without buildah or docker", file=sys.stderr)


def dependencies(sources: Path) -> list[tuple[str, str, str]]:
    """(URL of the package, name, version) of the locked run-time dependencies and of the browser's libraries."""
    lock = (sources / "requirements/site.txt").read_text("utf-8")
    locked = [(f"pkg:pypi/{name}@{pinned}", name, pinned) for name, pinned in _PIN.findall(lock)]
    files = sorted(each.name for each in (sources / "tracker/admin/static/vendor").iterdir())
    browser = [(_ON_NPM[found[1]], found[2]) for found in map(_BROWSER_FILE.fullmatch, files) if found]
    return locked + [(f"pkg:npm/{name}@{version}", name, version) for name, version in browser]


def components(sources: Path, version: str, seconds: int) -> dict[str, Any]:
    """The dependencies in the format of CycloneDX 1.5."""
    own = f"pkg:pypi/swarmkeeper@{version}"
    found = dependencies(sources)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own)}",
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "swarmkeeper",
                "version": version,
                "purl": own,
                "licenses": [{"expression": "MIT AND 0BSD AND ISC"}],
            },
        },
        "components": [
            {"type": "library", "bom-ref": purl, "name": name, "version": pinned, "purl": purl}
            for purl, name, pinned in found
        ],
        "dependencies": [{"ref": own, "dependsOn": [purl for purl, *_ in found]}],
    }


def write_checksums(folder: Path) -> None:
    files = sorted(each for each in folder.iterdir() if each.is_file() and each.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    (folder / "SHA256SUMS").write_text("".join(lines), "utf-8")


def release(version: str, base: str | None, *, is_checked: bool) -> None:
    if found := problems(version):
        sys.exit("\n".join(f"release: {each}" for each in found))
    if not is_checked:
        run(".ci/run")
    date_changelog(version, datetime.now(UTC).date().isoformat())
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    build(ROOT / "dist", base)
    run("git", "tag", "--annotate", "--message", f"Version {version}", f"v{version}")
    print(f"dist/ has version {version}. Push the commit and the tag v{version}.")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?")
    parser.add_argument("--build", type=Path, metavar="FOLDER")
    parser.add_argument("--base", metavar="IMAGE")
    parser.add_argument("--checked", action="store_true")
    given = parser.parse_args(arguments)
    if given.build:
        build(given.build, given.base)
    elif given.version:
        release(given.version, given.base, is_checked=given.checked)
    else:
        parser.error("name a version, or --build FOLDER")


if __name__ == "__main__":
    main(sys.argv[1:])
