"""The claimants' listener of a tracker as the volunteer's program sees it, with answers that a test chooses.

It keeps claims like the real one: each torrent goes to one claimant, a claim has a token, a request names the free
bytes. tests/e2e/test_volunteer.py uses the real one.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.e2e.peers import PAYLOAD, Share

PASSKEY = "0123456789abcdef0123456789abcdef"
ANNOUNCE = f"http://127.0.0.1:9/{PASSKEY}/announce"
PATH = "/seeding"
Hook = Callable[[str, str], web.Response | None]
"""Called with the path, and ``before`` or ``after``; a response replaces the usual one."""


@dataclass
class WorkServer:
    """``torrents`` are the .torrent files that it hands out, in order, with the size that it tells (None: unknown)."""

    url: str = ""
    torrents: dict[str, tuple[bytes, int | None]] = field(default_factory=dict)
    claims: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Claimant and token by info hash."""
    kept: dict[str, str] = field(default_factory=dict)
    """Claimant by info hash: finished claims."""
    not_needed: set[str] = field(default_factory=set)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    max_claims: int = 20
    by_name: bool = False
    """Whether claimants give a name and a port, and have no passkey."""
    keeps_to_size: bool = True
    files: bool = True
    """Whether it names the URL of a .torrent file."""
    hook: Hook = lambda path, moment: None
    _tokens: int = 0

    def share(self, folder: Path, size: int = 50_000) -> Share:
        """Makes a torrent that can be claimed."""
        share = Share.make(folder, size=size)
        other_tracker = share.torrent("http://other.example/secret/announce").read_bytes()
        self.torrents[share.info_hash.hex()] = (other_tracker, size)
        return share

    def put_data(self, folder: Path, share: Share) -> None:
        (folder / PAYLOAD).write_bytes(share.content)

    def names(self, path: str) -> list[str]:
        """The items of all calls of a path."""
        return [fields.get("item", "") for called, fields in self.calls if called == path]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix(f"{PATH}/")
        fields = await request.json() if request.method == "POST" else {}
        if path.startswith("torrents/"):
            return self._file(path)
        self.calls.append((path, fields))
        early = self.hook(path, "before")
        if early is not None:
            return early
        claimant = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.by_name:
            claimant = fields.get("downloader") or request.query.get("downloader", "")
            if not claimant or (path == "request" and not fields.get("port")):
                return web.Response(status=400, text="downloader has 3 to 30 letters\n")
            if path == "release" and not fields.get("token"):
                return web.Response(status=400, text="token is missing\n")
        elif not claimant.startswith(PASSKEY):
            return web.Response(status=401)
        reply = self._reply(path, claimant, fields)
        return self.hook(path, "after") or reply

    def _file(self, path: str) -> web.Response:
        early = self.hook("torrent", "before")
        if early is not None:
            return early
        info_hash = path.removeprefix("torrents/").removesuffix(".torrent")
        return web.Response(body=self.torrents[info_hash][0])

    def _reply(self, path: str, claimant: str, fields: dict[str, Any]) -> web.Response:
        item, token = fields.get("item", ""), fields.get("token", "")
        held = self.claims.get(item, ("", ""))
        if path == "request":
            return self._request(claimant, fields["free_bytes"])
        if path == "extend":
            return web.json_response({"lease_ends": 1}) if (claimant, token) == held else web.Response(status=410)
        if path == "release":
            if held[0] == claimant and token in ("", held[1]):
                del self.claims[item]
                return web.Response(text="Released OK.\n")
            return web.Response(text="Invalid item.\n")
        rows = [self._row(each, "seeding") for each, (who, _) in self.claims.items() if who == claimant]
        rows += [self._row(each, "kept") for each, who in self.kept.items() if who == claimant]
        return web.json_response({"items": rows})

    def _row(self, item: str, state: str) -> dict[str, Any]:
        _, size = self.torrents.get(item, (None, None))
        return {"item_name": item, "needed": item not in self.not_needed, "size": size, "state": state}

    def _request(self, claimant: str, free_bytes: int) -> web.Response:
        mine = sum(who == claimant for who, _ in self.claims.values())
        for item, (_, size) in self.torrents.items():
            fits = not self.keeps_to_size or (size or 0) <= free_bytes
            if item not in self.claims and item not in self.kept and fits and mine < self.max_claims:
                self._tokens += 1
                self.claims[item] = (claimant, str(self._tokens))
                return web.json_response(self._grant(item, size, str(self._tokens)))
        return web.Response(status=404)

    def _grant(self, item: str, size: int | None, token: str) -> dict[str, Any]:
        return {
            "item_name": item,
            "token": token,
            "lease_ends": 1_800_000_000,
            "name": "payload",
            "size": size,
            "torrent_url": f"{self.url}/torrents/{item}.torrent" if self.files else None,
            "announce_url": ANNOUNCE,
        }


@asynccontextmanager
async def work_server() -> AsyncIterator[WorkServer]:
    server = WorkServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server._handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}{PATH}"
        yield server
    finally:
        await runner.cleanup()
