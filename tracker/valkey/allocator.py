"""How the private store comes by its memory: mimalloc, and huge pages.

**mimalloc.** The wheel's server is built on the C library's allocator. A script call takes in and lets go of thousands of small
strings, and from glibc each gets the piece of its size that was given back last, which lies anywhere among the data. mimalloc
hands out the pieces of one page before it goes to the next, so that they lie together. docs/decisions/0019 has what that spares.

**Huge pages.** An announce reads a dozen places of a large memory, and most of them want an entry of the page table that no cache
holds. docs/decisions/0018 has what pages of 2 MB spare, and what became of the reasons why Redis goes without.
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

import structlog

_SINCE = (5, 8)
"""The Linux that, where a huge page is shared with a forked child, copies a small part of it at a write and not all."""
_SMALL_PAGE = 4096
"""Where pages are larger, a huge one is as well: 512 MB with pages of 64 kB."""
_TRIAL_SECONDS = 10.0

log = structlog.get_logger("tracker.valkey")


@contextmanager
def server_environment(
    binary: Path, inherited: Mapping[str, str] = os.environ, release: str = platform.release()
) -> Iterator[dict[str, str]]:
    """What the server ``binary`` inherits: nothing of ours, and its allocator unless somebody said what is to be loaded first.

    Holds until the server has loaded its libraries, and at least until it answers. Blocks for some 10 ms, in which it is tried.
    """
    passed = {name: value for name, value in inherited.items() if not name.startswith("TRACKER_")}
    library = _library()
    if "LD_PRELOAD" in passed or library is None:
        yield passed
        return
    chosen = {"MIMALLOC_ALLOW_THP": "1" if _may_have_huge_pages(release) else "0", **passed}
    with ExitStack() as stack:
        try:
            folders = [stack.enter_context(_links(library)), passed.get("LD_LIBRARY_PATH")]
            chosen |= {"LD_PRELOAD": str(library), "LD_LIBRARY_PATH": ":".join(filter(None, folders))}
            why = _what_is_wrong(binary, chosen)
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
        if why:
            log.warning("the private store goes without mimalloc, and an announce costs more", why=why)
        yield passed if why else chosen


def server_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Its configuration by name: where the system gives everybody huge pages, it would forbid them to its allocator."""
    return {"disable-thp": "no"} if environment.get("MIMALLOC_ALLOW_THP") == "1" else {}


def _library() -> Path | None:
    """Where mimalloc lies, or None where it is not installed."""
    if sys.platform != "linux":
        return None
    with suppress(PackageNotFoundError):
        installed = distribution("cmeel-mimalloc")
        return Path(str(installed.locate_file("cmeel.prefix/lib/libmimalloc.so"))).absolute()
    return None


@contextmanager
def _links(library: Path) -> Iterator[str]:
    """Where the loader finds what ``library`` says it needs: a folder that nobody else can write to.

    It names libatomic.so.1, of which it uses nothing, and which many systems have only together with a compiler; and where
    what is to be loaded first cannot be given what it needs, no program starts. The library itself will do for it.
    """
    with TemporaryDirectory(prefix="swarmkeeper-", ignore_cleanup_errors=True) as folder:
        Path(folder, "libatomic.so.1").symlink_to(library)
        yield folder


def _may_have_huge_pages(release: str) -> bool:
    version = re.match(r"(\d+)\.(\d+)", release)
    modern = version is not None and (int(version[1]), int(version[2])) >= _SINCE
    return modern and os.sysconf("SC_PAGE_SIZE") == _SMALL_PAGE


def _what_is_wrong(binary: Path, environment: Mapping[str, str]) -> str:
    """Why the server would not start so, or not with what it is to load; empty when nothing is wrong."""
    tried = subprocess.run(  # noqa: S603  # our own wheel's program
        [binary, "--version"], env=dict(environment), capture_output=True, timeout=_TRIAL_SECONDS, check=False
    )
    said = tried.stderr.decode(errors="replace").strip()
    return said[:500] or (f"it ended with status {tried.returncode}" if tried.returncode else "")
