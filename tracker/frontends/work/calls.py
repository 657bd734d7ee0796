"""The calls of claimants: request, done, done+request, release, extend, mine."""

import math

import orjson
from aiohttp import web

from tracker.core.work import Claim, Claimant, Held, Torrent
from tracker.frontends.work.requests import Fields, Handlers, json_reply, read_fields

OK = "OK\n"


class Calls(Handlers):
    async def _read(self, request: web.Request) -> tuple[Claimant, Fields]:
        fields = await read_fields(request)
        return await self.work.claimant(self.project_name(request), self.sender(request, fields)), fields

    async def request(self, request: web.Request) -> web.Response:
        claimant, fields = await self._read(request)
        return await self._grant(request, claimant, fields)

    async def _grant(self, request: web.Request, claimant: Claimant, fields: Fields) -> web.Response:
        claim, torrent = await self.work.request(claimant, fields.version, fields.free_bytes, fields.port)
        if fields.api_version != "2":
            return web.Response(text=claim.item)
        return json_reply(self._described(request, claimant, claim, torrent))

    def _described(
        self, request: web.Request, claimant: Claimant, claim: Claim, torrent: Torrent | None
    ) -> dict[str, object]:
        """What a client of version 2 gets. Clients of 2019 take each field as a property of the item."""
        reply: dict[str, object] = {
            "item_name": claim.item,
            "token": claim.token,
            "lease_ends": math.floor(claim.lease_ends),
        }
        if claimant.project.kind != "seeding":
            return reply
        name, size = (torrent.name, torrent.size) if torrent else ("", None)
        announce_url = self.links.announce_url(request, claimant.passkey)
        return reply | {
            "info_hash": claim.item,
            "name": name,
            "size": size,
            "seeders": torrent.seeders if torrent else 0,
            "leechers": torrent.leechers if torrent else 0,
            "magnet": self.links.magnet(claim.item, name, size, announce_url),
            "torrent_url": self.links.torrent_url(claim.item),
            "announce_url": announce_url,
            "seed_seconds": 3600 * claimant.project.seed_hours,
        }

    async def done(self, request: web.Request) -> web.Response:
        claimant, fields = await self._read(request)
        await self._done(claimant, fields)
        return web.Response(text=OK)

    async def _done(self, claimant: Claimant, fields: Fields) -> None:
        await self.work.done(
            claimant,
            fields.required("item"),
            token=fields.token,
            version=fields.version,
            reported=fields.bytes,
            id_text=fields.id if isinstance(fields.id, str) else orjson.dumps(fields.id).decode(),
        )

    async def done_and_request(self, request: web.Request) -> web.Response:
        claimant, fields = await self._read(request)
        await self._done(claimant, fields)
        return await self._grant(request, claimant, fields)

    async def release(self, request: web.Request) -> web.Response:
        claimant, fields = await self._read(request)
        released = await self.work.release(claimant, fields.required("item"), fields.token)
        return web.Response(text="Released OK.\n" if released else "Invalid item.\n")

    async def extend(self, request: web.Request) -> web.Response:
        claimant, fields = await self._read(request)
        ends = await self.work.extend(claimant, fields.required("item"), fields.required("token"))
        return json_reply({"lease_ends": math.floor(ends)})

    async def upload(self, request: web.Request) -> web.Response:
        """Clients of 2019 ask where to upload, and then upload there."""
        claimant, _ = await self._read(request)
        target = self.work.upload_target(claimant)
        return json_reply({"upload_target": target} if target else {})

    async def uploaded(self, request: web.Request) -> web.Response:
        """An upload server says that it has a file. The claimant reports the item itself."""
        await read_fields(request)
        await self.project(request)
        return web.Response(text=OK)

    async def mine(self, request: web.Request) -> web.Response:
        sender = self.sender(request, Fields(), name=request.query.get("downloader", ""))
        claimant = await self.work.claimant(self.project_name(request), sender)
        return json_reply({"items": [_held(each, claimant) for each in await self.work.mine(claimant)]})


def _held(held: Held, claimant: Claimant) -> dict[str, object]:
    """Tokens are for the owners of passkeys only, because any client can give a name."""
    row: dict[str, object] = {"item_name": held.item, "state": held.state}
    if held.claim is not None:
        row |= {"claimed_at": math.floor(held.claim.claimed_at), "lease_ends": math.floor(held.claim.lease_ends)}
        if claimant.passkey:
            row["token"] = held.claim.token
    if claimant.project.kind != "seeding":
        return row
    torrent = held.torrent
    return row | {
        "info_hash": held.item,
        "name": torrent.name if torrent else "",
        "size": torrent.size if torrent else None,
        "verified_seconds": held.seconds,
        "seeders": torrent.seeders if torrent else 0,
        "average": None if held.average is None else round(held.average, 2),
        "needed": held.needed,
    }
