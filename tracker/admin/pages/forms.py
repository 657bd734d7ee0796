"""What a form or an address of the dashboard holds: texts, ticks, files, pages. Other parts have checked who sent it."""

from aiohttp import web
from multidict import MultiDictProxy

from tracker.admin.multipart import Field, File
from tracker.admin.posted import posted

_LONGEST = 2000
_LAST_PAGE = 1_000_000
_LAST_CURSOR = 2**64 - 1


class Form:
    """Nothing here is believed: texts are as they came, without blanks around them, and cut."""

    def __init__(self, fields: MultiDictProxy[Field]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """Empty when it is not there, or is a file."""
        value = self._fields.get(name, "")
        return clean(value) if isinstance(value, str) else ""

    def ticked(self, name: str) -> bool:
        return bool(self.text(name))

    def files(self, name: str) -> list[File]:
        """Those that were chosen: a browser sends an empty one where none was."""
        parts = self._fields.getall(name, [])
        return [part for part in parts if isinstance(part, File) and part.name]


def clean(text: str, longest: int = _LONGEST) -> str:
    """Without what no store and no page could write: halves of characters."""
    return text[:longest].encode("utf-8", "replace").decode().strip()


def page_number(text: str) -> int:
    """The page asked for; the first where that is none."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 7 else 1
    return min(max(number, 1), _LAST_PAGE)


def cursor_number(text: str) -> int:
    """Where a list in no order goes on; its beginning where that is no cursor of the store."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else 0
    return number if number <= _LAST_CURSOR else 0


async def read_form(request: web.Request) -> Form:
    """Raises Problem for a body that is no form, and HTTPRequestEntityTooLarge."""
    return Form(await posted(request))
