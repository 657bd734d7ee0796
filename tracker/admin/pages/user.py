"""The page of one user: totals, torrents, hit-and-runs and actions."""

import asyncio
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.auth.recording import CHANGE
from tracker.admin.context import AdminContext
from tracker.admin.pages.announce_urls import announce_urls
from tracker.admin.pages.forms import Form, cursor_number, read_rule
from tracker.admin.pages.rendering import Pages, done, get, post, render
from tracker.bittorrent import parse_info_hash
from tracker.errors import ClientError, NotFound, existing
from tracker.operations.torrents import counting_torrent
from tracker.operations.users import (
    MAX_CHANGES,
    MAX_COMPLETED,
    MAX_TORRENTS,
    Share,
    freeleech_tokens,
    shares,
    user_activity,
)
from tracker.store.schema.multipliers import parse_end
from tracker.store.users.fields import FIELDS, SETS, TOTALS, User, is_user_id
from tracker.store.users.unregistered import MAX_KEPT
from tracker.store.users.users import UnknownUser

PAGE = 50
LABELS = {"active": "Active", "complete": "Complete", "incomplete": "Incomplete", "hnr": "Hit-and-runs"}
"""The user's sets of torrents, with their labels."""
LIMITS = {"torrents": MAX_TORRENTS, "completed": MAX_COMPLETED, "changes": MAX_CHANGES, "unregistered": MAX_KEPT}
"""How much is searched for what the user does and did."""
ROTATED = "New passkey created. The old one no longer works."


class UserPage(Pages):
    """Handlers of /users/<id>. Only POSTs show the passkey, because they need role ``operate``."""

    @get("/users/{user_id}", "user.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        user_id = self._id(request)
        asked, cursor = request.query.get("set", ""), cursor_number(request.query.get("cursor", ""))
        chosen, store = asked if asked in SETS else "active", self._store
        (user, (after, shown), sizes, check), (tokens, token_count, activity) = await asyncio.gather(
            asyncio.gather(
                self._found(user_id),
                self._shares(user_id, chosen, cursor),
                store.users.set_sizes(user_id),
                store.shards.main_or(store.connect_checks.of_user(user_id), None),
            ),
            asyncio.gather(
                freeleech_tokens(store, user_id, 0, PAGE),
                store.freeleech.count(user_id),
                user_activity(store, user_id, self._context.places),
            ),
        )
        here, group = f"/users/{user_id}", user.group and await store.groups.get(user.group)
        return {
            "user": user,
            "group": group,
            "chosen": chosen,
            "here": here,
            "labels": LABELS,
            "sizes": sizes,
            "check": check,
            "shares": shown,
            "remaining": self._remaining,
            "next_url": f"{here}?{urlencode({'set': chosen, 'cursor': after})}" if after else "",
            "previous_url": f"{here}?{urlencode({'set': chosen})}" if cursor else "",
            "tokens": tokens,
            "token_count": token_count,
            "activity": activity,
            "limits": LIMITS,
        }

    async def _shares(self, user_id: str, name: str, cursor: int) -> tuple[int, list[Share]]:
        after, ids = await self._store.users.torrents_page(user_id, name, cursor, PAGE)
        return after, await shares(self._store, user_id, ids)

    def _remaining(self, share: Share) -> int:
        """Seconds until the hit-and-run on this torrent is cleared."""
        rules = self._context.settings.users
        spent = share.seed_seconds if rules.hnr_time == "seed" else share.total_seconds
        return max(0, rules.hnr_threshold_seconds - spent)

    @post("/users/{user_id}/edit", "user.edit", errors_on="show")
    async def edit(self, request: web.Request, form: Form) -> web.Response:
        """Sets the fields that the form has; of a checkbox the last value. Empty totals are unchanged."""
        user = await self._user(request)
        texts = {name: form.texts(name)[-1] for name in FIELDS if form.has(name)}
        fields = {name: text for name, text in texts.items() if text or name not in TOTALS}
        await self._store.users.edit(user.passkey, fields)
        return _back(request, user, "saved")

    @post("/users/{user_id}/multipliers", "user.edit", errors_on="show")
    @post("/users/{user_id}/multipliers/remove", "user.edit", errors_on="show")
    async def change_rule(self, request: web.Request, form: Form) -> web.Response:
        user = await self._user(request)
        await self._store.users.change_rule(user.passkey, read_rule(request, form, self._clock()))
        return _back(request, user, "saved")

    @post("/users/{user_id}/freeleech", "freeleech.give", errors_on="show")
    async def give_freeleech(self, request: web.Request, form: Form) -> web.Response:
        """Gives the user a freeleech token for the torrent ``info_hash``."""
        user = await self._user(request)
        try:
            torrent = await counting_torrent(self._store, parse_info_hash(form.text("info_hash")))
        except NotFound as error:  # but the page exists
            raise ClientError(error.text) from error
        end = parse_end(form.text("until"), self._clock())
        await self._store.freeleech.give(user.user_id, torrent.torrent_id, end)
        return _back(request, user, "saved")

    @post("/users/{user_id}/freeleech/revoke", "freeleech.revoke")
    async def revoke_freeleech(self, request: web.Request, form: Form) -> web.Response:
        user = await self._user(request)
        await self._store.freeleech.take_back(user.user_id, form.text("torrent_id"))
        return _back(request, user, "saved")

    @post("/users/{user_id}/passkey", "")
    async def passkey(self, request: web.Request, form: Form) -> web.Response:
        return show_passkey(self._context, request, await self._user(request))

    @post("/users/{user_id}/rotate", "user.rotate", errors_on="show")
    async def rotate(self, request: web.Request, form: Form) -> web.Response:
        """Replaces the passkey by the one in the form, or by a random one."""
        user = await self._user(request)
        rotated = await self._store.users.rotate(user.passkey, form.text("passkey") or None)
        return show_passkey(self._context, request, rotated, ROTATED)

    @post("/users/{user_id}/forgive", "user.forgive")
    async def forgive(self, request: web.Request, form: Form) -> web.Response:
        """Forgives one hit-and-run, or all of them."""
        user = await self._user(request)
        forgiven = await self._store.users.forgive(user.user_id, form.text("torrent_id") or None)
        request[CHANGE].count(forgiven=forgiven)
        return _back(request, user, "forgiven", set="hnr")

    @post("/users/{user_id}/delete", "user.delete", role="admin")
    async def delete(self, request: web.Request, form: Form) -> web.Response:
        user = await self._user(request)
        await self._store.users.delete(user.user_id)
        return done(request, "/users", "removed")

    async def _user(self, request: web.Request) -> User:
        return await self._found(self._id(request))

    @staticmethod
    def _id(request: web.Request) -> str:
        """Finds a user by ID only, never by passkey, because URLs are not secret. Raises NotFound."""
        user_id = request.match_info["user_id"]
        if not is_user_id(user_id):
            raise UnknownUser
        return user_id

    async def _found(self, user_id: str) -> User:
        """Raises NotFound."""
        return existing(await self._store.users.by_id(user_id), "user")


def show_passkey(context: AdminContext, request: web.Request, user: User, message: str = "") -> web.Response:
    urls = announce_urls(context, request.host, user.passkey)
    return render(request, "user_passkey.html", {"user": user, "announce_urls": urls, "message": message})


def _back(request: web.Request, user: User, notice: str, **query: str) -> web.Response:
    return done(request, f"/users/{user.user_id}", notice, **query)
