"""The program of volunteers as its image runs it: from the claim of a torrent until a real tracker has verified it."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from loadtest.servers import free_port
from tests.deploy.test_seed import DOCKERFILE, SERVICE
from tests.e2e.peers import PAYLOAD, Share
from tests.e2e.processes import running
from tests.volunteer.test_seeding import LIBTORRENT, PASSKEY, SIZE, files, has_claims, site
from tests.waiting import eventually

__all__ = ["files", "site"]
pytestmark = pytest.mark.slow


def command_of(url: str, data: Path, passkey_file: Path) -> list[str]:
    """The image's entry with the options of the compose file. Only paths and the address to listen on differ, and
    libtorrent may announce to a tracker on loopback."""
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    program, *words = json.loads(entry)
    assert program == "tracker"
    given = {"URL": url, "SPACE": "10MB"}
    text = "\n".join(SERVICE["command"])
    text = re.sub(r"\$\{(\w+)(?::\?[^}]*|:-([^}]*))\}", lambda found: given.get(found[1], found[2]), text)
    listen = f"127.0.0.1:{free_port()}&{LIBTORRENT.partition('&')[2]}"
    for old, new in (
        ("0.0.0.0:6881,[::]:6881", listen),
        ("/run/secrets/passkey", str(passkey_file)),
        ("/data", str(data)),
    ):
        assert text.count(old) >= 1
        text = text.replace(old, new)
    return [sys.executable, "-m", "tracker", *words, *text.splitlines()]


async def test_it_seeds_what_it_claims_until_that_is_verified(
    site: Callable[[str], Any], files: tuple[Path, str], tmp_path: Path
) -> None:
    share = Share.make(tmp_path / "wanted", private=True, size=SIZE)
    tracker = await site(share.info_hash.hex())
    shutil.copy(share.torrent("http://other.example/x/announce"), files[0] / f"{share.info_hash.hex()}.torrent")
    await tracker.offer(share, SIZE, 1)
    (data := tmp_path / "data").mkdir()
    shutil.copy(share.folder / PAYLOAD, data)
    (passkey_file := tmp_path / "passkey").write_text(f"{PASSKEY}\n")
    with running(command_of(tracker.url, data, passkey_file), tmp_path / "log"):
        await eventually(partial(has_claims, tracker, 1))
        await tracker.verify(share)
    text = (tmp_path / "log").read_text()
    assert "claimed" in text and PASSKEY not in text and "Traceback" not in text, text
    assert (data / "state.json").exists()
