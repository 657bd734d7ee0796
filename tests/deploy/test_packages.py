"""The packages, built, installed and started as their users do: wheel, source distribution and Debian package.

The Debian package is installed in a root of its own, which debootstrap makes once; see ``debian_root``.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest import trackers
from loadtest.servers import ROOT
from tools import release
from tracker import __version__

pytestmark = [pytest.mark.long, pytest.mark.once]
NOBODY = 65534
"""A user who owns nothing and has no home."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache") / "swarmkeeper"
COMMIT = "0123456789ab"
NAMESPACES = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")
is_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another user")


def run(*command: str | Path, code: int = 0, **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return f"{done.stdout}{done.stderr if code else ''}"


def made_root(release_name: str, packages: str) -> Path:
    """A cached root that debootstrap has made."""
    root = CACHE / f"{release_name}-root"
    if not root.exists():
        begun = root.with_suffix(".begun")
        shutil.rmtree(begun, ignore_errors=True)
        begun.mkdir(parents=True)
        run("debootstrap", "--variant=minbase", f"--include={packages}", release_name, begun)
        begun.rename(root)
    return root


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("packages")
    sources = tmp_path_factory.mktemp("sources") / "copy"
    shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(".*", "__pycache__", "data", "dist", "tests"))
    release.build_python(sources, folder, {"TRACKER_COMMIT": COMMIT})
    return folder


def give_pip_configuration(home: Path) -> None:
    """Where this machine's packages come from."""
    for place in (".config/pip/pip.conf", ".pip/pip.conf"):
        if (Path.home() / place).exists():
            (home / ".pip").mkdir()
            shutil.copy(Path.home() / place, home / ".pip" / "pip.conf")
            return


EXTRAS = {"site": "sqlalchemy, asyncmy, asyncpg", "seed": "libtorrent, qbittorrentapi, transmission_rpc"}
"""What each brings."""


@is_root
@pytest.mark.parametrize(("kind", "extra"), [("py3-none-any.whl", "site"), ("tar.gz", "seed")])
def test_a_package_serves_in_an_empty_environment_of_another_user(
    kind: str, extra: str, built: Path, short_directory: Path
) -> None:
    """Without its extra at first, then with it."""
    short_directory.chmod(0o755)
    home = short_directory / "home"
    home.mkdir()
    (package,) = (Path(shutil.copy(each, home)) for each in built.glob(f"*{kind}"))
    os.chown(home, NOBODY, NOBODY)
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    variables |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    give_pip_configuration(home)
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": home, "env": variables}
    run("/usr/bin/python3", "-m", "venv", home / "env", **user)
    bin_folder = home / "env" / "bin"
    run(bin_folder / "pip", "install", "--quiet", package, **user)
    assert run(bin_folder / "pip", "check", **user) == "No broken requirements found.\n"
    assert run(bin_folder / "tracker", "--version", **user) == f"swarmkeeper {__version__} (commit {COMMIT})\n"
    with (home.parent / "log").open("w") as log:
        process = subprocess.Popen(
            [bin_folder / "tracker", "serve"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            **{**user, "env": {**variables, **trackers.ANY_PORTS}},
        )
    tracker = trackers.started(process, home.parent / "log")
    assert tracker.announce()[b"complete"] == 1
    assert tracker.end() == 0
    uses = (bin_folder / "python", "-c", f"import {EXTRAS[extra]}")
    run(*uses, code=1, **user)
    run(bin_folder / "pip", "install", "--quiet", f"{package}[{extra}]", **user)
    run(*uses, **user)
    assert run(bin_folder / "pip", "check", **user) == "No broken requirements found.\n"


@pytest.fixture(scope="module")
def debian_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("dpkg-deb"):
        pytest.skip("needs dpkg-deb")
    folder = tmp_path_factory.mktemp("debian")
    sources = folder / "sources"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "data", "dist", "tests")
    shutil.copytree(ROOT, sources, ignore=ignored)
    variables = {**os.environ, "PYTHON": "/usr/bin/python3"}
    run("sh", "deploy/debian/build.sh", folder, cwd=sources, env=variables)
    (package,) = folder.glob("*.deb")
    return package


@pytest.fixture(scope="module")
def debian_root() -> Path:
    """A minimal system of this machine's Debian release with Python, which debootstrap makes once."""
    if os.getuid() != 0 or not (shutil.which("debootstrap") and shutil.which("dpkg-deb")):
        pytest.skip("needs root, debootstrap and dpkg-deb")
    release_name = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    assert release_name
    return made_root(release_name[1], "python3,ca-certificates")


def test_the_debian_package_installs_serves_upgrades_and_goes(
    debian_root: Path, debian_package: Path, tmp_path: Path
) -> None:
    """In a root and namespaces of its own; debian_package.sh says what it checks."""
    script = ROOT / "tests/deploy/debian_package.sh"
    done = subprocess.run(
        [*NAMESPACES, "bash", script, debian_root, debian_package, tmp_path],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "nothing is left"


SYSTEMD = Path("/lib/systemd/systemd")


@pytest.fixture
def control_group() -> Iterator[Path]:
    """A group of version 2 of its own, as systemd manages what is below its own."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    found = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    if os.getuid() != 0 or found is None or not SYSTEMD.exists():
        pytest.skip("needs root, systemd and control groups of version 2")
    group = found / f"swarmkeeper-test-{os.getpid()}"
    group.mkdir()
    yield group
    for folder in sorted(group.rglob("*"), reverse=True):
        if folder.is_dir():
            folder.rmdir()
    group.rmdir()


def test_systemd_starts_reloads_restarts_and_stops_the_service(
    debian_package: Path, control_group: Path, tmp_path: Path
) -> None:
    """By a systemd of its own, the first process of its namespaces; systemd_unit.sh says what it checks."""
    script = ROOT / "tests/deploy/systemd_unit.sh"
    enter = f'echo $$ >"{control_group}/cgroup.procs" && exec "$@"'
    namespaces = (*NAMESPACES, "--ipc", "--uts", "--cgroup")
    subprocess.run(
        ["sh", "-c", enter, "-", *namespaces, "bash", script, debian_package, tmp_path],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    told, log = (tmp_path / "out" / name for name in ("told", "log"))
    assert told.exists(), "systemd did not start"
    assert told.read_text().splitlines()[-1] == "stopped", told.read_text() + log.read_text()
