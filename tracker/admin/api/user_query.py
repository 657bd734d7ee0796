"""The query of the list of users: order, filters, search."""

from typing import Literal

from pydantic import Field, model_validator

from tracker.admin.api.models import Flag, Paged
from tracker.store.users.listing import Order


class UserQuery(Paged):
    q: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Part of a display name (case-insensitive), or a user ID. A search is ordered by name: it takes "
        "`cursor` instead of `sort`, `order` and `offset`.",
    )
    enabled: Flag | None = Field(
        None, description="Only enabled users, or only disabled ones. Takes `cursor`."
    )
    can_leech: Flag | None = Field(
        None, description="Only users who may download, or only others. Takes `cursor`."
    )
    cursor: str = Field(
        "",
        pattern="^[0-9]{0,12}$",
        description="`next_cursor` of the previous page of a search or a filtered list.",
    )
    sort: Order = Field(
        "id",
        description="`name` lists users who have a name, `hit_and_runs` those who have any. `uploaded`, `downloaded` "
        "and `ratio` follow announces within some minutes.",
    )
    order: Literal["asc", "desc"] = "asc"

    @model_validator(mode="after")
    def _one_or_the_other(self) -> "UserQuery":
        if self.q is not None and self.model_fields_set & {"sort", "order"}:
            raise ValueError("a search (q) takes no sort and order")
        if self.is_selective and "offset" in self.model_fields_set:
            raise ValueError("a search (q) or a filter takes cursor instead of offset")
        if self.cursor and not self.is_selective:
            raise ValueError("cursor needs a search (q) or a filter")
        return self

    @property
    def is_selective(self) -> bool:
        return self.q is not None or self.enabled is not None or self.can_leech is not None
