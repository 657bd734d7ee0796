"""``tracker top``: live activity in a terminal, refreshed every second. It reads counters and index sets only."""

import asyncio
import json
import os
import sys
import termios
import time
import tty
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from redis.exceptions import RedisError
from typer import Option, echo

from tracker.cli.commands import AsJson, load_settings, run_with_store, with_store
from tracker.cli.terminal import Row, sparkline
from tracker.errors import ClientError, StoreUnavailable
from tracker.names import printable
from tracker.store.stats.memory_usage import read_usages
from tracker.store.store import Store
from tracker.valkey.server import EmbeddedValkey

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

RATES = ("announces", "scrapes", "failures", "joins", "reaps")
Sort = Literal["seeders", "leechers", "snatches", "score"]
SORTS: tuple[Sort, ...] = get_args(Sort)
_REFRESH_SECONDS = 1.0


@dataclass(slots=True)
class Snapshot:
    """The state at one moment. ``series`` are counts per second; the last entry is the last full second."""

    at: float = 0.0
    series: dict[str, list[int]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    torrents: int = 0
    latency_seconds: float | None = None
    memory_bytes: int = 0
    jobs: dict[str, int] = field(default_factory=dict)
    top: list[Row] = field(default_factory=list)

    def rate(self, name: str) -> float:
        """The mean of the last 5 seconds."""
        last = self.series.get(name, [])[-5:]
        return round(sum(last) / len(last), 1) if last else 0.0


async def take_snapshot(store: Store, sort: Sort = "seeders", count: int = 50) -> Snapshot:
    """Raises StoreUnavailable and redis.exceptions.RedisError. Without the main store, rates and jobs are missing."""
    now = time.time() - 1  # the current second is incomplete
    counters, main_or = store.counters, store.shards.main_or
    series = await main_or(_series(store, now), {})
    _, latency = await main_or(counters.distribution("announce_seconds", 5, first=now - 60, last=now), ([], None))
    jobs = await main_or(_jobs(store), {})
    memory = await read_usages(store.shards.servers)
    top: list[Row] = []
    for each in await store.torrents.top(sort, count):
        peers = {"seeders": each.seeders, "leechers": each.leechers, "snatches": each.completions}
        top.append({"info_hash": each.info_hash.hex(), **peers, "name": each.name})
    return Snapshot(
        at=now,
        series=series,
        totals=await counters.totals(),
        torrents=await store.torrents.count(),
        latency_seconds=latency.mean if latency else None,
        memory_bytes=sum(usage.used for usage in memory.values()),
        jobs=jobs,
        top=top,
    )


async def _series(store: Store, now: float) -> dict[str, list[int]]:
    counters, series = store.counters, {}
    for name in RATES:
        # Failures have one counter per reason; reasons are few and fixed.
        names = await counters.names("failures.*") if name == "failures" else [name]
        found = [await counters.series(each, 1, last=now, fill=True) for each in names]
        series[name] = [sum(number for _, number in second) for second in zip(*found, strict=False)]
    return series


async def _jobs(store: Store) -> dict[str, int]:
    """The numbers of jobs of all queues, by status."""
    jobs = Counter[str]()
    for queue in await store.jobs.queues():
        jobs.update(await store.jobs.sizes(queue))
    return dict(jobs)


def show_top(
    once: Annotated[bool, Option("--once", help="Print one snapshot and exit.")] = False,
    sort: Annotated[Sort, Option(help="Sort torrents by this; the key s changes it.")] = "seeders",
    limit: Annotated[int, Option(min=1, max=1000, help="Maximum number of torrents in a snapshot.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show rates, swarms, latency and the top torrents, live. Keys: q quits, s changes the order."""
    live = not (once or as_json) and sys.stdout.isatty() and sys.stdin.isatty()
    if not live:
        with_store(lambda store: _print_once(store, sort, limit, as_json=as_json))
        return
    settings = load_settings()

    async def runs() -> bool:
        return settings.redis.url is not None or await EmbeddedValkey(settings.data.directory).is_running()

    if not asyncio.run(runs()):  # starting the store here would block the start of a tracker
        raise ClientError("no tracker is running here: start one, or use `tracker top --once`")
    run_with_store(settings, lambda store: _watch(store, sort))


async def _print_once(store: Store, sort: Sort, limit: int, *, as_json: bool) -> None:
    snapshot = await take_snapshot(store, sort, limit)
    rates = {name: snapshot.rate(name) for name in RATES}
    if as_json:
        echo(json.dumps({**asdict(snapshot), "rates": rates}))
        return
    for name, rate in rates.items():
        echo(f"{name}\t{rate}/s")
    for name, value in _swarms(snapshot).items():
        echo(f"{name}\t{value}")
    for row in snapshot.top:
        echo("\t".join(printable(str(value)) for value in row.values()))


def _swarms(snapshot: Snapshot) -> dict[str, str]:
    latency = snapshot.latency_seconds
    jobs = snapshot.jobs
    waiting = jobs.get("pending", 0) + jobs.get("retry", 0)
    return {
        "torrents": str(snapshot.torrents),
        "seeders": str(snapshot.totals.get("seeders", 0)),
        "leechers": str(snapshot.totals.get("leechers", 0)),
        "latency": "" if latency is None else f"{latency * 1000:.1f} ms",
        "store": f"{snapshot.memory_bytes / 1e6:.1f} MB",
        "jobs": f"{waiting} waiting, {jobs.get('running', 0)} running, {jobs.get('failed', 0)} failed",
    }


async def _watch(store: Store, sort: Sort) -> None:
    """Runs until q. While the store is unavailable it says so, above the last snapshot."""
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    keys: asyncio.Queue[bytes] = asyncio.Queue(100)
    console, snapshot, problem = Console(highlight=False), Snapshot(), ""
    async with asyncio.TaskGroup() as tasks:
        probing = tasks.create_task(store.connection.watch())
        with _keyboard(keys), Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                try:
                    async with asyncio.timeout(10 * _REFRESH_SECONDS):
                        snapshot, problem = await take_snapshot(store, sort), ""
                except (StoreUnavailable, RedisError, TimeoutError) as error:
                    problem = str(error) or "the store does not respond"
                live.update(_screen(console, snapshot, sort, problem), refresh=True)
                try:
                    async with asyncio.timeout(_REFRESH_SECONDS):
                        key = await keys.get()
                except TimeoutError:
                    continue
                if key in (b"q", b"Q", b"\x03", b"\x04"):
                    break
                if key in (b"s", b"S"):
                    sort = SORTS[(SORTS.index(sort) + 1) % len(SORTS)]
        probing.cancel()


@contextmanager
def _keyboard(keys: "asyncio.Queue[bytes]") -> Iterator[None]:
    """Reads keys one by one without echo; the terminal is restored on exit."""
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        typed = os.read(handle, 100) or b"q"  # a closed terminal gives no bytes
        for number in typed:
            if not keys.full():
                keys.put_nowait(bytes([number]))

    tty.setcbreak(handle)
    loop.add_reader(handle, on_input)
    try:
        yield
    finally:
        loop.remove_reader(handle)
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _screen(console: "Console", snapshot: Snapshot, sort: Sort, problem: str) -> "RenderableType":
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    width, height = console.size
    rates = Table.grid(padding=(0, 2))
    slices = max(10, min(120, width - 30))
    for name in RATES:
        trend = sparkline(snapshot.series.get(name, [])[-slices:])
        rates.add_row(name, Text(f"{snapshot.rate(name)}/s", justify="right"), Text(trend, style="cyan"))
    numbers = Text("   ").join(Text(f"{name} {value}") for name, value in _swarms(snapshot).items())
    table = Table(box=None, expand=True, pad_edge=False)
    for title in ("seeders", "leechers", "snatches"):
        table.add_column(title, justify="right", width=9, style="bold" if title == sort else "")
    table.add_column("name", ratio=1, no_wrap=True, overflow="ellipsis")
    for row in snapshot.top[: max(0, height - len(RATES) - 7)]:
        name = printable(str(row["name"])) or str(row["info_hash"])
        table.add_row(str(row["seeders"]), str(row["leechers"]), str(row["snatches"]), Text(name))
    clock = time.strftime("%H:%M:%S")
    head = Text(f"tracker top  {clock}  by {sort}   q quit, s sort", style="reverse")
    if problem:
        head = Text(f"{printable(problem)}: showing the last snapshot   q quit", style="bold red")
    return Group(head, Text(), rates, Text(), numbers, Text(), table)
