"""The page of one user: totals, the torrents the user has, what is owed, and what can be done about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.desk import Desk
from tracker.admin.operations import whole
from tracker.admin.pages.addresses import announce_urls
from tracker.admin.pages.forms import cursor_number, read_form
from tracker.admin.pages.rendering import done, render
from tracker.admin.problems import Problem
from tracker.store.torrents import Torrent
from tracker.store.users import SETS, User

PAGE = 50
LABELS = {"active": "Active", "complete": "Complete", "incomplete": "Incomplete", "hnr": "Hit and runs"}
"""The user's sets of torrents, as people read them."""
ROTATED = "The passkey is new: clients that announce with the old one are refused from now on."
_LONGEST_ID = 16


@dataclass(frozen=True, slots=True)
class Share:
    """What a user has of a torrent. Bytes, seconds and epoch seconds; ``torrent`` is None when it was removed."""

    torrent_id: str
    torrent: Torrent | None
    uploaded: int
    downloaded: int
    total_seconds: int
    seed_seconds: int
    completed_at: int
    owed_seconds: int


class UserPage:
    """Handlers of one user, at /users/<id> and below. The passkey is a secret: only POSTs, which need full access, show it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._users = desk.stores.users
        self._torrents = desk.stores.torrents

    def routes(self) -> list[web.AbstractRouteDef]:
        here = "/users/{user_id}"
        return [
            web.get(here, self.show),
            web.post(f"{here}/edit", self.edit),
            web.post(f"{here}/passkey", self.passkey),
            web.post(f"{here}/rotate", self.rotate),
            web.post(f"{here}/forgive", self.forgive),
            web.post(f"{here}/delete", self.delete),
        ]

    async def show(self, request: web.Request) -> web.Response:
        user = await self._user(request)
        asked, cursor = request.query.get("set", ""), cursor_number(request.query.get("cursor", ""))
        chosen = asked if asked in SETS else "active"
        after, shares = await self._shares(user, chosen, cursor)
        here = f"/users/{user.user_id}"
        context = {
            "user": user,
            "ratio": ratio,
            "chosen": chosen,
            "here": here,
            "labels": LABELS,
            "sizes": await self._users.set_sizes(user.user_id),
            "shares": shares,
            "later": f"{here}?{urlencode({'set': chosen, 'cursor': after})}" if after else "",
            "earlier": f"{here}?{urlencode({'set': chosen})}" if cursor else "",
            "rules": self._desk.settings.users,
            "now": self._desk.clock(),
        }
        return render(request, "user.html", context)

    async def _shares(self, user: User, name: str, cursor: int) -> tuple[int, list[Share]]:
        after, ids = await self._users.torrents_page(user.user_id, name, cursor, PAGE)
        torrents = {torrent.torrent_id: torrent for torrent in await self._torrents.by_ids(ids)}
        rows = {torrent_id: await self._users.torrent(user.user_id, torrent_id) for torrent_id in ids}
        return after, [self._share(one, torrents.get(one), row, name) for one, row in rows.items()]

    def _share(
        self, torrent_id: str, torrent: Torrent | None, row: Mapping[str, str] | None, name: str
    ) -> Share:
        row = row or {}
        spent = whole(row.get("total_time"))
        owed = max(0, self._desk.settings.users.hnr_threshold_seconds - spent) if name == "hnr" else 0
        return Share(
            torrent_id,
            torrent,
            uploaded=whole(row.get("uploaded")),
            downloaded=whole(row.get("downloaded")),
            total_seconds=spent,
            seed_seconds=whole(row.get("seed_time")),
            completed_at=whole(row.get("completed_at")),
            owed_seconds=owed,
        )

    async def edit(self, request: web.Request) -> web.Response:
        """Sets ``enabled`` or ``can_leech``, whichever the form has, to 0 or 1."""
        user, form = await self._user(request), await read_form(request)
        texts = {name: form.text(name) for name in ("enabled", "can_leech")}
        await self._users.edit(user.passkey, {name: text == "1" for name, text in texts.items() if text})
        return _back(request, user, "saved")

    async def passkey(self, request: web.Request) -> web.Response:
        return self._show_passkey(request, await self._user(request))

    async def rotate(self, request: web.Request) -> web.Response:
        user = await self._user(request)
        return self._show_passkey(request, await self._users.rotate(user.passkey), ROTATED)

    def _show_passkey(self, request: web.Request, user: User, said: str = "") -> web.Response:
        urls = announce_urls(self._desk.listening, request.host, user.passkey)
        context: dict[str, Any] = {"user": user, "announce_urls": urls, "said": said}
        return render(request, "user_passkey.html", context)

    async def forgive(self, request: web.Request) -> web.Response:
        """One hit and run, or all of them."""
        user, form = await self._user(request), await read_form(request)
        await self._users.forgive(user.user_id, form.text("torrent_id") or None)
        return _back(request, user, "forgiven", set="hnr")

    async def delete(self, request: web.Request) -> web.Response:
        user = await self._user(request)
        await self._users.delete(user.user_id)
        return done(request, "/users", "removed")

    async def _user(self, request: web.Request) -> User:
        """Raises Problem (404); finds by id alone, for what stands in an address is no secret."""
        user_id = request.match_info["user_id"]
        number = user_id.isascii() and user_id.isdigit() and len(user_id) <= _LONGEST_ID
        passkey = await self._users.passkey_of(user_id) if number else None
        user = await self._users.get(passkey) if passkey is not None else None
        if user is None:
            raise Problem(404, detail="there is no such user")
        return user


def _back(request: web.Request, user: User, notice: str, **query: str) -> web.Response:
    return done(request, f"/users/{user.user_id}", notice, **query)


def ratio(uploaded: int, downloaded: int) -> str:
    """What came back of what was taken."""
    if downloaded:
        return f"{uploaded / downloaded:,.2f}"
    return "∞" if uploaded else "–"


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    return UserPage(desk).routes()
