"""The queries of the list of torrents and of its exports: order, filters, search."""

from typing import Literal

from pydantic import Field, model_validator

from tracker.admin.api.changes import UpdatedSince
from tracker.admin.api.contract import Query
from tracker.admin.api.models import Flag, Paged
from tracker.store.torrents.filter import Order, TorrentFilter


class TorrentSelection(Query):
    """Which torrents, and in which order."""

    q: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Part of a name (case-insensitive) or start of an info hash; with a filter, part of a name only. "
        "A search takes no `sort` and `order`.",
    )
    enabled: Flag | Literal["pending"] | None = Field(
        None, description="Only enabled torrents, only disabled ones, or only those that wait for approval."
    )
    private: Flag | None = Field(None, description="Only private torrents, or only others.")
    seeded: Flag | None = Field(None, description="Only torrents with seeders, or only those without.")
    sort: Order = Field(
        "seeders",
        description="`name`, `size` and `score` list only torrents that have one. `last_activity` is when the last "
        "peer left; torrents with peers are after all others (ascending). `size`, `added` and `last_activity` follow "
        "announces, and what a site writes into Redis, within some minutes; so do the filters.",
    )
    order: Literal["asc", "desc"] = "desc"

    @model_validator(mode="after")
    def _search_or_order(self) -> "TorrentSelection":
        if self.q is not None and self.model_fields_set & {"sort", "order"}:
            raise ValueError("a search (q) takes no sort and order")
        return self

    @property
    def filter(self) -> TorrentFilter:
        """The query without the search text."""
        return TorrentFilter(self.sort, self.order == "desc", self.enabled, self.private, self.seeded)

    @property
    def is_selective(self) -> bool:
        return self.q is not None or self.filter.is_selective


class TorrentQuery(TorrentSelection, Paged):
    """A page of torrents."""

    updated_since: UpdatedSince = None
    cursor: str = Field(
        "",
        pattern="^[-0-9A-Za-z.]{0,4000}$",
        description="`next_cursor` of the previous page of a search, a filtered list or one with `updated_since`.",
    )

    @model_validator(mode="after")
    def _one_or_the_other(self) -> "TorrentQuery":
        if self.updated_since is not None:
            if self.is_selective or self.model_fields_set & {"sort", "order", "offset"}:
                raise ValueError("updated_since takes cursor, and no search, filter, sort, order or offset")
        elif self.is_selective and "offset" in self.model_fields_set:
            raise ValueError("a search (q) or a filter takes cursor instead of offset")
        elif self.cursor and not self.is_selective:
            raise ValueError("cursor needs a search (q), a filter or updated_since")
        return self
