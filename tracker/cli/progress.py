"""Progress of long commands on standard error: a bar in a terminal, occasional lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

EVERY = 1000
"""Items between two lines; at most one line per second."""
_PAUSE_SECONDS = 1.0


class Progress:
    """Counts items; subclasses show the count."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what = what
        self.total = total
        self.done = 0

    def advance(self, by: int = 1) -> None:
        self.done += by

    def reach(self, done: int) -> None:
        """Sets the count, for callers that know the total instead of the increment."""
        self.advance(done - self.done)

    def __str__(self) -> str:
        return f"{self.what}: {self.done}" + (f" of {self.total}" if self.total is not None else "")


class _Lines(Progress):
    def __init__(self, what: str, total: int | None) -> None:
        super().__init__(what, total)
        self._shown = 0
        self._at = -_PAUSE_SECONDS

    def advance(self, by: int = 1) -> None:
        super().advance(by)
        if self.done - self._shown >= EVERY and time.monotonic() - self._at >= _PAUSE_SECONDS:
            self._shown, self._at = self.done, time.monotonic()
            typer.echo(str(self), err=True)


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Progress]:
    """``what`` is the label. ``quiet`` counts without output."""
    if quiet:
        yield Progress(what, total)
    elif sys.stderr.isatty():
        with _bar(what, total) as bar:
            yield bar
    else:
        yield _Lines(what, total)


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Progress]:
    # rich is slow to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415
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
