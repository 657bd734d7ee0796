"""The audit reports known vulnerabilities; without --strict it never fails. A fake program replaces pip-audit."""

import json
import re
import sys
from pathlib import Path

import pytest

from tools.audit import Report, audit, main, read

LOCK = "requirements/run.txt"
SOUND = {"name": "aiohttp", "version": "3.14.5", "vulns": []}
SKIPPED = {"name": "uvloop", "skip_reason": "Dependency not found on PyPI and could not be audited"}


def flawed(*fixed: str) -> dict[str, object]:
    flaw = {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"], "fix_versions": list(fixed), "description": "…"}
    return {"name": "redis", "version": "8.1.0", "vulns": [flaw]}


def printing(*packages: object) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def playing(tmp_path: Path, code: str) -> list[str]:
    """A fake pip-audit."""
    program = tmp_path / "program.py"
    program.write_text(code)
    return [sys.executable, str(program)]


@pytest.mark.parametrize(
    ("packages", "lines"),
    [
        ([SOUND], [f"{LOCK}: 1 packages, no known vulnerability"]),
        (
            [SOUND, flawed("8.1.1", "9.0.0")],
            [f"!! {LOCK}: redis 8.1.0: PYSEC-2026-1, CVE-2026-1, fixed in 8.1.1, 9.0.0"],
        ),
        ([flawed()], [f"!! {LOCK}: redis 8.1.0: PYSEC-2026-1, CVE-2026-1, no fix yet"]),
        ([SOUND, SKIPPED], [f"!! {LOCK}: 1 of 2 packages could NOT be looked up"]),
    ],
)
def test_each_result_has_its_lines(packages: list[object], lines: list[str]) -> None:
    assert read(printing(*packages)).lines(LOCK) == lines


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("raise SystemExit('ConnectionError: no network')", "ConnectionError: no network"),
        ("raise SystemExit(3)", "pip-audit ended with status 3"),
        ("print('[]')", "pip-audit ended with status 0"),
        ("import time; time.sleep(60)", "timed out"),
    ],
)
def test_a_failed_lookup_is_reported(tmp_path: Path, code: str, failure: str) -> None:
    report = audit(LOCK, playing(tmp_path, code), seconds=1.0 if "sleep" in code else 30.0)
    assert failure in report.failure
    (line,) = report.lines(LOCK)
    assert line.startswith(f"!! {LOCK}: NOT AUDITED: ")
    assert not report.is_clean


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    assert "No such file" in audit(LOCK, [str(tmp_path / "none")]).failure


@pytest.mark.parametrize(("packages", "strict"), [([SOUND], 0), ([flawed("9")], 1), ([SKIPPED], 1)])
def test_only_strict_mode_fails(
    tmp_path: Path, packages: list[object], strict: int, capsys: pytest.CaptureFixture[str]
) -> None:
    command = playing(tmp_path, f"print({printing(*packages)!r})")
    assert main([LOCK], command) == 0
    assert main(["--strict", LOCK], command) == strict
    told = capsys.readouterr().out.splitlines()
    assert told == 2 * read(printing(*packages)).lines(LOCK)


def test_every_pin_is_audited_and_nothing_installed(tmp_path: Path) -> None:
    command = playing(tmp_path, "import sys; print(sys.argv[1:], file=sys.stderr); raise SystemExit(1)")
    asked = audit(LOCK, command).failure
    for word in ("--disable-pip", "--require-hashes", LOCK):
        assert f"'{word}'" in asked
    assert Report(failure=asked).lines(LOCK)


def test_the_checks_report_vulnerabilities_without_failing() -> None:
    checks = (Path(__file__).parents[2] / ".ci" / "run").read_text(encoding="utf-8")
    (line,) = [line for line in checks.splitlines() if "make --silent audit" in line]
    assert "timeout " in line and "|| loud " in line and "failed+=" not in line
    assert re.search(r"^checks=\(.*\baudit\b", checks, re.MULTILINE), "it is reported"
