"""The queries of the list of users and of its exports: order, filters, search."""

from typing import Literal

from pydantic import Field, model_validator

from tracker.admin.api.changes import UpdatedSince
from tracker.admin.api.contract import Query
from tracker.admin.api.models import Flag, Paged
from tracker.store.users.listing import Order, UserFilter


class UserSelection(Query):
    """Which users, and in which order."""

    q: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Part of a display name (case-insensitive), or a user ID. A search is ordered by name: it takes "
        "no `sort` and `order`.",
    )
    enabled: Flag | None = Field(None, description="Only enabled users, or only disabled ones.")
    can_leech: Flag | None = Field(None, description="Only users who may download, or only others.")
    sort: Order = Field(
        "id",
        description="`name` lists users who have a name, `hit_and_runs` those who have any. `uploaded`, `downloaded` "
        "and `ratio` follow announces within some minutes.",
    )
    order: Literal["asc", "desc"] = "asc"

    @model_validator(mode="after")
    def _search_or_order(self) -> "UserSelection":
        if self.q is not None and self.model_fields_set & {"sort", "order"}:
            raise ValueError("a search (q) takes no sort and order")
        return self

    @property
    def filter(self) -> UserFilter:
        return UserFilter(self.sort, self.order == "desc", self.enabled, self.can_leech, self.q or "")


class UserQuery(UserSelection, Paged):
    """A page of users."""

    updated_since: UpdatedSince = None
    cursor: str = Field(
        "",
        pattern="^(|[fw][0-9]{1,12}|[0-9]{1,19}-[0-9]{1,19})$",
        description="`next_cursor` of the previous page of a search, a filtered list or one with `updated_since`.",
    )

    @model_validator(mode="after")
    def _one_or_the_other(self) -> "UserQuery":
        if self.updated_since is not None:
            if self.filter.is_selective or self.model_fields_set & {"sort", "order", "offset"}:
                raise ValueError("updated_since takes cursor, and no search, filter, sort, order or offset")
            return self
        if self.filter.is_selective and "offset" in self.model_fields_set:
            raise ValueError("a search (q) or a filter takes cursor instead of offset")
        if self.cursor and not (self.filter.is_selective and self.cursor[0] in "fw"):
            raise ValueError(
                "cursor needs a search (q), a filter or updated_since, and is that of the same list"
            )
        return self
