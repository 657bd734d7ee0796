"""``tracker torrent renumber``: gives torrents the ids of the site, while no tracker runs."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.cli.commands import change_of, load_settings, run_async
from tracker.cli.commands.reshard import opened
from tracker.cli.progress import progress
from tracker.cli.terminal import say
from tracker.errors import ClientError

if TYPE_CHECKING:
    from tracker.settings.model import Settings

_SEPARATORS = re.compile(r"[ \t,;]+")
_HASH_DIGITS = 40


def renumber(file: Path) -> None:
    """Raises ClientError, StoreRefused and StoreUnavailable."""
    wanted = _read(file)
    run_async(_run(load_settings(), wanted))


def _read(file: Path) -> dict[str | InfoHash, str]:
    """Raises ClientError."""
    from tracker.store.torrents.torrents import is_torrent_id  # noqa: PLC0415

    wanted: dict[str | InfoHash, str] = {}
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ClientError(f"{file} is not UTF-8 text") from error
    for number, line in enumerate(lines, 1):
        words = _SEPARATORS.split(line.strip())
        if words == [""] or (number == 1 and not words[-1].isdigit()):
            continue
        if len(words) != 2 or not is_torrent_id(words[1]):
            raise ClientError(f"{file} line {number}: needs an info hash or an id, and a new id of at most 14 digits")
        try:
            old = parse_info_hash(words[0]) if len(words[0]) == _HASH_DIGITS else words[0]
        except ClientError as error:
            raise ClientError(f"{file} line {number}: {error}") from None
        if wanted.setdefault(old, words[1]) != words[1]:
            raise ClientError(f"{file} line {number}: this torrent is in the file twice")
    return wanted


async def _run(settings: "Settings", wanted: dict[str | InfoHash, str]) -> None:
    from tracker.store.resharding.renumber import Renumber  # noqa: PLC0415
    from tracker.valkey.opening import command_server  # noqa: PLC0415

    async with command_server(settings) as url, opened(settings, url, new=False) as parts:
        run = Renumber(parts, time.time)
        number = await run.begin(wanted)
        with progress("keys read", 2 * await parts.size()) as shown:
            async for read in run.run():
                shown.reach(read)
        change = change_of(parts.store, "torrent.renumber")
        change.count(torrents=number)
        await change.record()
        say(f"renumbered {number} torrents")
