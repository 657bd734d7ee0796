"""A network namespace with addresses of its own on ``lo``, for tests that need more than loopback has."""

import shlex
import shutil
import subprocess
import sys

from loadtest.servers import ROOT

_NAMESPACE = ["unshare", "--user", "--map-root-user", "--net"]


def set_up(*addresses: str) -> str:
    """The shell command that gives ``lo`` these addresses of both families."""
    return " && ".join(
        [
            "ip link set lo up",
            *(
                f"ip address add {each}/128 dev lo nodad" if ":" in each else f"ip address add {each}/32 dev lo"
                for each in addresses
            ),
        ]
    )


def why_not(set_up: str, *programs: str) -> str:
    """Why such a namespace, with ``programs``, cannot be had here; empty if it can."""
    missing = [name for name in ("ip", "unshare", *programs) if not shutil.which(name)]
    if missing:
        return f"no {' and '.join(missing)} on this system"
    done = _run(set_up, 60)
    return f"no network namespace here: {done.stderr.strip()}" if done.returncode else ""


def run_module(set_up: str, module: str, *words: str, seconds: float) -> "subprocess.CompletedProcess[str]":
    """Runs ``python -m module words...`` in a new namespace."""
    command = shlex.join([sys.executable, "-m", module, *words])
    return _run(f"{set_up} && exec {command}", seconds)


def _run(command: str, seconds: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*_NAMESPACE, "sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )
