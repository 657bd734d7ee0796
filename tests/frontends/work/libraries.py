"""Other people's libraries, installed from their lock by the tests that need them, for child processes alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOCK = Path(__file__).with_name("libraries.txt")
INSTALL_SECONDS = 120


def libraries(folder: Path) -> dict[str, str]:
    """The environment variables of a process that imports them from ``folder``. Skips the test where they cannot be
    installed."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    command += ["--no-build-isolation", "--use-pep517", "--target", str(folder), "--requirement", str(LOCK)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("the package index does not answer")
    if done.returncode:
        pytest.skip(f"{LOCK.name} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return {**os.environ, "PYTHONPATH": str(folder)}
