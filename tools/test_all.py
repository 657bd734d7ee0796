"""Runs all tests, including the long ones (`make test-all`): at most 45 minutes on two cores, before a release.

    python tools/test_all.py [STEP ...]     the named steps; by default all

A failed step does not stop the others. The table at the end shows result and duration of each step. The exit status is
1 when a step failed.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SUPPORTED = (11, 12, 13, 14)
"""Minor versions of CPython."""
DIFFERING = "tests/wire tests/frontends/http tests/frontends/udp tests/settings tests/app/test_web_processes.py"
"""What differs between versions: bytes and numbers, asyncio and sockets, annotations, start and end of processes."""


def interpreters() -> Iterator[tuple[str, str]]:
    """The other supported versions of CPython on this machine: (version, program)."""
    for minor in SUPPORTED:
        version = f"3.{minor}"
        of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        program = of_pyenv[-1] if of_pyenv else shutil.which(f"python{version}")
        if program and sys.version_info[:2] != (3, minor):
            yield version, str(program)


PYTEST = (sys.executable, "-m", "pytest", "--long", "--hypothesis-profile", "long", "--timeout", "900")
STEPS: Mapping[str, Sequence[str]] = {
    "tests": (*PYTEST, "--numprocesses", "5", "--dist", "worksteal", "--serial", "without"),
    "serial tests": (*PYTEST, "--numprocesses", "0", "--serial", "only"),
    "chaos": (sys.executable, "-m", "loadtest.chaos", "--at-once", "4"),
    "slow clients": (sys.executable, "-m", "loadtest.clients.slow_clients"),
    "fuzzing": (sys.executable, "-m", "fuzz", "--seconds", "20"),
    **{
        f"CPython {version}": ("make", "test-parallel", f"PYTHON={program}", f"ARGS=-m 'not slow' {DIFFERING}")
        for version, program in interpreters()
    },
}


def main(names: Sequence[str], steps: Mapping[str, Sequence[str]] = STEPS) -> int:
    if unknown := set(names) - set(steps):
        print(f"no such step: {', '.join(sorted(unknown))}; there are: {', '.join(steps)}", file=sys.stderr)
        return 2
    lines, failed = [], False
    for name in names or steps:
        print(f"\n== {name}", flush=True)
        began = time.monotonic()
        status = subprocess.run(steps[name], check=False).returncode
        failed = failed or status != 0
        outcome = f"FAILED with status {status}" if status else "passed"
        lines.append(f"{name:14} {time.monotonic() - began:6.0f} s  {outcome}")
    print("\n".join(["", *lines]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
