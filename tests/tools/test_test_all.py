"""All tests: each step runs, whatever the others end with."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tools.test_all import STEPS, main


def exiting(status: int) -> list[str]:
    return [sys.executable, "-c", f"raise SystemExit({status})"]


def test_a_step_that_fails_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {"first": exiting(3), "second": exiting(0)}) == 1
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first.startswith("first ") and first.endswith("FAILED with status 3")
    assert second.startswith("second ") and second.endswith("passed")
    assert main(["second"], {"first": exiting(3), "second": exiting(0)}) == 0


def test_an_unknown_step_is_refused() -> None:
    assert main(["nothing"]) == 2


def test_each_step_is_a_module_that_exists_or_the_tests_on_another_version() -> None:
    others = {name: command for name, command in STEPS.items() if name.startswith("CPython ")}
    modules = [command for name, command in STEPS.items() if name not in others]
    assert all(command[:2] == (sys.executable, "-m") and find_spec(command[2]) for command in modules)
    for name, (make, goal, program, _) in others.items():
        assert (make, goal) == ("make", "test-parallel")
        printed = subprocess.run(
            [program.removeprefix("PYTHON="), "--version"], capture_output=True, text=True, check=True
        )
        assert printed.stdout.startswith(name.replace("CPython", "Python"))
