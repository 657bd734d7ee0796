"""Shards on a cluster of three nodes beside one store: `python -m loadtest.bench.cluster --help`.

Parts: `cost`, CPU time per announce with 16 shards and with one store, in turn; `idle`, CPU time of a private tracker
with 64 unused shards; `pages`, pages and reads of the API with 64 shards and with one store; `moves`, a shard
that moves under 500 announces a second. All stores listen on TCP, as those on other machines do. It needs a quiet
machine, and takes about ten minutes.
"""

import argparse
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from loadtest.bench import machine, page, tables
from loadtest.bench.cluster_cost import measure_cost
from loadtest.bench.cluster_idle import measure_idle
from loadtest.bench.cluster_moves import measure_moves
from loadtest.bench.cluster_pages import measure_pages
from loadtest.bench.loader import BenchError
from loadtest.bench.sections import Section, as_markdown
from loadtest.bench.targets import find


def main() -> None:
    options = parse_options()
    try:
        if not find("wrk"):
            raise BenchError("wrk, the load generator, is missing: apt install wrk")
        sections = run(options)
        if options.write:
            page.write("cluster", f"{textwrap.fill(setting(), 120)}\n\n{as_markdown(sections)}")
    except BenchError as error:
        sys.exit("\n".join([f"benchmark void: {error}", *getattr(error, "__notes__", [])]))
    print(f"{setting()}\n\n{as_markdown(sections)}")
    reached = [finding.reached for section in sections for finding in section.findings]
    sys.exit(0 if False not in reached else 1)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(PARTS), action="append", help="this part; may be repeated")
    parser.add_argument("--quick", action="store_true", help="quick check: small stores, short runs")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    options = parser.parse_args()
    if options.write and (options.only or options.quick):
        parser.error("--write needs a whole run")
    return options


def run(options: argparse.Namespace) -> list[Section]:
    sections = []
    for name in options.only or PARTS:
        print(name, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            sections += PARTS[name](Path(directory), options.quick)
    return sections


def setting() -> str:
    return tables.setting(
        {
            "date": datetime.now(UTC).date().isoformat(),
            "command": shlex.join(["python", "-m", "loadtest.bench.cluster", *sys.argv[1:]]),
            "machine": machine.machine(),
            "versions": machine.versions(),
        }
    )


def _cost(directory: Path, quick: bool) -> list[Section]:
    if quick:
        return [measure_cost(directory, peers=2_000, torrents=200, rounds=1, seconds=2)]
    return [measure_cost(directory, peers=50_000, torrents=5_000, rounds=5, seconds=6)]


def _idle(directory: Path, quick: bool) -> list[Section]:
    return [measure_idle(directory, seconds=10 if quick else 60)]


def _pages(directory: Path, quick: bool) -> list[Section]:
    return [measure_pages(directory, rows=1_000 if quick else 10_000, rounds=3 if quick else 15)]


def _moves(directory: Path, quick: bool) -> list[Section]:
    return [measure_moves(directory, peers=2_000 if quick else 60_000, seconds=8 if quick else 30)]


PARTS: dict[str, Callable[[Path, bool], list[Section]]] = {
    "cost": _cost,
    "idle": _idle,
    "pages": _pages,
    "moves": _moves,
}


if __name__ == "__main__":
    main()
