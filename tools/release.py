"""Makes a release from the checked-out commit.

    python tools/release.py 1.0.0              checks, dates the changelog, builds into dist/, and tags v1.0.0
    python tools/release.py --build FOLDER     only builds, from what is committed

The checks are a clean checkout, the version of the package, a section of the changelog that begins with upgrade notes,
and `.ci/run`. A release is a wheel and a source distribution, which are the same bytes whenever and wherever they are
built, a Debian package, an image, a list of components (CycloneDX) and checksums. Nothing is pushed.
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
_SECTION = r"^## {} - (\S+)\n\n### Upgrade notes\n"


def run(*command: str | Path, cwd: Path = ROOT, variables: Mapping[str, str] | None = None) -> str:
    """What the command prints. Raises SystemExit if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(variables or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
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


def build(folder: Path, root: Path = ROOT) -> None:
    """Builds everything from the last commit."""
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    commit = run("git", "rev-parse", "--short=12", "HEAD", cwd=root)
    seconds = run("git", "log", "-1", "--format=%ct", cwd=root)
    variables = {"TRACKER_COMMIT": commit, "SOURCE_DATE_EPOCH": seconds}
    with TemporaryDirectory() as scratch:
        sources = Path(scratch) / "sources"
        sources.mkdir()
        run("git", "archive", "--format=tar", f"--output={scratch}/sources.tar", "HEAD", cwd=root)
        run("tar", "--extract", f"--file={scratch}/sources.tar", f"--directory={sources}")
        build_python(sources, folder, variables)
        if shutil.which("dpkg-deb"):
            run("sh", "deploy/debian/build.sh", folder, cwd=sources, variables=variables)
        else:
            print("release: no Debian package without dpkg-deb", file=sys.stderr)
        version = version_of(sources)
        build_image(sources, folder, version, commit)
        listed = components(sources, version, int(seconds))
    text = json.dumps(listed, indent=2, sort_keys=True)
    (folder / f"swarmkeeper-{version}.cdx.json").write_text(f"{text}\n", "utf-8")
    write_checksums(folder)


def version_of(sources: Path) -> str:
    found = re.search(
        r'^__version__ = "(.+)"', (sources / "tracker/__init__.py").read_text("utf-8"), re.MULTILINE
    )
    assert found
    return found[1]


def build_python(sources: Path, folder: Path, variables: Mapping[str, str]) -> None:
    """The source distribution and the wheel."""
    command = (sys.executable, "-m", "hatchling", "build", "--directory", folder)
    run(*command, cwd=sources, variables=variables)


def build_image(sources: Path, folder: Path, version: str, commit: str) -> None:
    """An image as an archive that `docker load` reads."""
    archive = folder / f"swarmkeeper-{version}-image.tar"
    name = f"swarmkeeper:{version}"
    arguments = ("--build-arg", f"VERSION={version}", "--build-arg", f"REVISION={commit}", "--tag", name, ".")
    if shutil.which("buildah"):
        run("buildah", "build", *arguments, cwd=sources)
        run("buildah", "push", name, f"docker-archive:{archive}:{name}")
    elif shutil.which("docker"):
        run("docker", "build", *arguments, cwd=sources)
        run("docker", "save", "--output", archive, name)
    else:
        print("release: no image without buildah or docker", file=sys.stderr)


def components(sources: Path, version: str, seconds: int) -> dict[str, Any]:
    """The locked run-time dependencies, in the format of CycloneDX 1.5."""
    lock = (sources / "requirements/site.txt").read_text("utf-8")
    own = f"pkg:pypi/swarmkeeper@{version}"
    pins = [f"pkg:pypi/{name}@{pinned}" for name, pinned in _PIN.findall(lock)]
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
            for purl, (name, pinned) in zip(pins, _PIN.findall(lock), strict=True)
        ],
        "dependencies": [{"ref": own, "dependsOn": pins}],
    }


def write_checksums(folder: Path) -> None:
    files = sorted(each for each in folder.iterdir() if each.is_file() and each.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    (folder / "SHA256SUMS").write_text("".join(lines), "utf-8")


def release(version: str) -> None:
    if found := problems(version):
        sys.exit("\n".join(f"release: {each}" for each in found))
    run(".ci/run")
    date_changelog(version, datetime.now(UTC).date().isoformat())
    build(ROOT / "dist")
    run("git", "tag", "--annotate", "--message", f"Version {version}", f"v{version}")
    print(f"dist/ has version {version}. Push the commit and the tag v{version}.")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="?")
    parser.add_argument("--build", type=Path, metavar="FOLDER")
    given = parser.parse_args(arguments)
    if given.build:
        build(given.build)
    elif given.version:
        release(given.version)
    else:
        parser.error("name a version, or --build FOLDER")


if __name__ == "__main__":
    main(sys.argv[1:])
