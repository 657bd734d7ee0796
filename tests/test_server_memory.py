"""The memory of the private store: what its allocator is told, and that its data lies in huge pages where the system has them."""

import platform
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tracker.server_memory import server_environment, server_options
from tracker.valkey import EmbeddedValkey

HUGE = "glibc.malloc.hugetlb=1"
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def can_have_huge_pages() -> bool:
    """Where every part that it takes is known to be there."""
    name, version = platform.libc_ver()
    return (
        name == "glibc"
        and tuple(map(int, version.split("."))) >= (2, 35)
        and HUGE in server_environment({})["GLIBC_TUNABLES"]
        and ENABLED.exists()
        and "[madvise]"
        in ENABLED.read_text()  # with `always` they come later, when khugepaged has seen to it
    )


def huge_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages are asked for on Linux only")
@pytest.mark.parametrize(
    ("release", "asked"),
    [
        ("6.1.0-23-amd64", True),
        ("5.8", True),
        ("5.10.0", True),
        ("5.4.0-150-generic", False),
        ("4.19", False),
    ],
)
def test_huge_pages_are_asked_for_where_a_fork_does_not_make_them_dear(release: str, asked: bool) -> None:
    environment = server_environment({}, release)
    assert (HUGE in environment["GLIBC_TUNABLES"]) == asked
    assert server_options(environment) == ({"disable-thp": "no"} if asked else {})


def test_an_operators_choice_for_the_allocator_stands() -> None:
    environment = server_environment({"GLIBC_TUNABLES": "glibc.malloc.tcache_count=7", "LANG": "C"})
    assert environment["GLIBC_TUNABLES"] == "glibc.malloc.tcache_count=7" and environment["LANG"] == "C"
    assert server_options(environment) == {}


def test_nothing_of_ours_is_inherited() -> None:
    assert "TRACKER_ADMIN__TOKEN" not in server_environment({"TRACKER_ADMIN__TOKEN": "secret"})


@pytest.mark.skipif(not can_have_huge_pages(), reason="this system has no huge pages for the asking")
@pytest.mark.parametrize("chosen", ["", "glibc.malloc.tcache_count=7"], ids=["by default", "switched off"])
async def test_the_stores_data_lies_in_huge_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    if chosen:
        monkeypatch.setenv("GLIBC_TUNABLES", chosen)
    else:
        monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    async with EmbeddedValkey(tmp_path / "data") as server, Redis.from_url(server.url) as client:
        pid = (await client.info("server"))["process_id"]
        for n in range(64):
            await client.mset({f"{n}:{m}": b"x" * 100 for m in range(5000)})
        huge = huge_kb(pid)
    assert huge == 0 if chosen else huge >= 16_384, huge  # of some 50,000
