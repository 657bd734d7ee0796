"""/changes and /webhooks: what happened in the swarms, and its delivery to a site; and the queries of lists that can
follow it."""

from collections.abc import Callable
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from tracker.admin.api.contract import Call, Endpoints, Query, Reply
from tracker.admin.api.models import Flag, ItemList, Limit, Moment, OptionalMoment, copy_of, number, reply_of
from tracker.errors import Conflict
from tracker.operations.service import FEED_OFF
from tracker.store.changes.changes import FIRST, Change
from tracker.store.changes.webhooks import WebhookState
from tracker.store.torrents.listing import Order as TorrentOrder
from tracker.store.torrents.listing import TorrentFilter
from tracker.store.users.listing import Order as UserOrder
from tracker.store.users.listing import UserFilter

endpoints = Endpoints("changes", "The change feed: what happened in the swarms.")

FEED_CONFLICT = "`updated_since`: the change feed is off, or does not reach back so far."
"""Of the lists that take ``updated_since``."""
UpdatedSince = Annotated[
    str | None,
    Field(
        pattern="^[0-9]{1,16}(-[0-9]{1,19})?$",
        description="Only those that changed since this time (epoch s), or after the change with this ID: by a change "
        "in the feed (`/changes`) such as a join, a completion, a stop or a hit-and-run; or by the API, the dashboard, "
        "the command line or an import. A regular announce counts only where TRACKER_CHANGES__UPDATES_SECONDS is set; "
        "without it, what it changed comes with the next change of that peer, at the latest when the peer leaves. What "
        "a site writes into the store itself does not count. A page holds those of about `limit` changes, and may "
        "repeat some of an earlier page.",
    ),
]
T = TypeVar("T")

Position = Annotated[
    str,
    Field(
        pattern="^[0-9]{1,19}(-[0-9]{1,19})?$",
        description="The ID of a change; `0`: before the oldest.",
        examples=["1800000000000-0"],
    ),
]


@reply_of(Change, at=Moment)
class ChangeRow(Reply):
    """A change. A value that it does not have is null."""


class ChangeList(ItemList[ChangeRow]):
    """Changes, oldest first."""

    next: str = Field(description="`since` of the next request, also if there are no items.")
    gap: bool = Field(
        description="true: changes after `since` may be missing here, because the feed no longer has them. Read the "
        "lists of users and torrents again."
    )


class ChangeQuery(Query):
    since: Position = Field(FIRST, description="`next` of the previous reply. Without it: from the oldest change on.")
    limit: Annotated[int, Field(ge=1, le=1000), BeforeValidator(number)] = Field(100, description="Max changes.")


@copy_of(WebhookState, gap=None, delivered_at=OptionalMoment, retry_at=OptionalMoment)
class WebhookRow(Reply):
    """Deliveries to one URL."""

    receiver: str = Field(description="Scheme and host of the URL.")


def _check_on(call: Call) -> None:
    if not call.context.settings.changes.max_entries:
        raise Conflict(FEED_OFF)


async def updated(
    call: Call, named: Callable[[Change], T | None], since: str, cursor: str, limit: int
) -> tuple[list[T], str, str]:
    """As Changes.updated. Raises Conflict also if the feed is off."""
    _check_on(call)
    return await call.store.changes.updated(named, since, cursor, limit)


@endpoints.get("/changes", "List changes", conflict="The feed is off: TRACKER_CHANGES__MAX_ENTRIES is 0.")
async def list_all(call: Call, query: ChangeQuery) -> ChangeList:
    """Changes are recorded by the scripts that make them, and kept up to TRACKER_CHANGES__MAX_ENTRIES."""
    _check_on(call)
    page = await call.store.changes.after(query.since, query.limit)
    rows = [ChangeRow(**change.as_json()) for change in page.changes]
    return ChangeList(items=rows, next=page.next, gap=page.gap)


@endpoints.get("/webhooks", "List webhooks", schema="WebhookList: All webhooks in the settings.")
async def webhooks(call: Call) -> ItemList[WebhookRow]:
    urls = [url.get_secret_value() for url in call.context.settings.changes.webhook_urls]
    states = await call.store.webhooks.all(urls)
    return ItemList(items=[WebhookRow.from_record(state, receiver=receiver) for receiver, state in states])


class Selection(Query):
    """A page of a list: which entries, and in which order."""

    q: str | None = None
    order: Literal["asc", "desc"] = "asc"
    updated_since: UpdatedSince = None
    cursor: str = Field(
        "", pattern="^[-0-9A-Za-z.]{0,4000}$", description="`next_cursor` of the previous page; empty for the first."
    )
    limit: Limit = Field(100, description="Items per page.")

    @property
    def filter(self) -> TorrentFilter | UserFilter:
        raise NotImplementedError

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        is_ordered = self.model_fields_set & {"sort", "order"}
        if self.q is not None and is_ordered:
            raise ValueError("a search (q) takes no sort and order")
        if self.updated_since is not None and (self.q is not None or self.filter.is_selective or is_ordered):
            raise ValueError("updated_since takes no search, filter, sort or order")
        return self


class TorrentQuery(Selection):
    q: Annotated[str | None, Field(min_length=1, max_length=200)] = Field(
        None,
        description="Part of a name (case-insensitive) or start of an info hash; with a filter, part of a name only. "
        "A search takes no `sort` and `order`.",
    )
    enabled: Flag | Literal["pending"] | None = Field(
        None, description="Only enabled torrents, only disabled ones, or only those that wait for approval."
    )
    private: Flag | None = Field(None, description="Only private torrents, or only others.")
    seeded: Flag | None = Field(None, description="Only torrents with seeders, or only those without.")
    sort: TorrentOrder = Field(
        "seeders",
        description="`name`, `size` and `score` list only torrents that have one. `last_activity` is when the last "
        "peer left; torrents with peers are after all others (ascending). `size`, `added` and `last_activity` follow "
        "announces, and what a site writes into Redis, within some minutes; so do the filters.",
    )
    order: Literal["asc", "desc"] = "desc"

    @property
    def filter(self) -> TorrentFilter:
        """Without the search text."""
        return TorrentFilter(self.sort, self.order == "desc", self.enabled, self.private, self.seeded)


class UserQuery(Selection):
    q: Annotated[str | None, Field(min_length=1, max_length=200)] = Field(
        None,
        description="Part of a display name (case-insensitive), or a user ID. A search is ordered by name: it takes "
        "no `sort` and `order`.",
    )
    enabled: Flag | None = Field(None, description="Only enabled users, or only disabled ones.")
    can_leech: Flag | None = Field(None, description="Only users who may download, or only others.")
    sort: UserOrder = Field(
        "id",
        description="`name` lists users who have a name, `hit_and_runs` those who have any. `uploaded`, `downloaded` "
        "and `ratio` follow announces within some minutes.",
    )

    cursor: Annotated[str, Field(pattern="^(|[fw][0-9]{1,12}|[0-9]{1,19}-[0-9]{1,19})$")] = Field(
        "", description=Selection.model_fields["cursor"].description
    )

    @property
    def filter(self) -> UserFilter:
        return UserFilter(self.sort, self.order == "desc", self.enabled, self.can_leech, self.q or "")
