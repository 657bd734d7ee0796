"""Progress of long commands on standard error: a bar in a terminal, occasional lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

EVERY = 1000
"""Items between two lines; at most one line per second."""
_PAUSE_SECONDS = 1.0


class Progress:
    """Counts items; ``show`` shows the count."""

    def __init__(self, what: str, total: int | None, show: "Callable[[Progress], None]") -> None:
        self.what = what
        self.total = total
        self.done = 0
        self._show = show

    def advance(self, by: int = 1) -> None:
        self.reach(self.done + by)

    def reach(self, done: int) -> None:
        """Sets the count, for callers that know the total instead of the increment."""
        self.done = done
        self._show(self)

    def __str__(self) -> str:
        return f"{self.what}: {self.done}" + (f" of {self.total}" if self.total is not None else "")


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Progress]:
    """``what`` is the label. ``quiet`` counts without output."""
    if not quiet and sys.stderr.isatty():
        with _bar(what, total) as show:
            yield Progress(what, total, show)
    else:
        yield Progress(what, total, (lambda _: None) if quiet else _lines())


def _lines() -> Callable[[Progress], None]:
    shown, at = 0, -_PAUSE_SECONDS

    def show(progress: Progress) -> None:
        nonlocal shown, at
        if progress.done - shown >= EVERY and time.monotonic() - at >= _PAUSE_SECONDS:
            shown, at = progress.done, time.monotonic()
            typer.echo(str(progress), err=True)

    return show


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[[Progress], None]]:
    # rich is slow to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, *times, console=Console(stderr=True)) as bars:
        task = bars.add_task(what, total=total)
        yield lambda progress: bars.update(task, completed=progress.done)
