"""``tracker reshard``: fills a new store from one with another number of shards. ``tracker torrent renumber``: gives
torrents the ids of the site. No tracker runs meanwhile."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.cli.commands import AsJson, Yes, change_of, confirm, load_settings, run_async
from tracker.cli.progress import progress
from tracker.cli.terminal import describe, note, say, show
from tracker.errors import ClientError, plain

if TYPE_CHECKING:
    from tracker.settings.model import Settings
    from tracker.store.resharding.parts import Parts
    from tracker.store.resharding.reshard import Counts, Reshard

_TIMEOUT_SECONDS = 60.0
"""A large key takes a server longer than an announce."""
_SEPARATORS = re.compile(r"[ \t,;]+")
_HASH_DIGITS = 40


def reshard(
    shards: Annotated[int, Option(metavar="N", help="Shards of the new store: 1, or a power of two.")],
    url: Annotated[str | None, Option(metavar="URL", help="Server of the new store. Default: the same server.")] = None,
    url_file: Annotated[
        Path | None, Option(metavar="FILE", help="File with that URL, for one with a password.")
    ] = None,
    private: Annotated[
        bool, Option("--private", help="The new store is the private one in the data directory.")
    ] = False,
    prefix: Annotated[
        str | None, Option(metavar="PREFIX", help="Prefix of the new store. Default: the same prefix.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Count and check only.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Copy the store into a new one with another number of shards, while no tracker runs on either.

    The settings name the old store, which is only read. If it is interrupted, run it again: it continues, or starts
    again.
    """
    settings = load_settings()
    target = _target(settings, shards, _url_of(url, url_file), private=private, prefix=prefix)
    confirm("Has every tracker on this store been stopped?", yes=yes or dry_run)
    run_async(_run(settings, target, dry_run=dry_run, as_json=as_json))


def _url_of(url: str | None, file: Path | None) -> str | None:
    if url is not None and file is not None:
        raise ClientError("choose --url or --url-file")
    return file.read_text(encoding="utf-8").strip() if file is not None else url


def _target(settings: "Settings", shards: int, url: str | None, *, private: bool, prefix: str | None) -> "Settings":
    """The settings of the new store."""
    from pydantic import SecretStr, ValidationError  # noqa: PLC0415

    from tracker.settings.store import RedisSettings  # noqa: PLC0415

    redis = settings.redis
    if private and url is not None:
        raise ClientError("choose --private or the URL of a server")
    old = redis.url.get_secret_value() if redis.url else None
    new = None if private else url or old
    changed = {
        "url": SecretStr(new) if new else None,
        "shards": shards,
        "prefix": redis.prefix if prefix is None else prefix,
        "tls_ca_file": redis.tls_ca_file if new and new.lower().startswith("rediss") else None,
    }
    try:
        made = RedisSettings.model_validate({**redis.model_dump(), **changed})
    except ValidationError as error:
        raise ClientError("; ".join(plain(each["msg"]) for each in error.errors())) from error
    if (new, made.shards, made.prefix) == (old, redis.shards, redis.prefix):
        raise ClientError("this is the old store: choose another number of shards, server or prefix")
    return settings.model_copy(update={"redis": made})


@asynccontextmanager
async def opened(settings: "Settings", url: str, *, new: bool) -> AsyncIterator["Parts"]:
    from tracker.runtime.store import build_store, open_connection  # noqa: PLC0415
    from tracker.store.resharding.parts import Parts  # noqa: PLC0415

    async with open_connection(url, settings.redis, _TIMEOUT_SECONDS) as (connection, _):
        store = build_store(connection, settings)
        if not new:
            await store.check_layout()
        yield Parts(store, settings.redis.prefix)


async def _run(settings: "Settings", new: "Settings", *, dry_run: bool, as_json: bool) -> None:
    from tracker.store.resharding.reshard import Reshard, count  # noqa: PLC0415
    from tracker.valkey.opening import command_server  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(command_server(settings))
        if new.redis.url == settings.redis.url:
            new_url = url
        else:
            new_url = await stack.enter_async_context(command_server(new))
        source = await stack.enter_async_context(opened(settings, url, new=False))
        target = await stack.enter_async_context(opened(new, new_url, new=True))
        run = Reshard(source, target, time.time)
        await run.check()
        with progress("keys counted", await source.size()) as shown:
            before = await count(source, shown.reach)
        if before.unknown:
            note(f"{before.unknown} keys that docs/keys.md does not name are not copied")
        if dry_run:
            describe({**before.figures}, as_json=as_json)
            return
        after = await _copy(run, source, target, before)
        change = change_of(target.store, "reshard")
        change.note(shards=len(target.shards), before=len(source.shards))
        change.count(keys=after.figures["keys"])
        await change.record()
        _show(before, after, as_json=as_json)
        if not as_json:
            say(f"the new store is complete: set TRACKER_REDIS__SHARDS={new.redis.shards} before the next start")


async def _copy(run: "Reshard", source: "Parts", target: "Parts", before: "Counts") -> "Counts":
    with progress("keys copied", await source.size()) as shown:
        async for read in run.copy():
            shown.reach(read)
    note("writing sums, rankings, the change feed and copies of users")
    await run.join()
    with progress("keys checked", await target.size()) as shown:
        return await run.finish(before, shown.reach)


def _show(before: "Counts", after: "Counts", *, as_json: bool) -> None:
    for name, number in before.figures.items():
        text = f"{name:<12}{number:>15,} before{after.figures[name]:>15,} after"
        show({"what": name, "before": number, "after": after.figures[name]}, text, as_json=as_json)


def renumber(file: Path) -> None:
    """Raises ClientError, StoreRefused and StoreUnavailable."""
    wanted = _read_ids(file)
    run_async(_renumber(load_settings(), wanted))


def _read_ids(file: Path) -> dict[str | InfoHash, str]:
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


async def _renumber(settings: "Settings", wanted: dict[str | InfoHash, str]) -> None:
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
