"""The memory of the private store: its allocator, and that its data lies in huge pages where the system has them."""

import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tracker.server_memory import server_environment, server_options
from tracker.valkey import EmbeddedValkey

ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")

pytestmark = pytest.mark.skipif(
    "LD_PRELOAD" not in server_environment({}), reason="the allocator has no wheel for this system"
)


def can_have_huge_pages() -> bool:
    """With `always` they come later, when khugepaged has seen to it."""
    asked = server_options(server_environment({})) == {"disable-thp": "no"}
    return asked and ENABLED.exists() and "[madvise]" in ENABLED.read_text()


def huge_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))


def is_loaded(pid: int) -> bool:
    return "libmimalloc" in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize(
    ("release", "allowed"),
    [
        ("6.1.0-23-amd64", True),
        ("5.8", True),
        ("5.10.0", True),
        ("5.4.0-150-generic", False),
        ("4.19", False),
    ],
)
def test_huge_pages_are_allowed_where_a_fork_does_not_make_them_dear(release: str, allowed: bool) -> None:
    assert server_options(server_environment({}), release) == ({"disable-thp": "no"} if allowed else {})


@pytest.mark.parametrize("theirs", ["", "/usr/lib/libjemalloc.so.2"])
def test_what_an_operator_has_loaded_stands(theirs: str) -> None:
    environment = server_environment({"LD_PRELOAD": theirs, "LANG": "C"})
    assert environment == {"LD_PRELOAD": theirs, "LANG": "C"}
    assert server_options(environment) == {}


def test_nothing_of_ours_is_inherited() -> None:
    assert "TRACKER_ADMIN__TOKEN" not in server_environment({"TRACKER_ADMIN__TOKEN": "secret"})


def test_it_goes_without_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert server_environment({}) == {} == server_options({})


@pytest.mark.parametrize(("folder", "usable"), [("here", True), ("two words", False), ("a:b", False)])
def test_it_goes_without_where_the_loader_would_take_a_path_for_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, usable: bool
) -> None:
    installed = distribution("cmeel-mimalloc")
    for part in ("cmeel.prefix/lib/libmimalloc.so", f"cmeel_mimalloc-{installed.version}.dist-info/METADATA"):
        (tmp_path / folder / part).parent.mkdir(parents=True)
        shutil.copy(str(installed.locate_file(part)), tmp_path / folder / part)
    monkeypatch.setattr(sys, "path", [str(tmp_path / folder)])
    library = tmp_path / folder / "cmeel.prefix/lib/libmimalloc.so"
    assert server_environment({}) == ({"LD_PRELOAD": str(library)} if usable else {})


@pytest.mark.skipif(not can_have_huge_pages(), reason="this system has no huge pages for the asking")
@pytest.mark.parametrize("chosen", [None, ""], ids=["by default", "switched off"])
async def test_the_stores_data_lies_in_huge_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    if chosen is None:
        monkeypatch.delenv("LD_PRELOAD", raising=False)
    else:
        monkeypatch.setenv("LD_PRELOAD", chosen)
    async with EmbeddedValkey(tmp_path / "data") as server, Redis.from_url(server.url) as client:
        pid = (await client.info("server"))["process_id"]
        for n in range(64):
            await client.mset({f"{n}:{m}": b"x" * 100 for m in range(5000)})
        huge, loaded = huge_kb(pid), is_loaded(pid)
    assert loaded == (chosen is None)
    assert huge >= 16_384 if chosen is None else huge == 0, huge  # of some 50,000
