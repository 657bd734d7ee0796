"""Runs chaos experiments: `python -m loadtest.chaos [NAME…]`.

Exit status 1 if one failed, 2 if none failed and one was skipped.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from loadtest.bench import page
from loadtest.chaos import registry, report
from loadtest.chaos.experiment import Outcome, run
from loadtest.chaos.inspection import Findings
from loadtest.clients.load import Pace


def main() -> None:
    options = _options()
    if options.list:
        for experiment in registry.EXPERIMENTS.values():
            print(f"{experiment.name:20} {experiment.description}")
        return
    unknown = set(options.names) - set(registry.EXPERIMENTS)
    if unknown:
        sys.exit(f"no such experiment: {', '.join(sorted(unknown))}; see --list")
    if options.write and options.names:
        sys.exit("--write needs all experiments: those not run would be missing from the table")
    pace = Pace(peers=options.peers)
    with ProcessPoolExecutor(options.at_once) as processes:
        found = processes.map(partial(_run, pace), options.names or registry.EXPERIMENTS)
        outcomes = [Outcome(registry.EXPERIMENTS[name], *values) for name, values in found]
    table = report.as_markdown(outcomes)
    print(f"\n{table}")
    if options.write:
        page.write(report.BLOCK, f"{report.setting(pace)}\n\n{table}", report.PAGE)
    sys.exit(status(outcomes))


def status(outcomes: Sequence[Outcome]) -> int:
    """A skipped experiment has not passed."""
    if any(one.findings.complaints for one in outcomes):
        return 1
    return 0 if all(one.passed for one in outcomes) else 2


def _run(pace: Pace, name: str) -> tuple[str, tuple[Findings, float, str]]:
    """Its name and what its outcome holds: another process cannot get the experiment itself."""
    experiment = registry.EXPERIMENTS[name]
    with tempfile.TemporaryDirectory(prefix="experiment-") as directory:
        outcome = asyncio.run(run(experiment, Path(directory), pace))
    print(report.line(outcome), file=sys.stderr, flush=True)
    return name, (outcome.findings, outcome.seconds, outcome.skipped)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.chaos", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments to run (all)")
    parser.add_argument("--list", action="store_true", help="list the experiments, and run none")
    parser.add_argument("--peers", type=int, default=160, help="number of clients (160)")
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="experiments at a time (1); they mostly wait"
    )
    parser.add_argument("--write", action="store_true", help="write the table into docs/trust.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
