"""The default memory limit of the private store: a share of the memory that this process may use."""

import os
from pathlib import Path

SHARE = 0.6
"""The share of the usable memory. The rest is for the tracker itself and for rewriting the append-only file."""
MIN_BYTES = 256 * 2**20
GROWTH = 1.25
"""The limit is at least this multiple of the data at the start, so that a large store can still start."""
_UNLIMITED = 1 << 60
"""Version 1 of cgroups reports no limit as a number near 2**63."""


def default_limit(used: int, usable: int | None = None, min_bytes: int = MIN_BYTES) -> int:
    """Returns bytes. ``used``: bytes of the data now. ``usable``: bytes for this process; None: usable_memory()."""
    usable = usable_memory() if usable is None else usable
    return max(int(usable * SHARE), min_bytes, int(used * GROWTH))


def usable_memory(root: Path = Path("/")) -> int:
    """The machine's memory in bytes, or the smaller limit of a cgroup. ``root`` is for tests."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_cgroup_limits(root)])


def _cgroup_limits(root: Path) -> list[int]:
    """The limits of this process's groups and their parents, as far as a container can see them."""
    mounted, found = root / "sys/fs/cgroup", []
    for controllers, group in _groups(root / "proc/self/cgroup"):
        if controllers == "":
            top, name = mounted, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = top / group.lstrip("/")
        for place in (folder, *folder.parents):
            if place == top or top in place.parents:
                found += _limit(place / name)
    return found


def _groups(path: Path) -> list[tuple[str, str]]:
    """(controllers, path) of each line ``number:controllers:path``."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    parts = [line.split(":", 2) for line in lines]
    return [(part[1], part[2]) for part in parts if len(part) == 3 and ".." not in part[2]]


def _limit(path: Path) -> list[int]:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return []
    number = int(text) if text.isdigit() and len(text) < 20 else _UNLIMITED
    return [number] if 0 < number < _UNLIMITED else []
