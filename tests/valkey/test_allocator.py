"""The memory of the private store: its allocator, and huge pages where the system has them."""

import platform
import stat
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from tracker.valkey.memory import server_environment, server_options
from tracker.valkey.server import EmbeddedValkey, server_binary

Spoil = Callable[[bytes], bytes]
LIBRARY = "cmeel.prefix/lib/libmimalloc.so"
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="the allocator has no wheel for this system",
)


def can_have_huge_pages() -> bool:
    """With `always` khugepaged creates them later."""
    return ENABLED.exists() and "[madvise]" in ENABLED.read_text()


def huge_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))


def loaded(pid: int) -> set[str]:
    """Names of the libraries loaded by a process."""
    return {Path(line.split()[-1]).name for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}


def install(folder: Path, library: bytes) -> None:
    """Installs ``library`` in the place of the package's own."""
    package = distribution("cmeel-mimalloc")
    (described := folder / f"cmeel_mimalloc-{package.version}.dist-info").mkdir(parents=True)
    (described / "METADATA").write_text(package.read_text("METADATA") or "")
    (folder / LIBRARY).parent.mkdir(parents=True)
    (folder / LIBRARY).write_bytes(library)


def real_library() -> bytes:
    return Path(str(distribution("cmeel-mimalloc").locate_file(LIBRARY))).read_bytes()


def environment_for(inherited: dict[str, str], release: str = "6.1.0") -> dict[str, str]:
    with server_environment(server_binary(), inherited, release) as environment:
        return environment


@pytest.mark.parametrize(
    ("release", "allowed"),
    [("6.1.0-23-amd64", True), ("5.8", True), ("5.10.0", True), ("5.4.0-150-generic", False), ("4.19", False)],
)
def test_huge_pages_are_allowed_if_a_fork_copies_small_parts(release: str, allowed: bool) -> None:
    environment = environment_for({}, release)
    assert environment["MIMALLOC_ALLOW_THP"] == ("1" if allowed else "0")
    assert server_options(environment) == ({"disable-thp": "no"} if allowed else {})


@pytest.mark.parametrize("theirs", ["", "/usr/lib/libjemalloc.so.2"])
def test_an_operators_preloaded_library_stays(theirs: str) -> None:
    environment = environment_for({"LD_PRELOAD": theirs, "LANG": "C"})
    assert environment == {"LD_PRELOAD": theirs, "LANG": "C"}
    assert server_options(environment) == {}


@pytest.mark.parametrize(("theirs", "more"), [("/opt/lib:/opt/more", ":/opt/lib:/opt/more"), ("", "")])
def test_an_operators_library_path_stays(theirs: str, more: str) -> None:
    """No part of the path is empty: the loader would search the working directory."""
    with server_environment(server_binary(), {"LD_LIBRARY_PATH": theirs}) as environment:
        links = Path(environment["LD_LIBRARY_PATH"].removesuffix(more))
        assert [path.name for path in links.iterdir()] == ["libatomic.so.1"]
        assert stat.S_IMODE(links.stat().st_mode) == 0o700
    assert not links.exists()


def test_the_server_inherits_no_tracker_variable() -> None:
    assert "TRACKER_ADMIN__TOKEN" not in environment_for({"TRACKER_ADMIN__TOKEN": "secret"})


def test_a_missing_allocator_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    binary = server_binary()
    monkeypatch.setattr(sys, "path", [])
    with server_environment(binary, {}) as environment:
        assert environment == {} == server_options(environment)


@pytest.mark.parametrize(
    ("folder", "spoil", "why"),
    [
        ("site", None, None),
        ("two words", None, "cannot be preloaded"),
        ("a:b", None, "cannot be preloaded"),
        ("site", lambda library: library[: len(library) // 2], ""),
        ("site", lambda _: b"", "file too short"),
        # A system without the library's dependency.
        ("site", lambda library: library.replace(b"libatomic.so.1", b"libabsent.so.1"), "libabsent.so.1"),
    ],
    ids=["sound", "a space", "a colon", "half", "empty", "without what it needs"],
)
def test_an_allocator_that_fails_to_load_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, spoil: Spoil | None, why: str | None
) -> None:
    binary = server_binary()
    install(tmp_path / folder, spoil(real_library()) if spoil else real_library())
    monkeypatch.setattr(sys, "path", [str(tmp_path / folder)])
    with capture_logs() as logs, server_environment(binary, {}) as environment:
        pass
    assert ("LD_PRELOAD" in environment) == (why is None)
    assert [entry["log_level"] for entry in logs] == ([] if why is None else ["warning"])
    assert all(entry["why"] and str(why) in entry["why"] for entry in logs)


@pytest.mark.parametrize(
    ("chosen", "mimalloc", "huge"),
    [
        ({}, True, True),
        ({"LD_PRELOAD": ""}, False, False),
        ({"MIMALLOC_ALLOW_THP": "0"}, True, False),  # as with an old Linux
    ],
    ids=["by default", "switched off", "without huge pages"],
)
async def test_the_store_uses_mimalloc_and_huge_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], mimalloc: bool, huge: bool
) -> None:
    for name in ("LD_PRELOAD", "MIMALLOC_ALLOW_THP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    async with EmbeddedValkey(tmp_path / "data") as server, Redis.from_url(server.url) as client:
        pid = (await client.info("server"))["process_id"]
        for n in range(64):
            await client.mset({f"{n}:{m}": b"x" * 100 for m in range(5000)})
        found, libraries = huge_kb(pid), loaded(pid)
    assert ("libmimalloc.so" in libraries) == mimalloc
    assert not any("atomic" in name for name in libraries)  # so it also starts without libatomic
    if not huge or can_have_huge_pages():
        assert found >= 16_384 if huge else found == 0, found  # of some 50,000
