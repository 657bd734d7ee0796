"""The systemd unit: its command and settings exist, and its hardening stays."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtest.servers import ROOT
from tracker.cli.main import app
from tracker.settings.model import FIELDS, variable

UNIT = ROOT / "deploy/systemd/tracker.service"
ANALYZE = shutil.which("systemd-analyze")
MAX_EXPOSURE = 20
"""In tenths, at most 100. Without hardening the unit has 92."""


def directives(text: str) -> dict[str, list[str]]:
    """Returns directive -> its values in order. Some directives may occur several times."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


SERVICE = directives(UNIT.read_text(encoding="utf-8"))


def test_the_command_exists() -> None:
    program, *arguments = SERVICE["ExecStart"][0].split()
    assert (
        Path(program).name
        in (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.scripts]")[2].partition("[")[0]
    )
    assert CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0


def test_the_settings_exist_and_use_the_folders_that_systemd_creates() -> None:
    known = {variable(*field) for field in FIELDS}
    given = dict(value.split("=", 1) for value in SERVICE["Environment"])
    assert given and given.keys() <= known
    assert given["TRACKER_DATA__DIRECTORY"] == f"/var/lib/{SERVICE['StateDirectory'][0]}"
    assert SERVICE["WorkingDirectory"] == [f"/etc/{SERVICE['ConfigurationDirectory'][0]}"]


def test_it_reloads_by_sighup_and_stops_the_tracker_alone() -> None:
    assert "kill -HUP $MAINPID" in SERVICE["ExecReload"][0]
    assert "EnvironmentFile" not in SERVICE, "a reload does not read it; .env in the working directory it does"
    assert SERVICE["KillMode"] == ["mixed"]


@pytest.mark.parametrize(
    "directive",
    [
        "CapabilityBoundingSet=",
        "LockPersonality=yes",
        "MemoryDenyWriteExecute=yes",
        "NoNewPrivileges=yes",
        "PrivateDevices=yes",
        "PrivateTmp=yes",
        "PrivateUsers=yes",
        "ProtectClock=yes",
        "ProtectControlGroups=yes",
        "ProtectHome=yes",
        "ProtectHostname=yes",
        "ProtectKernelLogs=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "ProtectProc=invisible",
        "ProtectSystem=strict",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        "RestrictNamespaces=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "StateDirectoryMode=0700",
        "SystemCallArchitectures=native",
        "UMask=0077",
        "User=tracker",
    ],
)
def test_hardening(directive: str) -> None:
    name, _, value = directive.partition("=")
    assert SERVICE[name] == [value]


def test_system_calls_are_an_allow_list_without_privileged_ones() -> None:
    assert SERVICE["SystemCallFilter"] == ["@system-service", "~@privileged"]
    assert SERVICE["SystemCallErrorNumber"] == ["EPERM"]


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_it_and_rates_its_exposure_low(tmp_path: Path) -> None:
    """Checks a copy of the unit with an existing program, because systemd checks the program too."""
    assert ANALYZE
    unit = tmp_path / UNIT.name
    program = SERVICE["ExecStart"][0].split()[0]
    unit.write_text(UNIT.read_text(encoding="utf-8").replace(program, "/bin/true"), encoding="utf-8")
    for command in (["verify"], ["security", "--offline=yes", f"--threshold={MAX_EXPOSURE}", "--no-pager"]):
        done = subprocess.run([ANALYZE, *command, unit], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_documents_name_the_unit_and_do_not_repeat_it() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert "deploy/systemd/tracker.service" in page
    assert "ExecStart=" not in page
