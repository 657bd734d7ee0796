"""What the command line prints: rows by pages, one line for each error, the banner.

Names of torrents and clients come from strangers. What could move a cursor, hide or reorder text is shown
escaped; nothing is read as markup.
"""

import json
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import typer

from tracker import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from tracker.service import Banner

_LEAST_WIDTH = 10
_GAP = 3
_BLOCKS = "▁▂▃▄▅▆▇█"


class Moment(int):
    """Epoch seconds: a number for programs, a date (UTC) for people."""

    def __str__(self) -> str:
        try:
            return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self))
        except (OverflowError, OSError, ValueError):  # somebody else wrote it
            return int.__repr__(self)


MOMENT = 20
"""Characters of a date."""
Value = str | int | float | bool | None
Row = dict[str, Value]


def printable(text: str) -> str:
    """``text`` with everything that is not a visible character or a plain space escaped, as in ``\\x1b``."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def say(text: str) -> None:
    typer.echo(printable(text))


def complain(text: str) -> None:
    """One line on standard error."""
    typer.echo(f"error: {printable(text)}", err=True)


def say_json(row: Row) -> None:
    typer.echo(json.dumps(row))


@dataclass(frozen=True, slots=True)
class Column:
    """``width`` 0 takes the room that is left."""

    name: str
    width: int = 0
    right: bool = False


def fitted(name: str, rows: Iterable[Row], *, right: bool = False, most: int | None = None) -> Column:
    """As wide as its longest cell, and no wider than ``most``: for rows that are all there beforehand."""
    width = max([len(name), *(len(_cell(row[name])) for row in rows)])
    return Column(name, width if most is None else min(width, most), right)


class Listing:
    """Rows as they come, a page at a time: a table in a terminal, else tabs; or one JSON object a line."""

    def __init__(self, columns: Sequence[Column], *, as_json: bool) -> None:
        self._columns = columns
        self._as_json = as_json
        self._console = _console() if sys.stdout.isatty() and not as_json else None
        self._first = True
        needed = sum((column.width or _LEAST_WIDTH) + _GAP for column in columns)
        if self._console is not None and self._console.width < needed:  # cells cut in pieces help nobody
            self._console = None
            typer.echo("\t".join(column.name for column in columns))

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
        from rich import box  # noqa: PLC0415  # rich is for terminals only, and takes its time to import
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        # Widths are fixed beforehand: pages share their columns, and no page has to wait for the last.
        table = Table(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_header=self._first, expand=True
        )
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


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415

    return Console(highlight=False)


def _cell(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else printable(str(value))


def terminal_width() -> int:
    """In characters; where there is no terminal, what is usual."""
    return shutil.get_terminal_size().columns


def sparkline(values: Sequence[float]) -> str:
    """A block for each value, as high as it is beside the largest; nothing stands for 0."""
    largest = max(values, default=0)
    if largest <= 0:
        return " " * len(values)
    steps = len(_BLOCKS)
    return "".join(" " if value <= 0 else _BLOCKS[ceil(value * steps / largest) - 1] for value in values)


def describe(row: Row, *, as_json: bool) -> None:
    """One thing: a line for each of its properties."""
    if as_json:
        say_json(row)
        return
    width = max(len(name) for name in row) + 2
    for name, value in row.items():
        typer.echo(f"{name.replace('_', ' '):<{width}}{_cell(value)}".rstrip())


def banner_text(banner: "Banner", pid: int, *, private: bool) -> str:
    """What a person wants to know once the tracker serves; announce URLs first."""
    urls = announce_urls(banner.addresses, "/<passkey>/announce" if private else "/announce")
    lines = [("announce" if not number else "", url) for number, url in enumerate(urls)]
    admin = announce_urls(banner.admin, "/")
    lines += [("admin" if not number else "", url) for number, url in enumerate(admin)]
    if banner.link and admin:
        from tracker.store.tokens import LINK_SECONDS  # noqa: PLC0415  # no other line here needs the store

        # Behind the #, so that no browser sends it anywhere in a URL.
        lines.append(
            ("sign in", f"{admin[0]}sign-in#{banner.link}  (once, within {LINK_SECONDS // 60} minutes)")
        )
    lines += [("store", banner.store), ("data", banner.data), ("stop", f"Ctrl-C, or kill {pid}")]
    return "\n".join([f"swarmkeeper {__version__} serves", *(f"  {name:<10}{text}" for name, text in lines)])


def announce_urls(addresses: Sequence[str], path: str) -> list[str]:
    """Where clients may announce. A wildcard address is shown as this machine, and as others see it."""
    urls: list[str] = []
    for address in addresses:
        if address.startswith("unix:"):
            urls.append(f"{address} (for a proxy)")
            continue
        host, _, port = address.rpartition(":")
        hosts = ["localhost", outward_address(socket.AF_INET)] if host == "0.0.0.0" else [host]
        hosts = ["localhost", outward_address(socket.AF_INET6)] if host == "[::]" else hosts
        urls += [f"http://{name}:{port}{path}" for name in hosts if name]
    return list(dict.fromkeys(urls))


def outward_address(family: socket.AddressFamily) -> str | None:
    """The address this machine has towards the world, as it stands in a URL; None when it has no way there.

    Connecting a datagram socket only looks a route up: nothing is sent.
    """
    target = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            host = str(probe.getsockname()[0])
    except OSError:
        return None
    return f"[{host}]" if family == socket.AF_INET6 else host
