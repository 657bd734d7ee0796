"""Reports known vulnerabilities of the packages in the locks, as pip-audit finds them, one per line.

    python tools/audit.py requirements/run.txt …      with --strict: fail when any is found or a lookup fails

Without --strict it never fails: the result depends on the day and the network, not on a change. Run `make lock` when a
vulnerability is reported repeatedly.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

SECONDS = 90.0
"""Time limit for one lock. Each package takes a request."""
PIP_AUDIT = (sys.executable, "-m", "pip_audit")
OPTIONS = ("--format", "json", "--progress-spinner", "off", "--timeout", "10", "--disable-pip", "--require-hashes")


@dataclass(frozen=True, slots=True)
class Report:
    """``unknown`` packages could not be looked up; ``failure`` is why the audit failed."""

    packages: int = 0
    unknown: int = 0
    found: tuple[str, ...] = ()
    failure: str = ""

    def lines(self, lock: str) -> list[str]:
        lines = [f"!! {lock}: {line}" for line in self.found]
        if self.failure:
            lines.append(f"!! {lock}: NOT AUDITED: {self.failure}")
        elif self.unknown:
            lines.append(f"!! {lock}: {self.unknown} of {self.packages} packages could NOT be looked up")
        if not lines:
            lines.append(f"{lock}: {self.packages} packages, no known vulnerability")
        return lines

    @property
    def is_clean(self) -> bool:
        return not (self.found or self.unknown or self.failure)


def read(text: str) -> Report:
    """Parses the JSON output of pip-audit; raises ValueError, KeyError or TypeError for anything else."""
    packages = json.loads(text)["dependencies"]
    found = [
        f"{package['name']} {package['version']}: {', '.join([flaw['id'], *flaw.get('aliases', ())])}, "
        + (f"fixed in {', '.join(flaw['fix_versions'])}" if flaw["fix_versions"] else "no fix yet")
        for package in packages
        for flaw in package.get("vulns", ())
    ]
    return Report(len(packages), sum("skip_reason" in package for package in packages), tuple(found))


def audit(lock: str, command: Sequence[str] = PIP_AUDIT, seconds: float = SECONDS) -> Report:
    """Audits one lock."""
    try:
        done = subprocess.run(
            [*command, *OPTIONS, "--requirement", lock], capture_output=True, text=True, timeout=seconds, check=False
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
