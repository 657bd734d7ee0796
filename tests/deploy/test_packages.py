"""The packages, built, installed and started as their users do: wheel, source distribution and Debian package.

The Debian package is installed in a root of its own, which debootstrap makes once; see ``debian_root``.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from zipfile import ZipFile

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
    shutil.copytree(
        ROOT, sources, ignore=shutil.ignore_patterns(".*", "__pycache__", "data", "dist", "tests")
    )
    release.build_python(sources, folder, {"TRACKER_COMMIT": COMMIT})
    return folder


def give_pip_configuration(home: Path) -> None:
    """Where this machine's packages come from."""
    for place in (".config/pip/pip.conf", ".pip/pip.conf"):
        if (Path.home() / place).exists():
            (home / ".pip").mkdir()
            shutil.copy(Path.home() / place, home / ".pip" / "pip.conf")
            return


@is_root
@pytest.mark.parametrize("kind", ["py3-none-any.whl", "tar.gz"])
def test_a_package_serves_in_an_empty_environment_of_another_user(
    kind: str, built: Path, short_directory: Path
) -> None:
    short_directory.chmod(0o755)
    home = short_directory / "home"
    home.mkdir()
    (package,) = (Path(shutil.copy(each, home)) for each in built.glob(f"*{kind}"))
    os.chown(home, NOBODY, NOBODY)
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    variables |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    give_pip_configuration(home)
    user: dict[str, Any] = {
        "user": NOBODY,
        "group": NOBODY,
        "extra_groups": [],
        "cwd": home,
        "env": variables,
    }
    run("/usr/bin/python3", "-m", "venv", home / "env", **user)
    bin_folder = home / "env" / "bin"
    run(bin_folder / "pip", "install", "--quiet", package, **user)
    assert run(bin_folder / "pip", "check", **user) == "No broken requirements found.\n"
    assert (
        run(bin_folder / "tracker", "--version", **user) == f"swarmkeeper {__version__} (commit {COMMIT})\n"
    )
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


def test_the_extras_exist(built: Path) -> None:
    (package,) = built.glob("*.whl")
    with ZipFile(package) as wheel:
        (name,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = wheel.read(name).decode()
    assert {"Provides-Extra: seed", "Provides-Extra: site"} <= set(metadata.splitlines())


@pytest.fixture(scope="module")
def debian_root() -> Path:
    """A minimal system of this machine's Debian release with Python, which debootstrap makes once."""
    if os.getuid() != 0 or not (shutil.which("debootstrap") and shutil.which("dpkg-deb")):
        pytest.skip("needs root, debootstrap and dpkg-deb")
    release_name = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    assert release_name
    return made_root(release_name[1], "python3,ca-certificates")


def test_the_debian_package_installs_serves_upgrades_and_goes(debian_root: Path, tmp_path: Path) -> None:
    """In a root and namespaces of its own; debian_package.sh says what it checks."""
    sources = tmp_path / "sources"
    shutil.copytree(
        ROOT, sources, ignore=shutil.ignore_patterns(".*", "__pycache__", "data", "dist", "tests")
    )
    run(
        "sh",
        "deploy/debian/build.sh",
        tmp_path,
        cwd=sources,
        env={**os.environ, "PYTHON": "/usr/bin/python3"},
    )
    (package,) = tmp_path.glob("*.deb")
    done = subprocess.run(
        [*NAMESPACES, "bash", ROOT / "tests/deploy/debian_package.sh", debian_root, package, tmp_path],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "nothing is left"
