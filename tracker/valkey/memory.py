"""Memory of the private store: mimalloc, huge pages, and the default limit, a share of what this process may use.

mimalloc: the packaged server uses the C library's allocator. A script call allocates and frees thousands of small
strings. glibc reuses the block that was freed last, so they scatter among the data. mimalloc fills one page before the
next, so they stay together. Measurements: docs/decisions/0019.

Huge pages: an announce reads a dozen places in a large memory, and most reads miss the cache of page-table entries.
Pages of 2 MB avoid that. Measurements, and why Redis advises against huge pages: docs/decisions/0018.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from tracker.system.logger import Logger

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
    """The limits of this process's groups, in lines ``number:controllers:path``, and of their parents, as far as a
    container can see them."""
    mounted, found = root / "sys/fs/cgroup", []
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for controllers, group in (line.split(":", 2)[1:] for line in lines if line.count(":") > 1 and ".." not in line):
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


def _limit(path: Path) -> list[int]:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return []
    number = int(text) if text.isdigit() and len(text) < 20 else _UNLIMITED
    return [number] if 0 < number < _UNLIMITED else []


_SINCE = (5, 8)
"""Since this Linux, a write to a huge page shared with a forked child copies a small part of it instead of all."""
_SMALL_PAGE = 4096
"""With larger pages, huge pages are larger too: 512 MB with pages of 64 kB."""
_TRIAL_SECONDS = 10.0

log = Logger("tracker.valkey")


@contextmanager
def server_environment(
    binary: Path, inherited: Mapping[str, str] = os.environ, release: str = platform.release()
) -> Iterator[dict[str, str]]:
    """The environment of the server ``binary``: no TRACKER_* variables, plus LD_PRELOAD for mimalloc unless one is set.
    Keep the context open until the server answers: it holds links that the loader needs. Blocks for some 10 ms to test
    the allocator."""
    passed = {name: value for name, value in inherited.items() if not name.startswith("TRACKER_")}
    library = _library()
    if "LD_PRELOAD" in passed or library is None:
        yield passed
        return
    chosen = {"MIMALLOC_ALLOW_THP": "1" if _may_have_huge_pages(release) else "0", **passed}
    with ExitStack() as stack:
        try:
            # mimalloc names libatomic.so.1 but uses nothing of it, and many systems install that only with a compiler.
            # A preloaded library with a missing dependency stops every program, so the name leads to mimalloc itself.
            links = TemporaryDirectory(prefix="swarmkeeper-", ignore_cleanup_errors=True)
            Path(stack.enter_context(links), "libatomic.so.1").symlink_to(library)
            folders = [links.name, passed.get("LD_LIBRARY_PATH")]
            chosen |= {"LD_PRELOAD": str(library), "LD_LIBRARY_PATH": ":".join(filter(None, folders))}
            why = _preload_problem(binary, chosen)
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
        if why:
            log.warning("mimalloc not available; announces will be slower", why=why)
        yield passed if why else chosen


def server_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Extra server options: ``disable-thp no`` when the allocator uses huge pages."""
    return {"disable-thp": "no"} if environment.get("MIMALLOC_ALLOW_THP") == "1" else {}


def _library() -> Path | None:
    """The path of mimalloc; None if it is not installed."""
    if sys.platform != "linux":
        return None
    with suppress(PackageNotFoundError):
        installed = distribution("cmeel-mimalloc")
        return Path(str(installed.locate_file("cmeel.prefix/lib/libmimalloc.so"))).absolute()
    return None


def _may_have_huge_pages(release: str) -> bool:
    version = re.match(r"(\d+)\.(\d+)", release)
    modern = version is not None and (int(version[1]), int(version[2])) >= _SINCE
    return modern and os.sysconf("SC_PAGE_SIZE") == _SMALL_PAGE


def _preload_problem(binary: Path, environment: Mapping[str, str]) -> str:
    """Why the server does not start in this environment; empty if it does."""
    tried = subprocess.run(  # noqa: S603  # our own wheel's program
        [binary, "--version"], env=dict(environment), capture_output=True, timeout=_TRIAL_SECONDS, check=False
    )
    said = tried.stderr.decode(errors="replace").strip()
    return said[:500] or (f"it ended with status {tried.returncode}" if tried.returncode else "")
