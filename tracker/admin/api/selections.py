"""The queries of the lists of torrents and of users, and of their exports: order, filters, search."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tracker.admin.api.changes import UpdatedSince
from tracker.admin.api.contract import Query
from tracker.admin.api.models import Flag, Limit
from tracker.store.torrents.listing import Order as TorrentOrder
from tracker.store.torrents.listing import TorrentFilter
from tracker.store.users.listing import Order as UserOrder
from tracker.store.users.listing import UserFilter


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
    def is_selective(self) -> bool:
        raise NotImplementedError

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        is_ordered = self.model_fields_set & {"sort", "order"}
        if self.q is not None and is_ordered:
            raise ValueError("a search (q) takes no sort and order")
        if self.updated_since is not None and (self.is_selective or is_ordered):
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

    @property
    def is_selective(self) -> bool:
        return self.q is not None or self.filter.is_selective


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

    @property
    def is_selective(self) -> bool:
        return self.filter.is_selective
