"""Reads forms and URLs of the dashboard: texts, checkboxes, files, page numbers. Callers are authenticated."""

import string

from aiohttp import web
from multidict import MultiDictProxy

from tracker.admin.http.form_body import Field, File, read_form_body
from tracker.store.schema.multipliers import MULTIPLIERS, RuleChange, parse_end, rule_change

_MAX_TEXT_LENGTH = 2000
_LAST_PAGE = 1_000_000
_LAST_CURSOR = 2**64 - 1


class Form:
    """Form fields as sent: texts are stripped and cut to a max length, not validated."""

    def __init__(self, fields: MultiDictProxy[Field]) -> None:
        self._fields = fields

    def text(self, name: str, max_length: int = _MAX_TEXT_LENGTH) -> str:
        """Empty if missing or a file."""
        value = self._fields.get(name, "")
        return clean(value, max_length) if isinstance(value, str) else ""

    def texts(self, name: str) -> list[str]:
        """The values of all fields of this name."""
        return [clean(value) for value in self._fields.getall(name, []) if isinstance(value, str)]

    def has(self, name: str) -> bool:
        """Whether the form has the field, perhaps empty."""
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
    """The number; None if invalid."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= max_length else None


def page_number(text: str) -> int:
    """The requested page; 1 if invalid."""
    return min(digits(text, 7) or 1, _LAST_PAGE)


def cursor_number(text: str) -> int:
    """The requested cursor; 0 (the beginning) if invalid."""
    number = digits(text, 20) or 0
    return number if number <= _LAST_CURSOR else 0


async def read_form(request: web.Request) -> Form:
    """The form, without fields for a GET. Raises Problem for a malformed form, and HTTPRequestEntityTooLarge."""
    return Form(await read_form_body(request))
