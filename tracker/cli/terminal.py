"""Output of the command line: tables by page, errors, notes, progress, the banner of a start.

Names of torrents and clients come from strangers. Characters that move the cursor, or hide or reorder text, are
escaped; nothing is interpreted as markup.
"""

import json
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import typer

from tracker import __version__
from tracker.names import printable

if TYPE_CHECKING:
    from rich.console import Console

    from tracker.app.service import Banner
    from tracker.settings.model import Settings

UNKNOWN_URL = "unknown: set TRACKER_ANNOUNCE__URLS"
_MIN_WIDTH = 10
_GAP = 3
_BLOCKS = "▁▂▃▄▅▆▇█"


class Moment(int):
    """Epoch seconds: a number in JSON, a date (UTC) in text."""

    def __str__(self) -> str:
        try:
            return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self))
        except (OverflowError, OSError, ValueError):  # written by another program
            return int.__repr__(self)


Value = str | int | float | bool | None
Row = dict[str, Value]


def say(text: str) -> None:
    typer.echo(printable(text))


def complain(text: str) -> None:
    """One error line on standard error."""
    typer.echo(f"error: {printable(text)}", err=True)


def note(text: str) -> None:
    """One line on standard error that is not an error."""
    typer.echo(f"note: {printable(text)}", err=True)


def say_json(row: Row) -> None:
    typer.echo(json.dumps(row))


def show(row: Row, text: str, *, as_json: bool) -> None:
    """One line: the row, or what it says in words."""
    if as_json:
        say_json(row)
    else:
        say(text)


@dataclass(frozen=True, slots=True)
class Column:
    """``width`` 0: the column shares the remaining width. ``optional``: left out of a table that would be too wide."""

    name: str
    width: int = 0
    right: bool = False
    optional: bool = False


def columns(text: str) -> list[Column]:
    """Such as ``user_id>15 name size>14?``: a name, the width after ``:`` or, of columns on the right, after ``>``;
    ``?``: optional."""
    found = []
    for word in text.split():
        name, kind, width = re.split("([:>]|$)", word.rstrip("?"), maxsplit=1)
        found.append(Column(name, int(width or 0), kind == ">", word.endswith("?")))
    return found


def fitted(name: str, rows: Iterable[Row], *, right: bool = False, max_width: int | None = None) -> Column:
    """A column as wide as its widest cell, at most ``max_width``."""
    width = max([len(name), *(len(_cell(row[name])) for row in rows)])
    return Column(name, width if max_width is None else min(width, max_width), right)


class Listing:
    """Prints rows page by page: a table in a terminal, tab-separated lines elsewhere, or one JSON object per line.
    ``shown`` are the columns, or the text for ``columns``."""

    _console: "Console | None" = None

    def __init__(self, shown: Sequence[Column] | str, *, as_json: bool) -> None:
        self._columns = shown = columns(shown) if isinstance(shown, str) else shown
        self._as_json = as_json
        self._first = True
        if as_json or not sys.stdout.isatty():
            return
        from rich.console import Console  # noqa: PLC0415  # slow to import, and for terminals only

        console = Console(highlight=False)
        for some in (shown, [column for column in shown if not column.optional]):
            if console.width >= sum((column.width or _MIN_WIDTH) + _GAP for column in some):
                self._columns, self._console = some, console
                return
        typer.echo("\t".join(column.name for column in shown))

    def page(self, rows: Iterable[Row]) -> None:
        if self._console is not None:
            self._table(self._console, rows)
            return
        for row in rows:
            if self._as_json:
                say_json(row)
            else:
                typer.echo("\t".join(_cell(row[column.name]) for column in self._columns))

    def _table(self, console: "Console", rows: Iterable[Row]) -> None:
        from rich import box  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        # Widths are fixed in advance, so that all pages have the same columns.
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_header=self._first, expand=True)
        for column in self._columns:
            table.add_column(
                column.name.replace("_", " "),
                width=column.width or None,
                ratio=None if column.width else 1,
                justify="right" if column.right else "left",
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(Text(_cell(row[column.name])) for column in self._columns))
        if table.row_count or self._first:
            console.print(table)
        self._first = False


def _cell(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else printable(str(value))


def sparkline(values: Sequence[float]) -> str:
    """One block per value, scaled to the largest; a space for 0."""
    largest = max(values, default=0)
    if largest <= 0:
        return " " * len(values)
    steps = len(_BLOCKS)
    return "".join(" " if value <= 0 else _BLOCKS[ceil(value * steps / largest) - 1] for value in values)


def describe(row: Row, *, as_json: bool) -> None:
    """Prints one record, a line per field."""
    if as_json:
        say_json(row)
        return
    width = max(len(name) for name in row) + 2
    for name, value in row.items():
        typer.echo(f"{name.replace('_', ' '):<{width}}{_cell(value)}".rstrip())


_EVERY = 1000
"""Items between two lines; at most one line per second."""
_PAUSE_SECONDS = 1.0


class Progress:
    """Counts items of a long command on standard error: a bar in a terminal, occasional lines elsewhere."""

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


def banner_text(banner: "Banner", pid: int, settings: "Settings", why_no_udp: str = "") -> str:
    """Printed when the tracker serves; announce URLs first. ``why_no_udp``: why ``auto`` serves none, or empty."""
    groups = _announce_urls(banner, settings)
    if why_no_udp:
        groups.append(("udp", [f"off: {why_no_udp} (TRACKER_UDP__LISTEN)"]))
    configured = [f"{banner.admin_url}/"] if banner.admin and banner.admin_url else []
    admin = list(dict.fromkeys([*configured, *announce_urls(banner.admin, "/")]))
    groups.append(("admin", admin))
    if banner.link and admin:
        from tracker.store.access.tokens import LINK_SECONDS  # noqa: PLC0415  # a slow import that only this line needs

        # Browsers do not send the part after #.
        link = f"{admin[0]}sign-in#{banner.link}  (once, within {LINK_SECONDS // 60} minutes)"
        groups.append(("sign in", [link]))
    elif admin:
        groups.append(("sign in", ["tracker sign-in-link"]))
    groups += [("work", announce_urls(banner.work, "/")[:1]), ("site", banner.site)]
    groups.append(("dht", [*banner.dht, *([banner.participation.sentence] if banner.participation else [])]))
    if settings.uniques.enabled and settings.geoip.database is None:
        places = "off: TRACKER_GEOIP__DATABASE=dbip-city-lite counts users by country and city"
        groups.append(("places", [places]))
    groups.append(("store", [banner.store, *([banner.upgraded] if banner.upgraded else [])]))
    groups += [("data", [banner.data]), ("stop", [f"Ctrl-C, or kill {pid}"])]
    lines = [f"  {'' if number else name:<10}{text}" for name, texts in groups for number, text in enumerate(texts)]
    return "\n".join([f"swarmkeeper {__version__} is running", *lines])


def _announce_urls(banner: "Banner", settings: "Settings") -> list[tuple[str, Sequence[str]]]:
    """Announce URLs; those that the settings name, or none behind a proxy, are followed by the addresses."""
    accounts, passkey = settings.users.private, "<passkey>"
    passkeys = [""] * (accounts != "required") + [passkey] * (accounts != "off")
    if settings.announce.urls or settings.http.trusted_proxies:
        urls = [url for each in passkeys for url in settings.announce.urls_of(each)] or [UNKNOWN_URL]
        listening = announce_urls(banner.addresses, "") + announce_urls(banner.udp, "", scheme="udp")
        return [("announce", urls), ("listen", listening)]
    paths = [f"/{each}/announce" if each else "/announce" for each in passkeys]
    urls = [url for path in paths for url in announce_urls(banner.addresses, path)]
    urls += [url for path in paths for url in announce_urls(banner.udp, path, scheme="udp")]
    if settings.serves_websockets:
        urls += [f"ws{url.removeprefix('http')}" for url in urls if url.startswith("http:")]
    return [("announce", urls)]


def announce_urls(addresses: Sequence[str], path: str, scheme: str = "http") -> list[str]:
    """URLs for the addresses. A wildcard address becomes localhost and this machine's outward address."""
    urls: list[str] = []
    for address in addresses:
        if address.startswith("unix:"):
            urls.append(f"{address} (for a proxy)")
            continue
        host, _, port = address.rpartition(":")
        hosts = ["localhost", outward_address(socket.AF_INET)] if host == "0.0.0.0" else [host]
        hosts = ["localhost", outward_address(socket.AF_INET6)] if host == "[::]" else hosts
        urls += [f"{scheme}://{name}:{port}{path}" for name in hosts if name]
    return list(dict.fromkeys(urls))


def outward_address(family: socket.AddressFamily) -> str | None:
    """This machine's address on its default route, as written in a URL; None without a route. Connecting a datagram
    socket only looks up the route: nothing is sent."""
    target = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            host = str(probe.getsockname()[0])
    except OSError:
        return None
    return f"[{host}]" if family == socket.AF_INET6 else host
