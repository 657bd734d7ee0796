"""The page of one user: totals, torrents, hit-and-runs and actions."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.auth.recording import CHANGE
from tracker.admin.context import AdminContext
from tracker.admin.http.problems import Problem
from tracker.admin.pages.announce_urls import announce_urls
from tracker.admin.pages.forms import Form, cursor_number, read_form, removed_rule, rule_of
from tracker.admin.pages.rendering import done, render
from tracker.admin.world import country_name
from tracker.bittorrent import parse_info_hash
from tracker.errors import ClientError
from tracker.operations.torrents import counting_torrent
from tracker.operations.user_activity import MAX_CHANGES, MAX_COMPLETED, MAX_TORRENTS, user_activity
from tracker.operations.users import Share, freeleech_tokens, shares
from tracker.store.schema.multipliers import RuleChange, parse_end
from tracker.store.users.fields import FIELDS, TOTALS, User, is_user_id
from tracker.store.users.unregistered import MAX_KEPT
from tracker.store.users.users import SETS

PAGE = 50
LABELS = {"active": "Active", "complete": "Complete", "incomplete": "Incomplete", "hnr": "Hit-and-runs"}
"""The user's sets of torrents, with their labels."""
EVENTS = {
    "joined": "Joined",
    "completed": "Completed",
    "stopped": "Left",
    "timed_out": "Timed out",
    "hit_and_run_pending": "Hit-and-run pending",
    "hit_and_run": "Hit-and-run",
    "hit_and_run_cleared": "Hit-and-run cleared",
    "hit_and_run_forgiven": "Hit-and-run forgiven",
}
"""Labels of events; others are shown as stored."""
LIMITS = {"torrents": MAX_TORRENTS, "completed": MAX_COMPLETED, "changes": MAX_CHANGES, "unregistered": MAX_KEPT}
"""How much is searched for what the user does and did."""
ROTATED = "New passkey created. The old one no longer works."


class UserPage:
    """Handlers of /users/<id>. Only POSTs show the passkey, because they need role ``operate``."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._users = context.store.users
        self._torrents = context.store.torrents

    def routes(self) -> list[web.AbstractRouteDef]:
        here = "/users/{user_id}"
        return [
            web.get(here, self.show),
            web.post(f"{here}/edit", self.edit),
            web.post(f"{here}/multipliers", partial(self.change_rule, rule_of)),
            web.post(f"{here}/multipliers/remove", partial(self.change_rule, removed_rule)),
            web.post(f"{here}/freeleech", self.give_freeleech),
            web.post(f"{here}/freeleech/revoke", self.revoke_freeleech),
            web.post(f"{here}/passkey", self.passkey),
            web.post(f"{here}/rotate", self.rotate),
            web.post(f"{here}/forgive", self.forgive),
            web.post(f"{here}/delete", self.delete),
        ]

    async def show(self, request: web.Request) -> web.Response:
        return await self._page(request, self._id(request))

    async def _page(self, request: web.Request, user_id: str, error: str = "") -> web.Response:
        asked, cursor = request.query.get("set", ""), cursor_number(request.query.get("cursor", ""))
        chosen, store = asked if asked in SETS else "active", self._context.store
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
        variables = {
            "user": user,
            "group": group,
            "error": error,
            "ratio": ratio,
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
            "rules": self._context.settings.users,
            "now": self._context.clock(),
            "activity": activity,
            "limits": LIMITS,
            "feed_is_on": self._context.settings.changes.max_entries > 0,
            "country_name": country_name,
            "events": EVENTS,
        }
        return render(request, "user.html", variables, status=422 if error else 200)

    async def _shares(self, user_id: str, name: str, cursor: int) -> tuple[int, list[Share]]:
        after, ids = await self._users.torrents_page(user_id, name, cursor, PAGE)
        return after, await shares(self._context.store, user_id, ids)

    def _remaining(self, share: Share) -> int:
        """Seconds until the hit-and-run on this torrent is cleared."""
        rules = self._context.settings.users
        spent = share.seed_seconds if rules.hnr_time == "seed" else share.total_seconds
        return max(0, rules.hnr_threshold_seconds - spent)

    async def edit(self, request: web.Request) -> web.Response:
        """Sets the fields that the form has; of a checkbox the last value. Empty totals are unchanged."""
        user, form = await self._user(request), await read_form(request)
        texts = {name: form.texts(name)[-1] for name in FIELDS if form.has(name)}
        fields = {name: text for name, text in texts.items() if text or name not in TOTALS}
        try:
            await self._users.edit(user.passkey, fields)
        except ClientError as error:
            return await self._page(request, user.user_id, str(error))
        return _back(request, user, "saved")

    async def change_rule(self, rule: Callable[[Form, float], RuleChange], request: web.Request) -> web.Response:
        user, form = await self._user(request), await read_form(request)
        try:
            await self._users.change_rule(user.passkey, rule(form, self._context.clock()))
        except ClientError as error:
            return await self._page(request, user.user_id, str(error))
        return _back(request, user, "saved")

    async def give_freeleech(self, request: web.Request) -> web.Response:
        """Gives the user a freeleech token for the torrent ``info_hash``."""
        user, form = await self._user(request), await read_form(request)
        try:
            torrent = await counting_torrent(self._context.store, parse_info_hash(form.text("info_hash")))
            if torrent is None or not torrent.torrent_id:
                raise ClientError("unknown torrent")
            end = parse_end(form.text("until"), self._context.clock())
            await self._context.store.freeleech.give(user.user_id, torrent.torrent_id, end)
        except ClientError as error:
            return await self._page(request, user.user_id, str(error))
        return _back(request, user, "saved")

    async def revoke_freeleech(self, request: web.Request) -> web.Response:
        user, form = await self._user(request), await read_form(request)
        await self._context.store.freeleech.take_back(user.user_id, form.text("torrent_id"))
        return _back(request, user, "saved")

    async def passkey(self, request: web.Request) -> web.Response:
        return self._show_passkey(request, await self._user(request))

    async def rotate(self, request: web.Request) -> web.Response:
        """Replaces the passkey by the one in the form, or by a random one."""
        user, form = await self._user(request), await read_form(request)
        try:
            rotated = await self._users.rotate(user.passkey, form.text("passkey") or None)
        except ClientError as error:
            return await self._page(request, user.user_id, str(error))
        return self._show_passkey(request, rotated, ROTATED)

    def _show_passkey(self, request: web.Request, user: User, message: str = "") -> web.Response:
        urls = announce_urls(self._context, request.host, user.passkey)
        variables: dict[str, Any] = {"user": user, "announce_urls": urls, "message": message}
        return render(request, "user_passkey.html", variables)

    async def forgive(self, request: web.Request) -> web.Response:
        """Forgives one hit-and-run, or all of them."""
        user, form = await self._user(request), await read_form(request)
        forgiven = await self._users.forgive(user.user_id, form.text("torrent_id") or None)
        request[CHANGE].count(forgiven=forgiven)
        return _back(request, user, "forgiven", set="hnr")

    async def delete(self, request: web.Request) -> web.Response:
        user = await self._user(request)
        await self._users.delete(user.user_id)
        return done(request, "/users", "removed")

    async def _user(self, request: web.Request) -> User:
        return await self._found(self._id(request))

    @staticmethod
    def _id(request: web.Request) -> str:
        """Finds a user by ID only, never by passkey, because URLs are not secret. Raises Problem (404)."""
        user_id = request.match_info["user_id"]
        if not is_user_id(user_id):
            raise Problem(404, detail="unknown user")
        return user_id

    async def _found(self, user_id: str) -> User:
        """Raises Problem (404)."""
        user = await self._users.by_id(user_id)
        if user is None:
            raise Problem(404, detail="unknown user")
        return user


def _back(request: web.Request, user: User, notice: str, **query: str) -> web.Response:
    return done(request, f"/users/{user.user_id}", notice, **query)


def ratio(uploaded: int, downloaded: int) -> str:
    """Uploaded / downloaded."""
    if downloaded:
        return f"{uploaded / downloaded:,.2f}"
    return "∞" if uploaded else "–"
