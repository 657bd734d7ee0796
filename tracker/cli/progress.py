"""Progress of long commands on standard error: a bar in a terminal, occasional lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

_EVERY = 1000
"""Items between two lines; at most one line per second."""
_PAUSE_SECONDS = 1.0


class Progress:
    """Counts items; ``show`` shows the count."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self.done = 0
        self._show = show

    def advance(self, by: int = 1) -> None:
        self.reach(self.done + by)

    def reach(self, done: int) -> None:
        """Sets the count, for callers that know the total instead of the increment."""
        self.done = done
        self._show(done)


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Progress]:
    """``what`` is the label. ``quiet`` counts without output."""
    if quiet or not sys.stderr.isatty():
        yield Progress((lambda _: None) if quiet else _lines(what, "" if total is None else f" of {total}"))
        return
    # rich is slow to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, *times, console=Console(stderr=True)) as bars:
        task = bars.add_task(what, total=total)
        yield Progress(lambda done: bars.update(task, completed=done))


def _lines(what: str, of: str) -> Callable[[int], None]:
    shown, at = 0, -_PAUSE_SECONDS

    def show(done: int) -> None:
        nonlocal shown, at
        if done - shown >= _EVERY and time.monotonic() - at >= _PAUSE_SECONDS:
            shown, at = done, time.monotonic()
            typer.echo(f"{what}: {done}{of}", err=True)

    return show
