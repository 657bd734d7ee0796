"""Fetches the GeoIP database that TRACKER_GEOIP__DATABASE names as a source, into the data directory.

A file is streamed, bounded in size before and after it is unpacked, compared with its checksum where the source has
one, opened and looked up once, and only then renamed into place: the old one serves until then. What the source said
last is in a file beside the database, for conditional requests.

Trackers on one data directory fetch once: there is a lock beside the database. So do trackers of one user on one host:
a directory of that user has the same lock and notes for each source, and the notes name the file to copy.
"""

import asyncio
import fcntl
import gzip
import hashlib
import json
import os
import random
import shutil
import ssl
import stat
import tarfile
import zlib
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import gettempdir
from typing import IO, Any

import aiohttp

from tracker.errors import ClientError
from tracker.geoip import GeoIP, update_notes
from tracker.settings.background import GEOIP_SOURCES, GeoIPSettings
from tracker.store.stats.counters import Count
from tracker.system.http_client import open_session
from tracker.system.logger import Logger
from tracker.workers.loop import Sleep, forever

DBIP = "https://download.db-ip.com/free"
MAXMIND = "https://download.maxmind.com/geoip/databases"
MAX_FETCHED, MAX_UNPACKED = 200_000_000, 600_000_000
"""Bytes; the largest free database has about 130 MB unpacked."""
TIMEOUT = aiohttp.ClientTimeout(total=1800, connect=30, sock_read=60)
WEEK_SECONDS, CHECK_SECONDS = 7 * 86_400, 3600.0
BUSY_SECONDS = 60.0
"""Until the job looks again while another process fetches."""
_RETRY_SECONDS = 6 * 3600
_CHUNK = 1 << 18
_ASKED = bytes([8, 8, 8, 8])

log = Logger("tracker.geoip")


class NotUpdated(ClientError):
    """Why there is no newer file. ``retry_seconds``: when the source wants to be asked again; 0 if it does not say."""

    def __init__(self, text: str, retry_seconds: int = 0) -> None:
        super().__init__(text)
        self.retry_seconds = retry_seconds
        self.retry_at = 0
        """When the source may be asked again (epoch s); 0: it was not asked."""


class OthersUpdate(NotUpdated):
    """Another process fetches the database now."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a database comes from. ``urls``: the first that exists counts. ``checksum``: a URL with its SHA-256."""

    name: str
    urls: tuple[str, ...]
    checksum: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Authorization, which is not sent on to other hosts."""


def source_of(settings: GeoIPSettings, now: float, dbip: str = "", maxmind: str = "") -> Source | None:
    """The source that the settings name; None for a path. Raises ClientError without an account."""
    name = settings.source
    if name is None:
        return None
    if name.startswith("dbip-"):
        month = datetime.fromtimestamp(now, UTC).replace(day=1)
        months = (month, month - timedelta(days=1))  # this month's file comes some days late
        return Source(name, tuple(f"{dbip or DBIP}/{name}-{each:%Y-%m}.mmdb.gz" for each in months))
    if not (settings.account_id and settings.licence_key):
        raise ClientError(f"{name} needs TRACKER_GEOIP__ACCOUNT_ID and TRACKER_GEOIP__LICENCE_KEY")
    url = f"{maxmind or MAXMIND}/{name.removeprefix('maxmind:')}/download?suffix=tar.gz"
    login = f"{settings.account_id}:{settings.licence_key.get_secret_value()}"
    return Source(name, (url,), f"{url}.sha256", {"Authorization": f"Basic {b64encode(login.encode()).decode()}"})


def shared_notes(source: str) -> Path | None:
    """Where trackers of this user on this host note what they fetched of a source, without a suffix; None if another
    user may write there, or this one may not. systemd's services have a /tmp of their own, but may share a cache
    directory."""
    cache, user = os.environ.get("CACHE_DIRECTORY", "").partition(":")[0], os.geteuid()
    directory = Path(cache or f"{gettempdir()}/swarmkeeper-{user}")
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077
    return directory / source if is_private and os.access(directory, os.W_OK) else None


async def update(
    source: Source, file: Path, now: float, tls: ssl.SSLContext | None = None, shared: Path | None = None
) -> bool:
    """Brings a newer file to ``file``: one that another tracker fetched, by its ``shared`` notes, else the source's.
    False if there is none. Raises NotUpdated."""
    if shared is not None and await asyncio.to_thread(copy_fetched, file, shared):
        return True
    places = [file, shared] if shared else [file]
    with _locked(*places):
        try:
            told = await _fetch(source, file, tls)
            for place in places:
                good = {"file": str(file), "checked": int(now), "problem": "", "retry": 0}
                _note(place, {**(told or update_notes(file)), **good})
            return told is not None
        except (NotUpdated, aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = f"{source.name}: {str(error) or type(error).__name__}"
            failed = error if isinstance(error, NotUpdated) else NotUpdated(reason)
            failed.retry_at = retry = int(now) + max(failed.retry_seconds, _RETRY_SECONDS)
            with suppress(OSError):  # such as a full disk
                _note(file, {**update_notes(file), "problem": str(failed), "retry": retry})
                if shared and failed.retry_seconds:
                    _note(shared, {**update_notes(shared), "retry": retry})
            raise failed from error


def copy_fetched(file: Path, shared: Path) -> bool:
    """Copies what another tracker of this user has fetched since ``file``. False if there is nothing, or it is damaged.
    Raises NotUpdated."""
    with _locked(file, shared):
        noted, own = update_notes(shared), update_notes(file)
        exists = file.exists()
        if exists and noted.get("checked", 0) <= own.get("checked", 0):
            return False
        is_same = exists and "digest" in noted and noted["digest"] == own.get("digest")
        if not is_same:
            try:
                with _scratch(file) as scratch:
                    fresh = scratch / "database.mmdb"
                    with open(noted.get("file", ""), "rb", opener=_open_regular) as content:
                        _copy(content, fresh)
                    _try(fresh)
                    fresh.replace(file)
            except (OSError, ValueError, NotUpdated):  # missing, damaged, or no path
                return False
        _note(file, noted)
        return not is_same


@contextmanager
def _scratch(file: Path) -> Iterator[Path]:
    """A directory beside ``file``, whose lock is held. What a process left there that was killed is removed."""
    scratch = file.with_name(f".fetching-{file.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _open_regular(path: str, flags: int) -> int:
    """Raises OSError unless it is a file of this user."""
    opened = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(opened)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return opened
    os.close(opened)
    raise PermissionError(path)


async def update_now(settings: GeoIPSettings, file: Path | None, now: float) -> bool:
    """Fetches what the settings name. Raises ClientError."""
    source = source_of(settings, now)
    if source is None or file is None:
        raise ClientError(f"TRACKER_GEOIP__DATABASE names no source; there are: {', '.join(GEOIP_SOURCES)}")
    return await update(source, file, now, shared=shared_notes(source.name))


async def _fetch(source: Source, file: Path, tls: ssl.SSLContext | None) -> dict[str, str] | None:
    async with open_session(TIMEOUT, tls=tls or ssl.create_default_context()) as session:
        for url in source.urls:
            async with session.get(url, headers={**source.headers, **_conditions(file, url)}) as response:
                if response.status == 304:
                    return None
                if response.status == 404 and url != source.urls[-1]:
                    continue
                _check(response, source)
                with _scratch(file) as scratch:
                    packed = scratch / "packed"
                    digest = await _save(response, packed)
                    await _compare(session, source, digest)
                    fresh = scratch / "database.mmdb"
                    await asyncio.to_thread(_unpack, packed, fresh)
                    await asyncio.to_thread(_try, fresh)
                    fresh.replace(file)
                etag, modified = (response.headers.get(name, "") for name in ("ETag", "Last-Modified"))
                return {"url": url, "digest": digest, "etag": etag, "modified": modified}
    raise NotUpdated(f"{source.name} has no file")


def _conditions(file: Path, url: str) -> dict[str, str]:
    noted = update_notes(file) if file.exists() else {}
    if noted.get("url") != url:
        return {}
    heads = {"If-None-Match": noted.get("etag"), "If-Modified-Since": noted.get("modified")}
    return {name: value for name, value in heads.items() if value}


def _check(response: aiohttp.ClientResponse, source: Source) -> None:
    if response.status in (401, 403):
        raise NotUpdated(f"{source.name} refuses the account: check TRACKER_GEOIP__ACCOUNT_ID and its licence key")
    if response.status == 429:
        after = response.headers.get("Retry-After", "")
        seconds = min(int(after[:9]), WEEK_SECONDS) if after.isdecimal() else 0
        raise NotUpdated(f"{source.name} was asked too often", seconds)
    if response.status != 200:
        raise NotUpdated(f"{source.name} answered with status {response.status}")
    if response.url.scheme != "https":
        raise NotUpdated(f"{source.name} redirects to a URL without TLS")


async def _save(response: aiohttp.ClientResponse, file: Path) -> str:
    """Writes the body, and returns its SHA-256."""
    digest, length = hashlib.sha256(), 0
    with file.open("wb") as out:
        async for chunk in response.content.iter_chunked(_CHUNK):
            length += len(chunk)
            if length > MAX_FETCHED:
                raise NotUpdated(f"the file has more than {MAX_FETCHED // 1_000_000} MB")
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


async def _compare(session: aiohttp.ClientSession, source: Source, digest: str) -> None:
    if source.checksum:
        async with session.get(source.checksum, headers=source.headers) as response:
            _check(response, source)
            expected = (await response.content.read(200)).split(maxsplit=1)
        if not expected or expected[0].decode("latin-1").lower() != digest:
            raise NotUpdated(f"{source.name}: the file differs from its checksum")


def _unpack(packed: Path, fresh: Path) -> None:
    """The database in a .gz or .tar.gz."""
    try:
        with gzip.open(packed) as unpacked:
            is_tar = unpacked.read(512)[257:262] == b"ustar"
        if not is_tar:
            with gzip.open(packed) as unpacked:
                _copy(unpacked, fresh)
            return
        with tarfile.open(packed, "r|gz") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.endswith(".mmdb") else None
                if content is not None:
                    _copy(content, fresh)
                    return
    except (EOFError, zlib.error, tarfile.TarError, gzip.BadGzipFile) as error:
        raise NotUpdated("the file is damaged or incomplete") from error
    raise NotUpdated("the file has no database")


def _copy(content: "IO[bytes] | gzip.GzipFile", fresh: Path) -> None:
    length = 0
    with fresh.open("wb") as out:
        while chunk := content.read(_CHUNK):
            length += len(chunk)
            if length > MAX_UNPACKED:
                raise NotUpdated(f"the database has more than {MAX_UNPACKED // 1_000_000} MB")
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())


def _try(fresh: Path) -> None:
    """Opens the file and looks an address up."""
    places = GeoIP(fresh)
    try:
        places.lookup(_ASKED)
        if places.describe() is None or places.problem:
            raise NotUpdated(f"the file is no database of places: {places.problem}")
    finally:
        places.close()


@contextmanager
def _locked(*places: Path) -> Iterator[None]:
    """Raises OthersUpdate while another process fetches, and NotUpdated where a place cannot be written."""
    try:
        with ExitStack() as stack:
            for place in places:
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = stack.enter_context(place.with_suffix(".lock").open("w"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise OthersUpdate("another process fetches the database now") from None
            yield
    except OSError as error:
        raise NotUpdated(str(error)) from error


def _note(file: Path, noted: dict[str, Any]) -> None:
    fresh = file.with_suffix(".json.new")
    fresh.write_text(json.dumps(noted), "utf-8")
    fresh.replace(file.with_suffix(".json"))


@dataclass(eq=False)
class GeoIPUpdater:
    """Fetches the database each week, and again some hours after a failure. ``chance`` gives numbers in [0, 1);
    ``shared`` is shared_notes()."""

    settings: Callable[[], tuple[GeoIPSettings, Path | None]]
    count: Count
    clock: Callable[[], float]
    _: KW_ONLY
    fetch: Callable[..., Awaitable[bool]] = update
    shared: Callable[[str], Path | None] = shared_notes
    chance: Callable[[], float] = random.random
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self._jitter = 1 + self.chance() / 4
        self._retry: tuple[Path | None, int] = None, 0
        """The file of a source that refused, and when to ask again: its notes say that too, but not on a full disk."""

    async def run(self) -> None:
        await forever(self.step, None, sleep=lambda seconds: self.sleep(seconds * self._jitter))

    async def step(self) -> float:
        """Returns the seconds until the next one."""
        settings, file = self.settings()
        if settings.source is None or file is None:
            return CHECK_SECONDS
        try:
            shared = self.shared(settings.source)
            updated = shared is not None and await asyncio.to_thread(copy_fetched, file, shared)
            if not updated and self._is_due(file, shared):
                source = source_of(settings, self.clock())
                updated = source is not None and await self.fetch(source, file, self.clock(), shared=shared)
            if updated:
                log.info("geoip database updated", source=settings.source)
        except OthersUpdate:
            return BUSY_SECONDS
        except ClientError as error:
            self._retry = file, error.retry_at if isinstance(error, NotUpdated) else 0
            self.count("geoip.failed")
            log.warning("geoip database not updated", source=settings.source, error=str(error))
        return CHECK_SECONDS

    def _is_due(self, file: Path, shared: Path | None) -> bool:
        """Times that are too far ahead were noted before the clock was set back."""
        now, own, others = self.clock(), update_notes(file), update_notes(shared) if shared else {}
        retry = self._retry[1] if self._retry[0] == file else 0
        if any(now < at <= now + WEEK_SECONDS for at in (retry, own.get("retry", 0), others.get("retry", 0))):
            return False
        return not file.exists() or not 0 <= now - own.get("checked", 0) <= WEEK_SECONDS * self._jitter
