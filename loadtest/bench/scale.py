"""Large swarms, latency, overload, background, starts: `python -m loadtest.bench.scale --help`.

docs/performance.md explains the results.
"""

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from loadtest.bench import growth, machine, page, processes, tables
from loadtest.bench.background_share import measure_background
from loadtest.bench.latency import measure_latency
from loadtest.bench.loader import BenchError
from loadtest.bench.overload import measure_overload
from loadtest.bench.sections import Section, as_markdown
from loadtest.bench.starting import measure_starts
from loadtest.bench.targets import find

MASS_EXPIRY = "loadtest.bench.mass_expiry"
QUICK_TIMES = 100
"""Divides the number of peers in a quick run."""


def main() -> None:
    options = parse_options()
    try:
        if not find("wrk"):
            raise BenchError("wrk, the load generator, is missing: apt install wrk")
        sections, void = run(options)
        block = f"{setting()}\n\n{as_markdown(sections)}"
        if options.write and not void:
            page.write("scale", block)
    except BenchError as error:
        sys.exit(f"benchmark void: {error}")
    print(block)
    sys.exit(f"void: {', '.join(void)}" if void else 0)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(PARTS), action="append", help="this part; may be repeated")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each; the median counts (5)")
    parser.add_argument("--seconds", type=int, default=6, help="length of a timed run (6)")
    parser.add_argument("--quick", action="store_true", help="quick check: few peers, short runs")
    parser.add_argument(
        "--write", action=argparse.BooleanOptionalAction, help="write docs/performance.md (when nothing is left out)"
    )
    options = parser.parse_args()
    if options.quick:
        options.runs, options.seconds = 1, 2
    if options.write is None:
        options.write = not (options.quick or options.only)
    return options


def run(options: argparse.Namespace) -> tuple[list[Section], list[str]]:
    """The results of the parts, and the names of void ones; the other results are kept."""
    sections, void = [], []
    for name in options.only or PARTS:
        print(name, file=sys.stderr, flush=True)
        try:
            with tempfile.TemporaryDirectory(prefix="bench-") as directory:
                sections += PARTS[name](options, Path(directory))
        except BenchError as error:
            void.append(name)
            print("\n".join([f"void: {error}", *getattr(error, "__notes__", [])]), file=sys.stderr, flush=True)
    return sections, void


def setting() -> str:
    return tables.setting(
        {
            "date": datetime.now(UTC).date().isoformat(),
            "command": shlex.join(["python", "-m", "loadtest.bench.scale", *sys.argv[1:]]),
            "machine": machine.machine(),
            "versions": machine.versions(),
        }
    )


def _growth(options: argparse.Namespace, directory: Path) -> list[Section]:
    pairs = growth.PAIRS
    if options.quick:
        pairs = ((growth.Size(2_000, 100), growth.Size(20_000, 1_000)), (growth.Size(1_000, 1), growth.Size(10_000, 1)))
    return [growth.measure_growth(directory, options.runs, options.seconds, pairs)]


def _latency(options: argparse.Namespace, directory: Path) -> list[Section]:
    return measure_latency(directory, options.seconds, *_population(options))


def _overload(options: argparse.Namespace, directory: Path) -> list[Section]:
    return measure_overload(directory, options.seconds, *_population(options))


def _background(options: argparse.Namespace, directory: Path) -> list[Section]:
    return [measure_background(directory, options.seconds, *_population(options))]


def _population(options: argparse.Namespace) -> tuple[int, int]:
    """(peers, torrents)."""
    return (20_000, 1_000) if options.quick else (200_000, 10_000)


def _start(options: argparse.Namespace, directory: Path) -> list[Section]:
    peers = 1_000_000 // (QUICK_TIMES if options.quick else 1)
    return [measure_starts(directory, options.runs, peers, max(1, peers // 20))]


def _expiry(options: argparse.Namespace, directory: Path) -> list[Section]:
    """Runs the mass expiry experiment by its own command."""
    section = Section("A million peers that expire within a minute")
    if options.quick or not (processes.ROOT / f"{MASS_EXPIRY.replace('.', '/')}.py").exists():
        section.remarks.append(f"Not run here: `python -m {MASS_EXPIRY}`.")
        return [section]
    command = [sys.executable, "-m", MASS_EXPIRY]
    done = subprocess.run(command, cwd=processes.ROOT, capture_output=True, text=True, check=False)
    output = "\n".join(f"    {line}" for line in done.stdout.strip().splitlines())
    section.remarks += [f"`python -m {MASS_EXPIRY}`{' failed' if done.returncode else ''}:", output]
    return [section]


PARTS: dict[str, Callable[[argparse.Namespace, Path], list[Section]]] = {
    "growth": _growth,
    "latency": _latency,
    "overload": _overload,
    "background": _background,
    "start": _start,
    "expiry": _expiry,
}


if __name__ == "__main__":
    main()
