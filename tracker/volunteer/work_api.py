"""The calls of a claimant to a tracker: request, release, extend, mine, and the download of a .torrent file. The
tracker's answers are untrusted: sizes are bounded, and every field is checked."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Self, TypeVar

import aiohttp
from pydantic import BaseModel, Field, ValidationError

from tracker.errors import ClientError
from tracker.system.http_client import open_session, read_body
from tracker.wire.torrent_file import MAX_BYTES, parse_torrent_file
from tracker.wire.tracker_url import parse_tracker_url

_MAX_JSON_BYTES = 4 * 1024 * 1024
_MAX_RETRY_SECONDS = 3600.0
_MAX_URL = 2000
_MAX_SAID = 200
Model = TypeVar("Model", bound=BaseModel)
InfoHash = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
_FINAL: Mapping[int, str] = {
    401: "the tracker does not know this passkey, or the project wants one",
    403: "the tracker has blocked this user or this address",
    404: "the tracker has no such project; check --url",
    455: "the tracker wants a newer version of this program",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks: the owner of a passkey; or, in a project that verifies addresses, a name, and the port at which the
    client accepts connections."""

    passkey: str = field(default="", repr=False)
    name: str = ""
    port: int = 0


class Denied(ClientError):
    """The tracker refuses this program for a reason that waiting does not change."""


class Unavailable(Exception):
    """No usable answer. ``retry_seconds``: when the tracker wants to be asked again; 0: it did not say."""

    def __init__(self, text: str, retry_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.retry_seconds = retry_seconds


class InvalidTorrent(Exception):
    """A .torrent file that cannot be used. The text is fixed."""


class Grant(BaseModel, frozen=True):
    """A claimed torrent. A ``size`` of None is not known."""

    item_name: InfoHash
    token: str = Field("", max_length=200)
    name: str = Field("", max_length=4096)
    size: int | None = Field(None, ge=0, lt=2**53)
    torrent_url: str | None = Field(None, max_length=_MAX_URL)
    announce_url: str = Field(max_length=_MAX_URL, repr=False)


class Listed(BaseModel, frozen=True):
    """A torrent that the tracker lists for this claimant. ``state`` is ``kept`` without a claim: its claim is finished.
    ``needed`` False: it may be dropped."""

    item_name: InfoHash
    state: str = Field(max_length=50)
    token: str = Field("", max_length=200)
    size: int | None = Field(None, ge=0, lt=2**53)
    needed: bool = True


class _Reply(BaseModel, frozen=True):
    items: list[Listed]


@dataclass(frozen=True, slots=True)
class Mine:
    """What the tracker lists for this claimant, by info hash."""

    items: Mapping[str, Listed]

    @property
    def claimed(self) -> dict[str, Listed]:
        return {name: each for name, each in self.items.items() if each.state != "kept"}


class WorkApi:
    """A project of a tracker, such as `https://tracker.example/project`. Calls raise Denied and Unavailable."""

    def __init__(self, url: str, identity: Identity, session: aiohttp.ClientSession) -> None:
        self._url = url.rstrip("/")
        self._identity = identity
        self._session = session

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, identity: Identity) -> AsyncIterator[Self]:
        async with open_session(aiohttp.ClientTimeout(total=60.0, sock_connect=15.0)) as session:
            yield cls(url, identity, session)

    async def request(self, free_bytes: int) -> Grant | None:
        """Claims a torrent of at most ``free_bytes``; None: there is none now, or this claimant has enough."""
        fields: dict[str, Any] = {"api_version": "2", "free_bytes": free_bytes}
        if self._identity.port:
            fields["port"] = self._identity.port
        status, body = await self._call("request", fields, also=404)
        if status == 404:
            return None
        grant = _parsed(Grant, body)
        try:
            parse_tracker_url(grant.announce_url)
        except ValueError:
            raise Unavailable("the tracker sent an invalid announce URL") from None
        return grant

    async def extend(self, item: str, token: str) -> bool:
        """False: the claim was lost."""
        status, _ = await self._call("extend", {"item": item, "token": token}, also=410)
        return status == 200

    async def release(self, item: str, token: str) -> None:
        """Gives a claim back; one that was lost already is no error. A name alone gives nothing back: without its
        token, the claim lapses."""
        if token or not self._identity.name:
            await self._call("release", {"item": item} | ({"token": token} if token else {}), also=410)

    async def mine(self) -> Mine:
        _, body = await self._call("mine", None)
        return Mine({each.item_name: each for each in _parsed(_Reply, body).items})

    async def _call(self, path: str, fields: Mapping[str, Any] | None, also: int = 200) -> tuple[int, bytes]:
        """(status, body). ``also``: a status that is an answer too, beside 200."""
        who = self._identity
        headers = {"Authorization": f"Bearer {who.passkey}"} if who.passkey else {}
        named = {"downloader": who.name} if who.name else {}
        method, query, body_fields = ("GET", named, None) if fields is None else ("POST", None, {**fields, **named})
        try:
            async with self._session.request(
                method, f"{self._url}/{path}", params=query, json=body_fields, headers=headers, allow_redirects=False
            ) as reply:
                body = await read_body(reply, _MAX_JSON_BYTES, aiohttp.ClientPayloadError("too large"))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the tracker does not answer ({type(error).__name__})") from error
        if reply.status in (200, also):
            return reply.status, body
        if reply.status in _FINAL:
            raise Denied(_FINAL[reply.status])
        if reply.status == 400:
            # Projects know volunteers by passkey or by name; a tracker may also be behind a proxy that hides us.
            said = "".join(filter(str.isprintable, body.decode("utf-8", "replace")))[:_MAX_SAID]
            hint = "; in a project without passkeys use --name and --port" if who.passkey else ""
            raise Denied(f"the tracker refuses the request: {said or 'without a reason'}{hint}")
        seconds = _retry_seconds(reply.headers) if reply.status in (420, 429) or reply.status >= 500 else 0.0
        raise Unavailable(f"the tracker answers with status {reply.status}", seconds)

    async def torrent_file(self, url: str, info_hash: str, announce_url: str) -> tuple[bytes, int]:
        """The .torrent file with this announce URL and no other, and the size of its content in bytes. Raises
        Unavailable and InvalidTorrent. Only URLs that contain the info hash are fetched, so that a tracker cannot make
        this machine call any address."""
        if not url.startswith(("http://", "https://")) or info_hash not in url.lower():
            raise InvalidTorrent("the tracker sent an invalid URL of a .torrent file")
        try:
            async with self._session.get(url, max_redirects=3) as reply:
                if reply.status != 200:
                    raise Unavailable(f"the .torrent file is not available: status {reply.status}")
                if reply.headers.get("Content-Encoding", "identity") != "identity":
                    raise Unavailable("the .torrent file is not available: compressed although identity was requested")
                data = await read_body(reply, MAX_BYTES, aiohttp.ClientPayloadError("too large"))
            parsed = await asyncio.to_thread(parse_torrent_file, data)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unavailable(f"the .torrent file is not available ({type(error).__name__})") from error
        except ClientError as error:
            raise InvalidTorrent(error.text) from error
        if bytes.fromhex(info_hash) not in parsed.announce_hashes:
            raise InvalidTorrent("the .torrent file is that of another torrent")
        announce = announce_url.encode()
        return b"d8:announce%d:%s%s" % (len(announce), announce, parsed.bare[1:]), parsed.size_bytes


def _parsed(model: type[Model], body: bytes) -> Model:
    try:
        return model.model_validate_json(body)
    except ValidationError:
        raise Unavailable("the tracker sent something unexpected") from None


def _retry_seconds(headers: Mapping[str, str]) -> float:
    """The seconds of a Retry-After; 0 if it is missing, a date or no number."""
    text = headers.get("Retry-After", "").strip()
    return min(float(text), _MAX_RETRY_SECONDS) if text.isdecimal() and len(text) < 10 else 0.0
