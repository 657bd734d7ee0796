"""GeoIP databases are fetched from a server that behaves like each source, over HTTPS."""

import asyncio
import gzip
import hashlib
import io
import json
import os
import ssl
import tarfile
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr

from loadtest.geoip_databases import make_city
from loadtest.servers import make_certificate
from tests.commands import command, set_store
from tests.store.jobs.harness import Metrics
from tests.waiting import in_background
from tracker.errors import ClientError
from tracker.geoip import GeoIP, update_notes
from tracker.settings.background import GEOIP_SOURCES, GeoIPSettings
from tracker.settings.model import DataSettings, Settings
from tracker.workers import geoip_update
from tracker.workers.geoip_update import (
    BUSY_SECONDS,
    WEEK_SECONDS,
    GeoIPUpdater,
    NotUpdated,
    Source,
    shared_notes,
    source_of,
    update,
)

NOW = datetime(2030, 3, 2, tzinfo=UTC).timestamp()
MARCH, FEBRUARY = "dbip-city-lite-2030-03.mmdb.gz", "dbip-city-lite-2030-02.mmdb.gz"
EDITION = "GeoLite2-City"
Handler = Callable[[web.Request], Any]


@dataclass
class Host:
    """An HTTPS server. ``answers``: what it answers by the last part of the path, or `path?query`; "" for all else."""

    url: str = ""
    tls: ssl.SSLContext | None = None
    certificate: Path = Path()
    answers: dict[str, Handler] = field(default_factory=dict)
    requests: list[web.Request] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        name = request.path.rpartition("/")[2] + (f"?{request.query_string}" if request.query_string else "")
        handler = self.answers.get(name) or self.answers.get("")
        answer = web.Response(status=404) if handler is None else handler(request)
        return await answer if asyncio.iscoroutine(answer) else answer

    def serve(self, name: str, body: bytes, **headers: str) -> None:
        def answer(request: web.Request) -> web.Response:
            if headers.get("ETag") and request.headers.get("If-None-Match") == headers["ETag"]:
                return web.Response(status=304)
            return web.Response(body=body, headers=headers)

        self.answers[name] = answer


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    certificate = make_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    found = Host(tls=ssl.create_default_context(cafile=str(certificate)), certificate=certificate)
    app = web.Application()
    app.router.add_get("/{path:.*}", found.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    found.url = f"https://127.0.0.1:{port}"
    yield found
    await runner.cleanup()


@pytest.fixture
def database(tmp_path: Path) -> bytes:
    return make_city(tmp_path / "made.mmdb").read_bytes()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "geoip" / "places.mmdb"


def dbip(host: Host) -> Source:
    source = source_of(GeoIPSettings(database=Path("dbip-city-lite")), NOW, dbip=f"{host.url}/free")
    assert source is not None
    return source


def maxmind(host: Host) -> Source:
    settings = GeoIPSettings(database=Path(f"maxmind:{EDITION}"), account_id="7", licence_key=SecretStr("a key"))
    source = source_of(settings, NOW, maxmind=host.url)
    assert source is not None
    return source


def archive(database: bytes, name: str = f"{EDITION}_20300301/{EDITION}.mmdb") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for each, content in ((f"{EDITION}_20300301/LICENSE.txt", b"a licence"), (name, database)):
            member = tarfile.TarInfo(each)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def put(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


async def refused(source: Source, file: Path, host: Host, match: str) -> NotUpdated:
    """Nothing changes, nothing is left, and the reason is noted."""
    before = content(file)
    with pytest.raises(NotUpdated, match=match) as raised:
        await update(source, file, NOW, host.tls)
    assert content(file) == before
    assert not list(file.parent.glob(".fetching-*"))
    assert update_notes(file)["problem"] == str(raised.value)
    return raised.value


async def test_dbips_file_of_this_month_is_fetched_once(host: Host, file: Path, database: bytes) -> None:
    host.serve(MARCH, gzip.compress(database), ETag='"march"')
    assert await update(dbip(host), file, NOW, host.tls)
    assert content(file) == database
    places = GeoIP(file)
    assert places.describe() is not None
    places.close()
    assert not await update(dbip(host), file, NOW + 1, host.tls)
    assert [each.headers.get("If-None-Match") for each in host.requests] == [None, '"march"']
    assert "Authorization" not in host.requests[0].headers
    assert update_notes(file)["checked"] == int(NOW) + 1


async def test_before_this_months_file_is_there_the_last_one_serves(host: Host, file: Path, database: bytes) -> None:
    host.serve(FEBRUARY, gzip.compress(database), ETag='"february"')
    assert await update(dbip(host), file, NOW, host.tls)
    assert [each.path.rpartition("/")[2] for each in host.requests] == [MARCH, FEBRUARY]
    assert not await update(dbip(host), file, NOW, host.tls)
    host.serve(MARCH, gzip.compress(database), ETag='"march"')
    assert await update(dbip(host), file, NOW, host.tls)
    host.answers.clear()
    await refused(dbip(host), file, host, "status 404")


async def test_maxminds_archive_is_fetched_with_the_account_and_its_checksum(
    host: Host, file: Path, database: bytes
) -> None:
    packed = archive(database)

    def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/storage/archive.tar.gz"})

    host.answers["download?suffix=tar.gz"] = redirect
    host.serve("archive.tar.gz", packed)
    digest = hashlib.sha256(packed).hexdigest()
    host.serve("download?suffix=tar.gz.sha256", f"{digest}  {EDITION}_20300301.tar.gz\n".encode())
    assert await update(maxmind(host), file, NOW, host.tls)
    assert content(file) == database
    assert host.requests[0].headers["Authorization"] == "Basic " + b64encode(b"7:a key").decode()
    host.serve("download?suffix=tar.gz.sha256", b"0" * 64)
    await refused(maxmind(host), file, host, "differs from its checksum")


@pytest.mark.parametrize(
    ("answer", "text", "retry"),
    [
        (web.Response(status=401), "refuses the account", 0),
        (web.Response(status=429, headers={"Retry-After": "90000"}), "asked too often", 90_000),
        (web.Response(status=429, headers={"Retry-After": "9" * 5000}), "asked too often", WEEK_SECONDS),
        (web.Response(status=500), "status 500", 0),
    ],
    ids=["401", "429", "429 for ever", "500"],
)
async def test_a_refusal_keeps_the_old_file_and_waits(
    host: Host, file: Path, database: bytes, answer: web.Response, text: str, retry: int
) -> None:
    put(file, database)
    host.answers["download?suffix=tar.gz"] = lambda _: web.Response(status=answer.status, headers=answer.headers)
    error = await refused(maxmind(host), file, host, text)
    assert error.retry_seconds == retry
    assert update_notes(file)["retry"] >= NOW + max(retry, 3600)


async def test_a_redirect_to_plain_http_is_not_followed_to_a_file(host: Host, file: Path) -> None:
    plain = host.url.replace("https", "http")
    host.answers[MARCH] = lambda _: web.Response(status=302, headers={"Location": f"{plain}/x"})
    await refused(dbip(host), file, host, "dbip-city-lite|without TLS")


async def test_what_is_no_whole_database_is_not_used(host: Host, file: Path, database: bytes) -> None:
    whole = gzip.compress(database)
    for body, text in (
        (whole[:-20], "damaged or incomplete"),
        (whole[: len(whole) // 2], "damaged or incomplete"),
        (b"<html>not found</html>", "damaged or incomplete"),
        (gzip.compress(b"no database"), "no database of places"),
        (gzip.compress(database[: len(database) // 2]), "no database of places"),
        (archive(b"text", "readme.txt"), "has no database"),
    ):
        host.serve(MARCH, body)
        await refused(dbip(host), file, host, text)


async def test_a_body_that_ends_early_is_no_file(host: Host, file: Path, database: bytes) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100000"})
        await response.prepare(request)
        await response.write(database[:1000])
        assert request.transport is not None
        request.transport.abort()
        return response

    host.answers[MARCH] = cut
    await refused(dbip(host), file, host, "dbip-city-lite")


async def test_sizes_are_bounded_before_and_after_unpacking(
    host: Host, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file may unpack to gigabytes of zeros."""
    monkeypatch.setattr(geoip_update, "MAX_UNPACKED", 5_000_000)
    host.serve(MARCH, gzip.compress(bytes(20_000_000)))
    await refused(dbip(host), file, host, "the database has more than 5 MB")
    monkeypatch.setattr(geoip_update, "MAX_FETCHED", 10_000)
    await refused(dbip(host), file, host, "the file has more than")


async def test_a_source_that_is_slow_ends_in_time(host: Host, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geoip_update, "TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    never = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await never.wait()
        return response

    host.answers[MARCH] = slow
    await refused(dbip(host), file, host, "Timeout|timeout")
    never.set()


async def test_an_unknown_certificate_is_refused(host: Host, file: Path, database: bytes) -> None:
    host.serve(MARCH, gzip.compress(database))
    with pytest.raises(NotUpdated, match="certificate"):
        await update(dbip(host), file, NOW)


async def test_two_processes_fetch_once(host: Host, file: Path, database: bytes) -> None:
    """That another one fetches is no failure."""
    metrics = Metrics()

    asked, go_on = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        asked.set()
        await go_on.wait()
        return web.Response(body=gzip.compress(database))

    host.answers[MARCH] = wait

    async def first() -> None:
        await update(dbip(host), file, NOW, host.tls)

    async with in_background(first()):
        await asked.wait()
        with pytest.raises(NotUpdated, match="another process"):
            await update(dbip(host), file, NOW, host.tls)
        settings = GeoIPSettings(database=Path("dbip-city-lite"))
        job = GeoIPUpdater(lambda: (settings, file), metrics.count, lambda: NOW, shared=lambda _: None)
        assert await job.step() == BUSY_SECONDS and not metrics.counts
        go_on.set()
        while content(file) is None:
            await asyncio.sleep(0)
    assert len(host.requests) == 1


async def test_trackers_of_one_user_on_a_host_fetch_once(
    host: Host, tmp_path: Path, database: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a data directory of its own. A failure that names a time holds for all of them."""
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))
    now, metrics = NOW, Metrics()
    settings = GeoIPSettings(database=Path("dbip-city-lite"))
    files = [tmp_path / name / "places.mmdb" for name in ("one", "two")]

    async def fetch(source: Source, file: Path, at: float, shared: Path | None) -> bool:
        return await update(dbip(host), file, at, host.tls, shared)

    def job(file: Path) -> GeoIPUpdater:
        return GeoIPUpdater(lambda: (settings, file), metrics.count, lambda: now, fetch=fetch, chance=lambda: 0.0)

    jobs = list(map(job, files))

    async def steps(contents: bytes, requests: int, at: float) -> None:
        nonlocal now
        now = at
        for _ in range(2):
            for each in jobs:
                await each.step()
        assert [content(file) for file in files] == [contents] * 2
        assert len(host.requests) == requests

    host.serve(MARCH, gzip.compress(database), ETag='"march"')
    await steps(database, 1, NOW)
    await steps(database, 2, NOW + WEEK_SECONDS + 1)
    newer = make_city(tmp_path / "newer.mmdb", built=NOW).read_bytes()
    host.serve(MARCH, gzip.compress(newer), ETag='"newer"')
    jobs.reverse()
    await steps(newer, 3, NOW + 2 * WEEK_SECONDS + 2)
    host.answers[MARCH] = lambda _: web.Response(status=429, headers={"Retry-After": "90000"})
    await steps(newer, 4, NOW + 3 * WEEK_SECONDS + 3)
    assert metrics.counts == {"geoip.failed": 1}


async def test_a_damaged_or_missing_file_of_another_tracker_is_not_copied(
    host: Host, file: Path, tmp_path: Path, database: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))
    shared = shared_notes("dbip-city-lite")
    other = tmp_path / "other" / "places.mmdb"
    host.serve(MARCH, gzip.compress(database), ETag='"march"')
    assert await update(dbip(host), other, NOW, host.tls, shared)
    link = tmp_path / "link"

    def halve() -> None:
        other.write_bytes(database[: len(database) // 2])

    def link_to_it() -> None:
        other.rename(link)
        other.symlink_to(link)

    for damage in (halve, link_to_it, other.unlink):
        damage()
        file = file.with_name(damage.__name__)
        host.requests.clear()
        assert await update(dbip(host), file, NOW, host.tls, shared)
        assert content(file) == database and len(host.requests) == 1
        assert await update(dbip(host), other, NOW, host.tls, shared) or other.exists()


async def test_what_a_killed_process_left_is_removed(host: Host, file: Path, database: bytes) -> None:
    host.serve(MARCH, gzip.compress(database))
    left = file.with_name(f".fetching-{file.name}")
    left.mkdir(parents=True)
    (left / "packed").write_bytes(bytes(1000))
    assert await update(dbip(host), file, NOW, host.tls)
    assert content(file) == database and not left.exists()


@pytest.mark.parametrize(
    "notes",
    [
        {"checked": "yesterday", "retry": [], "file": 5, "digest": None},
        {"checked": NOW + 10**9, "retry": NOW + 10**9},
        {"file": "/\0", "checked": NOW + 10**9},
    ],
    ids=["other types", "the clock was set back", "no path"],
)
async def test_the_job_survives_any_notes(
    host: Host, file: Path, tmp_path: Path, database: bytes, notes: dict[str, Any]
) -> None:
    shared = tmp_path / "shared" / "dbip-city-lite"
    for place in (file, shared):
        put(place.with_suffix(".json"), json.dumps(notes).encode())
    put(file, database)
    fetched: list[float] = []

    async def fetch(source: Source, place: Path, at: float, shared: Path | None) -> bool:
        fetched.append(at)
        return True

    settings = GeoIPSettings(database=Path("dbip-city-lite"))
    job = GeoIPUpdater(
        lambda: (settings, file), lambda *names, by=1: None, lambda: NOW, fetch=fetch, shared=lambda _: shared
    )
    await job.step()
    assert fetched == [NOW]


@pytest.mark.parametrize("name", ["places.lock", "shared.lock"])
async def test_a_place_that_cannot_be_written_is_a_failure_that_is_counted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    metrics = Metrics()

    settings, file = GeoIPSettings(database=Path("dbip-city-lite")), tmp_path / "places.mmdb"
    job = GeoIPUpdater(lambda: (settings, file), metrics.count, lambda: NOW, shared=lambda _: tmp_path / "shared")
    await job.step()
    assert metrics.counts == {"geoip.failed": 1}


async def test_a_source_is_not_asked_again_early_where_no_note_can_be_written(host: Host, file: Path) -> None:
    """As on a full disk."""
    host.answers[MARCH] = lambda _: web.Response(status=429, headers={"Retry-After": "90000"})
    put(file.with_suffix(".json.new") / "in the way", b"")
    now, settings, place = NOW, GeoIPSettings(database=Path("dbip-city-lite")), file

    async def fetch(_: Source, to: Path, at: float, shared: Path | None) -> bool:
        return await update(dbip(host), to, at, host.tls, shared)

    job = GeoIPUpdater(
        lambda: (settings, place), lambda *names, by=1: None, lambda: now, fetch=fetch, shared=lambda _: None
    )
    for hours, asked in ((0, 1), (1, 1), (24, 1), (26, 2)):
        now = NOW + hours * 3600
        await job.step()
        assert len(host.requests) == asked
    assert not update_notes(file)
    place = file.with_name("other.mmdb")  # the operator has chosen another source
    await job.step()
    assert len(host.requests) == 3


def test_notes_where_other_users_may_write_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("CACHE_DIRECTORY", f"{cache}:/elsewhere")
    assert shared_notes("dbip-city-lite") == cache / "dbip-city-lite"
    cache.chmod(0o770)
    assert shared_notes("dbip-city-lite") is None
    cache.chmod(0o700)
    cache.rename(tmp_path / "moved")
    cache.symlink_to(tmp_path / "moved")
    assert shared_notes("dbip-city-lite") is None
    monkeypatch.delenv("CACHE_DIRECTORY")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert shared_notes("dbip-city-lite") == tmp_path / f"swarmkeeper-{os.geteuid()}" / "dbip-city-lite"


async def test_the_command_fetches_what_the_settings_name(
    host: Host, tmp_path: Path, database: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(geoip_update, "DBIP", f"{host.url}/free")
    set_store(monkeypatch, "unix:///none")
    for name, value in {
        "SSL_CERT_FILE": host.certificate,
        "CACHE_DIRECTORY": tmp_path / "cache",
        "TRACKER_DATA__DIRECTORY": tmp_path / "data",
        "TRACKER_GEOIP__DATABASE": "dbip-city-lite",
    }.items():
        monkeypatch.setenv(name, str(value))

    def answer(request: web.Request) -> web.Response:
        known = request.headers.get("If-None-Match")
        return (
            web.Response(status=304) if known else web.Response(body=gzip.compress(database), headers={"ETag": '"1"'})
        )

    host.answers[""] = answer
    with command("geoip", "update") as update_now:
        said = (await asyncio.to_thread(update_now)).stdout
        assert said.startswith("dbip-city-lite is updated: ") and "cities" in said
        assert content(tmp_path / "data" / "geoip" / "dbip-city-lite.mmdb") == database
        assert (await asyncio.to_thread(update_now)).stdout == "dbip-city-lite has nothing newer\n"
        host.answers[""] = lambda _: web.Response(status=500)
        refused = await asyncio.to_thread(partial(update_now, code=1))
        assert "dbip-city-lite answered with status 500" in refused.stderr
        monkeypatch.setenv("TRACKER_GEOIP__DATABASE", str(tmp_path / "own.mmdb"))
        assert "names no source" in (await asyncio.to_thread(partial(update_now, code=1))).stderr
    assert len(host.requests) == 3


def test_sources_need_what_they_need() -> None:
    assert source_of(GeoIPSettings(database=Path("/a/path.mmdb")), NOW) is None
    assert source_of(GeoIPSettings(), NOW) is None
    with pytest.raises(ClientError, match="TRACKER_GEOIP__ACCOUNT_ID and TRACKER_GEOIP__LICENCE_KEY"):
        source_of(GeoIPSettings(database=Path(f"maxmind:{EDITION}")), NOW)
    for name in GEOIP_SOURCES:
        settings = Settings(geoip=GeoIPSettings(database=Path(name)), data=DataSettings(directory=Path("/d")))
        assert settings.geoip.source == name
        assert settings.geoip_file == Path("/d/geoip") / f"{name.replace(':', '-')}.mmdb"
    assert Settings(geoip=GeoIPSettings(database=Path("/a.mmdb"))).geoip_file == Path("/a.mmdb")


async def test_the_job_fetches_weekly_and_after_a_failure_not_at_once(file: Path) -> None:
    now, fetched, metrics = NOW, list[float](), Metrics()
    fails = False

    async def fetch(source: Source, place: Path, at: float, shared: Path | None) -> bool:
        fetched.append(at)
        put(
            place.with_suffix(".json"),
            json.dumps({"checked": 0 if fails else at, "retry": at + 7200 if fails else 0}).encode(),
        )
        if fails:
            raise NotUpdated("no")
        put(place, b"x")
        return True

    settings = GeoIPSettings(database=Path("dbip-city-lite"))
    options: dict[str, Any] = {"fetch": fetch, "chance": lambda: 0.0, "shared": lambda _: None}
    job = GeoIPUpdater(lambda: (settings, file), metrics.count, lambda: now, **options)
    for _ in range(2):
        await job.step()
    assert fetched == [NOW] and not metrics.counts
    now, fails = NOW + 8 * 86_400, True
    for _ in range(2):
        await job.step()
    assert len(fetched) == 2 and metrics.counts == {"geoip.failed": 1}
    now += 7300
    await job.step()
    assert len(fetched) == 3
    none = GeoIPUpdater(lambda: (GeoIPSettings(), None), metrics.count, lambda: now, **options)
    await none.step()
    assert len(fetched) == 3
