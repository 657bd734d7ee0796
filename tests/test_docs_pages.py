"""Pages for operators: commands work, quoted messages exist, configurations are valid, and the site builds."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from loadtest.servers import ROOT, Server
from tests.store.harness import Store, running, update
from tracker.bittorrent import InfoHash, PeerId
from tracker.core import warning_messages
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

DOCS = ROOT / "docs"
PASSKEY = "0123456789abcdef0123456789abcdef01234567"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def redis_commands(*, sharded: bool) -> list[list[str]]:
    """The words of each command, without the program. Those for a store with shards have the option -c."""
    lines = [shlex.split(line, comments=True) for block in blocks("redis.md", "sh") for line in block.splitlines()]
    assert all(line[0] == "redis-cli" for line in lines)
    return [line[1 + sharded :] for line in lines if (line[1] == "-c") == sharded]


@pytest.fixture
async def filled_server(valkey: Server) -> Server:
    """A store with data for the commands of the page."""
    await fill(valkey, InfoHash(b"\x01" * 20), shards=1)
    return valkey


async def fill(valkey: Server, info_hash: InfoHash, shards: int) -> None:
    with valkey.client() as client:
        client.flushall()
    async with running(
        Store(valkey.url, Keys("t:"), SwarmRules(accounts="required", peer_memory=3600), shards=shards)
    ) as store:
        await store.users.add("1", PASSKEY)
        peer = PeerId(b"-TR4000-abcdefghijkl")
        changes: dict[str, Any] = {"info_hash": info_hash, "peer_id": peer, "passkey": PASSKEY, "timeout_seconds": 600}
        for event, left in (("s", 5), ("c", 0)):
            await store.announce(update(1, event, bytes_left=left, **changes))
        store.counters.count("announces", "failures.denied")
        await store.counters.flush()
        for shard in store.shards if shards > 1 else ():
            await store.user_sums.save_changed(shard)


MAY_BE_EMPTY = (
    "t:stats:repairs",
    ":hnr",
    "t:i:hnr",
    "t:deny:",
    "t:countries.",
    "t:i:unique:",
    "t:history:",
    "t:i:score",
)
"""Parts of commands that may return nothing from a new store."""


async def test_every_command_for_redis_works(filled_server: Server) -> None:
    with filled_server.client() as client:
        for words in redis_commands(sharded=False):
            check_command(client, words)
        client.flushall()


async def test_every_command_for_redis_works_with_shards(valkey: Server) -> None:
    await fill(valkey, InfoHash(b"\x02" * 20), shards=16)
    with valkey.client() as client:
        commands = redis_commands(sharded=True)
        assert len(commands) > 5
        for words in commands:
            check_command(client, words)
        client.flushall()


async def test_the_commands_for_redis_of_other_pages_are_accepted(filled_server: Server) -> None:
    with filled_server.client() as client:
        for page in ("jobs.md", "scores.md", "uniques.md"):
            for block in blocks(page, "redis"):
                for line in block.splitlines():
                    program, *words = shlex.split(line, comments=True)
                    assert program == "redis-cli"
                    client.execute_command(*words)
        client.flushall()


def check_command(client: Any, words: list[str]) -> None:
    answer = client.execute_command(*words)
    is_empty_possible = any(part in word for part in MAY_BE_EMPTY for word in words)
    if words[0] not in ("SET", "HSET", "DEL", "PUBLISH") and not is_empty_possible:
        assert answer not in (None, b"", [], {}, 0), words


def texts() -> Iterator[str]:
    """Yields every warning for peers. tests/test_refusals.py has the refusals."""
    yield from (
        warning_messages.PRIVATE_ADDRESS,
        warning_messages.UNKNOWN_PASSKEY,
        warning_messages.FREELEECH,
        warning_messages.NEUTRAL,
        *warning_messages.WARNINGS.values(),
    )


def test_every_warning_for_peers_is_explained() -> None:
    page = unescape((DOCS / "troubleshooting.md").read_text("utf-8"))
    messages = set(texts())
    assert not {text for text in messages if f"| {text} |" not in page}


NGINX = ["nginx", "-t", "-p", ".", "-c"]


@pytest.mark.parametrize(
    ("page", "language", "check"),
    [
        ("proxies.md", "nginx", NGINX),
        ("proxies.md", "haproxy", ["haproxy", "-c", "-f"]),
        ("webtorrent.md", "nginx", NGINX),
    ],
)
def test_proxies_accept_the_documented_configurations(
    page: str, language: str, check: list[str], tmp_path: Path
) -> None:
    program = shutil.which(check[0], path=f"{Path('/usr/sbin')}:{Path('/usr/bin')}:{Path('/usr/local/bin')}")
    if program is None:
        pytest.skip(f"{check[0]} is not installed")
    (block,) = blocks(page, language)
    if language == "nginx":
        block = re.sub(r"listen 80;", f"listen unix:{tmp_path}/s;", block)
        block = block.replace("listen [::]:80;", "")
        block = f"pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}} http {{ {block} }}"
    file = tmp_path / "conf"
    file.write_text(block)
    done = subprocess.run([program, *check[1:], str(file)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "quickstart.html").read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)=["']?https?://[^"' >]*\.(?:js|css|woff2?)""", page), (
        "the site must not load files from the internet"
    )
    titles = [" ".join(title.split()) for title in re.findall(r'class="md-ellipsis">([^<]*)<', page)]
    assert "redis.conf" in titles and "Settings" in titles
    assert not {"", "None"} & set(titles)
