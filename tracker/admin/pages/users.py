"""The pages of users: the list, with search, filters, sorting and actions on several; creation, lookup by passkey, and
hit-and-runs; and one user: totals, torrents, hit-and-runs and actions."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.auth.recording import CHANGE
from tracker.admin.context import announce_urls
from tracker.admin.http.problems import Problem
from tracker.admin.pages.forms import Form, ListQuery, cursor_number, page_number, read_rule, turned
from tracker.admin.pages.rendering import Pages, done, get, post, render
from tracker.bittorrent import parse_info_hash
from tracker.errors import ClientError, NotFound, existing
from tracker.operations.torrents import counting_torrent
from tracker.operations.users import (
    MAX_CHANGES,
    MAX_COMPLETED,
    MAX_TORRENTS,
    USER_ACTIONS,
    Share,
    change_users,
    freeleech_tokens,
    pending_hit_and_runs,
    shares,
    user_activity,
)
from tracker.store.schema.multipliers import MULTIPLIERS, parse_end
from tracker.store.sharding.listing import CURSOR
from tracker.store.users.fields import FIELDS, GROUP_ID, MAX_GROUP_ID, SETS, TOTALS, User, is_user_id
from tracker.store.users.listing import Order, UserFilter
from tracker.store.users.rules import GROUP_FIELDS, Group
from tracker.store.users.unregistered import MAX_KEPT
from tracker.store.users.users import UnknownUser

PAGE = 50
SORTS: dict[Order, str] = {
    "id": "User",
    "name": "Name",
    "uploaded": "Uploaded",
    "downloaded": "Downloaded",
    "ratio": "Ratio",
}
"""Sort orders of the list, with their column headings."""
STATES = {"": "All", "disabled": "Disabled", "blocked": "Download blocked"}
"""Filters of the list, with their labels."""
LABELS = {"active": "Active", "complete": "Complete", "incomplete": "Incomplete", "hnr": "Hit-and-runs"}
"""The user's sets of torrents, with their labels."""
LIMITS = {"torrents": MAX_TORRENTS, "completed": MAX_COMPLETED, "changes": MAX_CHANGES, "unregistered": MAX_KEPT}
"""How much is searched for what the user does and did."""
ROTATED = "New passkey created. The old one no longer works."


@dataclass(frozen=True, slots=True)
class Query(ListQuery):
    path: ClassVar[str] = "/users"
    sorts: ClassVar[Mapping[Order, str]] = SORTS
    choices: ClassVar[Mapping[str, Mapping[str, str]]] = {"state": STATES}
    lowest_first: ClassVar[tuple[str, ...]] = ("id", "name")

    sort: Order = "id"
    state: str = ""

    @staticmethod
    def checked(cursor: str) -> str:
        return cursor if CURSOR.fullmatch(cursor) else ""

    @property
    def filter(self) -> UserFilter:
        return UserFilter(self.sort, self.descending, self.flags["enabled"], self.flags["can_leech"], self.text)

    @property
    def flags(self) -> dict[str, bool | None]:
        return {
            "enabled": False if self.state == "disabled" else None,
            "can_leech": False if self.state == "blocked" else None,
        }


class UserPages(Pages):
    """Only POSTs show a passkey, because they need role ``operate``."""

    @get("/users", "users.html")
    async def show(self, request: web.Request) -> web.Response | dict[str, Any]:
        """``id`` in the query redirects to that user."""
        wanted = request.query.get("id", "").strip()
        if wanted and (wanted.isascii() and wanted.isdigit() and await self._store.users.passkey_of(wanted)):
            raise web.HTTPSeeOther(f"/users/{wanted}")
        query, missing = Query.read(request), wanted[:20]
        upload, download = await self._store.multipliers.get()
        found = await self._store.user_listing.page(query.filter, query.cursor or query.start, query.size)
        variables = {
            "upload_multiplier": upload,
            "download_multiplier": download,
            "query": query,
            "states": [
                (replace(query, state=state).href(), label, state == query.state) for state, label in STATES.items()
            ],
            "registered": await self._store.users.count(),
            "complete": await self._store.user_listing.is_complete(),
            "missing": missing,
            **query.paging(found),
            "users": found.rows,
            "hit_and_run_users": await self._store.users.hit_and_run_count(),
        }
        return render(request, "users.html", variables, status=404) if missing else variables

    @post("/users/bulk", "user.bulk")
    @post("/users/bulk/delete", "user.bulk", role="admin")
    async def change(self, request: web.Request, form: Form) -> web.Response:
        back = f"/users{Query.read(request).here}"
        deletes = request.path.endswith("/delete")
        wanted = "delete" if deletes else form.text("action")
        action = next((each for each in USER_ACTIONS if each == wanted and deletes == (each == "delete")), None)
        if action is None:
            raise Problem(422, detail="unknown action")
        chosen = form.texts("user_id")
        if not all(is_user_id(user_id) for user_id in chosen):
            raise Problem(422, detail="invalid user ID")
        if not chosen:
            return done(request, back, "unselected")
        change = request[CHANGE]
        await change.touch_all("user", chosen)
        change.note(action=action)
        changed = await change_users(self._store, action, chosen, form.text("disable_reason"))
        change.count(selected=len(chosen), changed=changed)
        return done(request, back, "changed")

    @post("/users/lookup", "")
    async def lookup(self, request: web.Request, form: Form) -> web.Response:
        """Redirects to the user of a passkey. A form field, because URLs are not secret."""
        user = existing(await self._store.users.get(form.text("passkey")), "user")
        raise web.HTTPSeeOther(f"/users/{user.user_id}")

    @get("/users/owing", "hit_and_runs.html")
    async def hit_and_runs(self, request: web.Request) -> dict[str, Any]:
        number, total = page_number(request.query.get("page", "")), await self._store.users.hit_and_run_count()
        return {
            "hit_and_runs": await self._store.users.hit_and_runs((number - 1) * PAGE, PAGE),
            **turned("/users/owing", number, PAGE, total),
            "registered": await self._store.users.count(),
            "hit_and_run_users": total,
        }

    @get("/users/pending", "hit_and_runs_pending.html")
    async def pending(self, request: web.Request) -> dict[str, Any]:
        """Torrents that become hit-and-runs unless their users come back."""
        number, total = page_number(request.query.get("page", "")), await self._store.hit_and_runs.pending_count()
        return {
            "pending": await pending_hit_and_runs(self._store, (number - 1) * PAGE, PAGE),
            **turned("/users/pending", number, PAGE, total),
            "hit_and_run_users": await self._store.users.hit_and_run_count(),
        }

    @get("/users/groups", "user_groups.html")
    async def groups(self, request: web.Request) -> dict[str, Any]:
        """``edit`` in the query is the id of the group whose values the form has."""
        found, asked = await self._store.groups.all(), request.query.get("edit", "")
        return {
            "groups": found,
            "chosen": next((group for group in found if str(group.group_id) == asked), Group(0)),
            "hit_and_run_users": await self._store.users.hit_and_run_count(),
        }

    @post("/users/groups", "group.set", errors_on="groups")
    async def save_group(self, request: web.Request, form: Form) -> web.Response:
        """Adds the group or replaces its fields. An empty multiplier is 1."""
        group_id, fields = form.text("group_id"), form.last_texts(GROUP_FIELDS)
        if not GROUP_ID.fullmatch(group_id):
            raise ClientError(f"the id of a group is a whole number from 1 up to {MAX_GROUP_ID}")
        fields |= {name: fields[name] or "1" for name in MULTIPLIERS if name in fields}
        await self._store.groups.save(int(group_id), fields)
        return done(request, "/users/groups", "saved")

    @post("/users/groups/delete", "group.delete", errors_on="groups")
    async def delete_group(self, request: web.Request, form: Form) -> web.Response:
        group_id = form.text("group_id")
        if not GROUP_ID.fullmatch(group_id) or not await self._store.groups.delete(int(group_id)):
            raise ClientError("there is no such group")
        return done(request, "/users/groups", "removed")

    @post("/users", "user.add", errors_on="show")
    async def add(self, request: web.Request, form: Form) -> web.Response:
        totals = {name: text for name in TOTALS if (text := form.text(name))}
        user = await self._store.users.add(
            form.text("user_id") or None,
            form.text("passkey") or None,
            can_leech=form.ticked("can_leech"),
            enabled=not form.ticked("disabled"),
            reason=form.text("reason"),
            name=form.text("name"),
            **totals,
        )
        request[CHANGE].created("user", user.user_id)
        return self._with_passkey(request, user, f"User {user.user_id} created.")

    @post("/users/multipliers", "multipliers.set", role="admin", errors_on="show")
    @post("/users/multipliers/remove", "multipliers.set", role="admin", errors_on="show")
    async def change_rule(self, request: web.Request, form: Form) -> web.Response:
        await self._store.multipliers.change_rule(read_rule(request, form, self._clock()))
        return done(request, "/users", "saved")

    @get("/users/{user_id}", "user.html")
    async def show_one(self, request: web.Request) -> dict[str, Any]:
        user_id = _id_of(request)
        asked, cursor = request.query.get("set", ""), cursor_number(request.query.get("cursor", ""))
        chosen, store = asked if asked in SETS else "active", self._store
        (user, (after, shown), sizes, check), (tokens, token_count, activity) = await asyncio.gather(
            asyncio.gather(
                self._user(request),
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

    @post("/users/{user_id}/edit", "user.edit", errors_on="show_one")
    async def edit(self, request: web.Request, form: Form) -> web.Response:
        """Sets the fields that the form has; of a checkbox the last value. Empty totals are unchanged."""
        user = await self._user(request)
        texts = form.last_texts(FIELDS).items()
        fields = {name: text for name, text in texts if text or name not in TOTALS}
        await self._store.users.edit(user.passkey, fields)
        return _back(request, user, "saved")

    @post("/users/{user_id}/multipliers", "user.edit", errors_on="show_one")
    @post("/users/{user_id}/multipliers/remove", "user.edit", errors_on="show_one")
    async def change_user_rule(self, request: web.Request, form: Form) -> web.Response:
        user = await self._user(request)
        await self._store.users.change_rule(user.passkey, read_rule(request, form, self._clock()))
        return _back(request, user, "saved")

    @post("/users/{user_id}/freeleech", "freeleech.give", errors_on="show_one")
    async def give_freeleech(self, request: web.Request, form: Form) -> web.Response:
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
        return self._with_passkey(request, await self._user(request))

    @post("/users/{user_id}/rotate", "user.rotate", errors_on="show_one")
    async def rotate(self, request: web.Request, form: Form) -> web.Response:
        """Replaces the passkey by the one in the form, or by a random one."""
        user = await self._user(request)
        rotated = await self._store.users.rotate(user.passkey, form.text("passkey") or None)
        return self._with_passkey(request, rotated, ROTATED)

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
        """Raises NotFound."""
        return existing(await self._store.users.by_id(_id_of(request)), "user")

    def _with_passkey(self, request: web.Request, user: User, message: str = "") -> web.Response:
        urls = announce_urls(self._context, request.host, user.passkey)
        return render(request, "user_passkey.html", {"user": user, "announce_urls": urls, "message": message})


def _id_of(request: web.Request) -> str:
    """Users are found by ID only, never by passkey, because URLs are not secret. Raises NotFound."""
    user_id = request.match_info["user_id"]
    if not is_user_id(user_id):
        raise UnknownUser
    return user_id


def _back(request: web.Request, user: User, notice: str, **query: str) -> web.Response:
    return done(request, f"/users/{user.user_id}", notice, **query)
