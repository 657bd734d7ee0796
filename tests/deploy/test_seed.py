"""The files by which volunteers run `tracker work seed`: systemd unit, Dockerfile, compose file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from loadtest.servers import ROOT
from tracker.cli.main import app

UNIT = ROOT / "deploy/systemd/tracker-seed.service"
DOCKERFILE = ROOT / "deploy/seed/Dockerfile"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/seed/compose.yaml").read_text())
SERVICE: dict[str, Any] = COMPOSE["services"]["seed"]
ANALYZE = shutil.which("systemd-analyze")
MAX_EXPOSURE = 25
"""In tenths, at most 100."""


def help_text() -> str:
    return CliRunner().invoke(app, ["work", "seed", "--help"]).output


def test_the_unit_runs_the_command_with_options_that_exist() -> None:
    (command,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert command.split()[1:3] == ["work", "seed"]
    assert all(option in help_text() for option in re.findall(r"--[\w-]+", command))
    assert "assk" not in command, "a passkey is not an option"


def test_the_options_of_the_container_exist() -> None:
    options = [option.partition("=")[0] for option in SERVICE["command"]]
    assert options
    assert all(re.search(rf"^\s+{option}\b", help_text(), re.MULTILINE) for option in options)


def test_the_container_has_minimal_rights() -> None:
    assert SERVICE["read_only"] and SERVICE["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in SERVICE["security_opt"]
    assert re.search(r"^USER 10001:10001$", DOCKERFILE.read_text(), re.MULTILINE)
    assert "environment" not in SERVICE and SERVICE["secrets"] == ["passkey"]


def test_the_passkey_is_readable_by_the_containers_user_and_in_no_commit() -> None:
    """A secret that is a file keeps its owner and mode in the container."""
    head = (ROOT / "deploy/seed/compose.yaml").read_text().partition("\nname: ")[0]
    user = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE.read_text(), re.MULTILINE)[0]
    assert f"install -m 400 -o {user[0]} -g {user[1]} /dev/stdin passkey" in head
    assert COMPOSE["secrets"]["passkey"]["file"] == "./passkey"
    assert "/deploy/seed/passkey" in (ROOT / ".gitignore").read_text().splitlines()


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}")
    if hadolint is None:
        pytest.skip("hadolint has no wheel for this system")
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit_and_rates_its_exposure_low(tmp_path: Path) -> None:
    """Checks a copy of the unit with an existing program, because systemd checks the program too."""
    assert ANALYZE
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE))
    for command in (["verify"], ["security", "--offline=yes", f"--threshold={MAX_EXPOSURE}", "--no-pager"]):
        done = subprocess.run([ANALYZE, *command, unit], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
