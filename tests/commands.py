"""The ``tracker`` command in this process, with settings of the test's own; what it did to logging is undone."""

import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner, Result

from loadtest import trackers
from tracker.cli.main import app

Command = Callable[..., Result]


def set_store(monkeypatch: pytest.MonkeyPatch, url: str, prefix: str = "t:") -> None:
    """The only settings are which store to use, and to be patient: those of the user who runs the tests are gone."""
    for name in [name for name in os.environ if name.startswith("TRACKER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRACKER_REDIS__URL", url)
    monkeypatch.setenv("TRACKER_REDIS__PREFIX", prefix)
    for name, value in trackers.PATIENCE.items():
        monkeypatch.setenv(name, value)


@contextmanager
def command(*first: str) -> Iterator[Command]:
    """Runs ``tracker first… words…`` and checks its exit code (0, unless ``code`` says otherwise)."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*words: str, code: int = 0, typed: str | None = None) -> Result:
        result = CliRunner().invoke(app, (*first, *words), prog_name="tracker", input=typed)
        assert result.exit_code == code, (result.output, result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    yield run
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def run(directory: Path, *words: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """As loadtest.trackers.run, in this process, which has imported what the command needs: a tenth of the CPU time."""
    with pytest.MonkeyPatch.context() as patch, chdir(directory), command():
        for name in [name for name in os.environ if name.startswith("TRACKER_")]:
            patch.delenv(name)
        for name, value in settings.items():
            patch.setenv(name, value)
        done = CliRunner().invoke(app, words, prog_name="tracker")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def rows(result: Result) -> list[list[str]]:
    """What was printed, by lines and columns."""
    return [line.split("\t") for line in result.stdout.splitlines()]
