"""Reads forms and URLs of the dashboard, of authenticated callers: texts, checkboxes, files, list options, pages."""

import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self
from urllib.parse import urlencode

from aiohttp import web
from multidict import MultiMapping

from tracker.admin.http.form_body import Field, File, read_form_body
from tracker.store.schema.multipliers import MULTIPLIERS, RuleChange, parse_end, rule_change
from tracker.store.sharding.listing import ListPage

_MAX_TEXT_LENGTH = 2000
_LAST_PAGE = 1_000_000
_LAST_CURSOR = 2**64 - 1


class Form:
    """Form fields as sent: texts are stripped and cut to a max length, not validated."""

    def __init__(self, fields: MultiMapping[Field]) -> None:
        self._fields = fields

    def text(self, name: str, max_length: int = _MAX_TEXT_LENGTH) -> str:
        """Empty if missing or a file."""
        value = self._fields.get(name, "")
        return clean(value, max_length) if isinstance(value, str) else ""

    def texts(self, name: str) -> list[str]:
        return [clean(value) for value in self._fields.getall(name, []) if isinstance(value, str)]

    def last_texts(self, names: Iterable[str]) -> dict[str, str]:
        """The last value of each of these fields that the form has: of a checkbox, the one that counts."""
        return {name: self.texts(name)[-1] for name in names if self.has(name)}

    def has(self, name: str) -> bool:
        return name in self._fields

    def ticked(self, name: str) -> bool:
        return bool(self.text(name))

    def files(self, name: str) -> list[File]:
        """The chosen files. Browsers send an empty part if none was chosen."""
        parts = self._fields.getall(name, [])
        return [part for part in parts if isinstance(part, File) and part.name]


def clean(text: str, max_length: int = _MAX_TEXT_LENGTH) -> str:
    """Cut, without ASCII white space at its ends, and without lone surrogates, which cannot be encoded."""
    return text[:max_length].encode("utf-8", "replace").decode().strip(string.whitespace)


def read_rule(request: web.Request, form: Form, now: float) -> RuleChange:
    """The rule of a form of parts/multipliers.html, or of its button that removes one. Raises ClientError."""
    if request.path.endswith("/remove"):
        return RuleChange(int(now), form.text("rule"))
    upload, download = (form.text(name) or None for name in MULTIPLIERS)
    return rule_change(now, form.text("rule"), upload, download, parse_end(form.text("until"), now))


def digits(text: str, max_length: int) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= max_length else None


def page_number(text: str) -> int:
    """The requested page; 1 if invalid."""
    return min(digits(text, 7) or 1, _LAST_PAGE)


def cursor_number(text: str) -> int:
    """The requested cursor; 0 (the beginning) if invalid."""
    number = digits(text, 20) or 0
    return number if number <= _LAST_CURSOR else 0


async def read_form(request: web.Request) -> Form:
    """Raises Problem for a malformed form, and HTTPRequestEntityTooLarge."""
    return Form(await read_form_body(request))


DEFAULT_SIZE = 50
_MAX_SEARCH_LENGTH = 200
_MAX_CURSOR_LENGTH = 4000
_AROUND = 2
"""Page numbers on each side of the current one."""


def numbered(page: int, size: int, shown: int, total: int | None, href: Callable[[int], str]) -> dict[str, Any]:
    """The variables of the macro ``paging`` for a list whose number of entries is known. ``page`` begins with 1;
    ``shown``: rows of this page."""
    first, count = (page - 1) * size, total or 0
    last_page = max(1, -(-count // size))
    around = range(max(1, page - _AROUND), min(last_page, page + _AROUND) + 1)
    numbers = sorted({1, *around, last_page}) if last_page > 1 else []
    return {
        "first": first + 1,
        "last": first + shown if shown else 0,
        "total": count,
        "previous_url": href(page - 1) if page > 1 else "",
        "next_url": href(page + 1) if first + size < count else "",
        "numbers": [(number, href(number), number == page) for number in numbers],
    }


def turned(path: str, number: int, size: int, total: int, name: str = "page", part: str = "") -> dict[str, Any]:
    """The variables of the macro ``paging`` for a list without page numbers. ``path`` may have a query, ``name`` is
    that of the page in it, and ``part`` that of the list on its page."""
    first, before = (number - 1) * size, f"{path}{'&' if '?' in path else '?'}{name}="
    return {
        "first": first + 1,
        "total": total,
        "previous_url": f"{before}{number - 1}{part}" if number > 1 else "",
        "next_url": f"{before}{number + 1}{part}" if first + size < total else "",
    }


def first_and_next(path: str, query: Mapping[str, str], cursor: str, after: str) -> dict[str, str]:
    """The addresses of the first page of a list, empty on it, and of the next one, empty at the end."""
    given = {name: value for name, value in query.items() if value}
    return {
        "first_url": f"{path}?{urlencode(given)}" if cursor else "",
        "next_url": f"{path}?{urlencode({**given, 'cursor': after})}" if after else "",
    }


def exports_of(path: str, query: Mapping[str, object]) -> list[tuple[str, str]]:
    """(URL, label) of the exports of a list."""
    kinds = (("csv", "CSV"), ("json-lines", "JSON lines"))
    return [(f"/api/v1{path}/{kind}?{urlencode(query)}", label) for kind, label in kinds]


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The options of a list in the URL: search text, filters, sorting, page. Invalid values become defaults."""

    path: ClassVar[str]
    sorts: ClassVar[Mapping[Any, str]]
    """Orders, with their column headings."""
    choices: ClassVar[Mapping[str, Mapping[str, str]]]
    """Filters, with their values and labels."""
    lowest_first: ClassVar[tuple[str, ...]]
    """Orders that the first click on a heading sorts ascending."""
    sizes: ClassVar[tuple[int, ...]] = (25, 50, 100)
    """Rows of a page. A form with more checkboxes has too many fields."""

    sort: Any = ""
    descending: bool = False
    text: str = ""
    page: int = 1
    cursor: str = ""
    size: int = DEFAULT_SIZE

    @classmethod
    def read(cls, request: web.Request) -> Self:
        asked, usual = request.query, cls()
        sort, order, size = (asked.get(name, "") for name in ("sort", "order", "size"))
        chosen = {name: asked.get(name, "") for name in cls.choices}
        return cls(
            **{name: value for name, value in chosen.items() if value in cls.choices[name]},
            sort=sort if sort in cls.sorts else usual.sort,
            descending=order == "desc" if order in ("asc", "desc") else usual.descending,
            text=clean(asked.get("q", ""), _MAX_SEARCH_LENGTH),
            page=page_number(asked.get("page", "")),
            cursor=cls.checked(clean(asked.get("cursor", ""), _MAX_CURSOR_LENGTH)),
            size=int(size) if size in map(str, cls.sizes) else DEFAULT_SIZE,
        )

    @staticmethod
    def checked(cursor: str) -> str:
        """The cursor; empty if it is invalid."""
        return cursor

    @property
    def flags(self) -> Mapping[str, object]:
        """The filters as the API names them; None: without it."""
        raise NotImplementedError

    def href(self, *, page: int = 1, cursor: str = "") -> str:
        """The URL of a page of this list; defaults are left out. A search has an order of its own."""
        usual, order = self.__class__(), "desc" if self.descending else "asc"
        parts = {
            "q": self.text,
            **{name: getattr(self, name) for name in self.choices},
            "sort": "" if self.text or self.sort == usual.sort else self.sort,
            "order": "" if self.text or self.descending == usual.descending else order,
            "size": "" if self.size == DEFAULT_SIZE else self.size,
            "page": page if page > 1 else "",
            "cursor": cursor,
        }
        query = urlencode({name: value for name, value in parts.items() if value})
        return f"{self.path}?{query}" if query else self.path

    @property
    def start(self) -> str:
        """The cursor of a page that has a number; empty for the first."""
        return f"f{(self.page - 1) * self.size}" if self.page > 1 else ""

    @property
    def here(self) -> str:
        """The query string of this page."""
        return self.href(page=self.page, cursor=self.cursor).removeprefix(self.path)

    @property
    def exports(self) -> list[tuple[str, str]]:
        """Those of this list, as of ``exports_of``."""
        parts = {name: str(flag).lower() for name, flag in self.flags.items() if flag is not None}
        ordered = {"sort": self.sort, "order": "desc" if self.descending else "asc"}
        return exports_of(self.path, parts | ({"q": self.text} if self.text else ordered))

    def headings(self) -> list[tuple[str, str, str, str]]:
        """(name, label, URL, aria-sort; empty if not sorted by it) of the sortable columns; none for a search."""
        state = "descending" if self.descending else "ascending"
        return [
            (name, label, replace(self, sort=name, descending=not self.descending).href(), state)
            if name == self.sort
            else (name, label, replace(self, sort=name, descending=name not in self.lowest_first).href(), "")
            for name, label in ({} if self.text else self.sorts).items()
        ]

    def paging(self, page: ListPage[Any]) -> dict[str, Any]:
        """The variables of the macro ``paging``: with page numbers, or for a list that is read on from a cursor."""
        if page.first is not None:
            return numbered(self.page, self.size, len(page.rows), page.total, lambda number: self.href(page=number))
        return {
            "first": 1,
            "last": len(page.rows),
            "total": None,
            "previous_url": self.href() if self.cursor else "",
            "next_url": self.href(cursor=page.cursor) if page.cursor else "",
            "numbers": [],
        }
