"""Holds drills: `python -m drills [NAME…]`; exit status 1 when one fails, 2 when none failed and one could not be held."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import page
from drills import faults, report
from drills.drill import Drill, Held, hold
from drills.fleet import Pace


def main() -> None:
    asked = _options()
    if asked.list:
        for drill in faults.DRILLS.values():
            print(f"{drill.name:20} {drill.what}")
        return
    unknown = set(asked.names) - set(faults.DRILLS)
    if unknown:
        sys.exit(f"no such drill: {', '.join(sorted(unknown))}; --list names them all")
    if asked.write and asked.names:
        sys.exit("--write is for all drills together: those that are not held now would be missing")
    pace = Pace(peers=asked.peers)
    wanted = [faults.DRILLS[name] for name in asked.names or faults.DRILLS]
    held = [_hold(drill, pace) for drill in wanted]
    table = report.as_markdown(held)
    print(f"\n{table}")
    if asked.write:
        page.write(report.BLOCK, f"{report.setting(pace)}\n\n{table}", report.PAGE)
    sys.exit(status(held))


def status(held: Sequence[Held]) -> int:
    """What was not tried has not been passed."""
    if any(one.findings.complaints for one in held):
        return 1
    return 0 if all(one.passed for one in held) else 2


def _hold(drill: Drill, pace: Pace) -> Held:
    with tempfile.TemporaryDirectory(prefix="drill-") as directory:
        held = asyncio.run(hold(drill, Path(directory), pace))
    print(report.line(held), file=sys.stderr, flush=True)
    return held


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m drills", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to hold (all)")
    parser.add_argument("--list", action="store_true", help="name them all and hold none")
    parser.add_argument("--peers", type=int, default=160, help="clients that announce (160)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/trust.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
