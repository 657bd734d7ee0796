"""Known vulnerabilities in what the locks pin: pip-audit's findings, a line each.

    python tools/audit.py requirements/run.txt …      --strict fails when something was found or could not be looked up

Without --strict nothing fails: whether a vulnerability is known depends on the day and on a network, not on a change.
Whoever reads the report decides; what it says twice is worth a `make lock`.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

SECONDS = 90.0
"""For one lock. Each package is a question over the network."""
PIP_AUDIT = (sys.executable, "-m", "pip_audit")
OPTIONS = (
    "--format",
    "json",
    "--progress-spinner",
    "off",
    "--timeout",
    "10",
    "--disable-pip",
    "--require-hashes",
)


@dataclass(frozen=True, slots=True)
class Report:
    """``unknown`` packages could not be looked up; ``failure`` says why nothing could."""

    packages: int = 0
    unknown: int = 0
    found: tuple[str, ...] = ()
    failure: str = ""

    def lines(self, lock: str) -> list[str]:
        told = [f"!! {lock}: {line}" for line in self.found]
        if self.failure:
            told.append(f"!! {lock}: NOT AUDITED: {self.failure}")
        elif self.unknown:
            told.append(f"!! {lock}: {self.unknown} of {self.packages} packages could NOT be looked up")
        if not told:
            told.append(f"{lock}: {self.packages} packages, no known vulnerability")
        return told

    @property
    def is_clean(self) -> bool:
        return not (self.found or self.unknown or self.failure)


def read(text: str) -> Report:
    """What pip-audit printed as JSON; raises ValueError, KeyError or TypeError for anything else."""
    packages = json.loads(text)["dependencies"]
    found = [
        f"{package['name']} {package['version']}: {', '.join([flaw['id'], *flaw.get('aliases', ())])}, "
        + (f"fixed in {', '.join(flaw['fix_versions'])}" if flaw["fix_versions"] else "no fix yet")
        for package in packages
        for flaw in package.get("vulns", ())
    ]
    return Report(len(packages), sum("skip_reason" in package for package in packages), tuple(found))


def audit(lock: str, command: Sequence[str] = PIP_AUDIT, seconds: float = SECONDS) -> Report:
    """Asks about one lock."""
    try:
        done = subprocess.run(
            [*command, *OPTIONS, "--requirement", lock],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Report(failure=str(error))
    try:
        return read(done.stdout)
    except (ValueError, KeyError, TypeError):
        words = done.stderr.strip().splitlines() or [f"pip-audit ended with status {done.returncode}"]
        return Report(failure=words[-1])


def main(words: Sequence[str], command: Sequence[str] = PIP_AUDIT) -> int:
    strict, locks = "--strict" in words, [word for word in words if word != "--strict"]
    reports = {lock: audit(lock, command) for lock in locks}
    for lock, report in reports.items():
        print("\n".join(report.lines(lock)), flush=True)
    return int(strict and not all(report.is_clean for report in reports.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
