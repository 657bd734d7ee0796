"""What `make test` starts: workers for all tests, one process for named files."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.once, pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")]


def commands(*arguments: str) -> list[str]:
    """The calls of pytest that make would start."""
    done = subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "-m pytest" in line]


def test_all_tests_run_in_workers_and_then_the_serial_ones() -> None:
    parallel, serial = commands("test", "ARGS=-m 'not slow'")
    assert "--dist worksteal --serial without -m 'not slow'" in parallel
    assert "--numprocesses 0 --serial only -m 'not slow'" in serial


def test_named_files_run_in_one_process() -> None:
    (line,) = commands("test", "ARGS=tests/wire/test_udp.py -k scrape")
    assert line.endswith("-m pytest --numprocesses 0 tests/wire/test_udp.py -k scrape")
