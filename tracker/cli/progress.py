"""How far long work has come: a bar in a terminal, elsewhere a line now and then; always on standard error."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

EVERY = 1000
"""Elsewhere than in a terminal, things done between two lines; and no more than one line in a second."""
_PAUSE_SECONDS = 1.0


class Progress:
    """Counts what is done; what it shows is up to its kind."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what = what
        self.total = total
        self.done = 0

    def advance(self, by: int = 1) -> None:
        self.done += by

    def reach(self, done: int) -> None:
        """Where how much is done is known better than how much was added."""
        self.advance(done - self.done)

    def __str__(self) -> str:
        return f"{self.what}: {self.done}" + (f" of {self.total}" if self.total is not None else "")


class _Lines(Progress):
    def __init__(self, what: str, total: int | None) -> None:
        super().__init__(what, total)
        self._told = 0
        self._at = -_PAUSE_SECONDS

    def advance(self, by: int = 1) -> None:
        super().advance(by)
        if self.done - self._told >= EVERY and time.monotonic() - self._at >= _PAUSE_SECONDS:
            self._told, self._at = self.done, time.monotonic()
            typer.echo(str(self), err=True)


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Progress]:
    """``what`` is written in front of it. ``quiet`` only counts."""
    if quiet:
        yield Progress(what, total)
    elif sys.stderr.isatty():
        with _bar(what, total) as bar:
            yield bar
    else:
        yield _Lines(what, total)


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Progress]:
    # rich takes its time to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, *times, console=Console(stderr=True)) as bars:
        task = bars.add_task(what, total=total)

        class Bar(Progress):
            def advance(self, by: int = 1) -> None:
                super().advance(by)
                bars.update(task, completed=self.done)

        yield Bar(what, total)
