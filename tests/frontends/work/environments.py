"""Environments of other people's programs, installed by the tests that need them."""

import subprocess
import sys
from pathlib import Path

import pytest

INSTALL_SECONDS = 120


def environment(folder: Path, requirement: str) -> Path:
    """The interpreter of a new environment that holds ``requirement``. Skips the test where it cannot be installed."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=INSTALL_SECONDS)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("the package index does not answer")
    if done.returncode:
        pytest.skip(f"{requirement} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return python
