"""What a form of the dashboard holds: texts, ticks and files. Other parts have checked who sent it."""

from aiohttp import web
from multidict import MultiDictProxy

_LONGEST = 2000


class Form:
    """Nothing here is believed: texts are as they came, without blanks around them, and cut."""

    def __init__(self, fields: MultiDictProxy[str | bytearray | web.FileField]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """Empty when it is not there, or is a file."""
        value = self._fields.get(name, "")
        return value.strip()[:_LONGEST] if isinstance(value, str) else ""

    def ticked(self, name: str) -> bool:
        return bool(self.text(name))

    def files(self, name: str) -> list[web.FileField]:
        """Those that were chosen: a browser sends an empty one where none was."""
        parts = self._fields.getall(name, [])
        return [part for part in parts if isinstance(part, web.FileField) and part.filename]


async def read_form(request: web.Request) -> Form:
    """Raises web.HTTPBadRequest for a body that is no form, and HTTPRequestEntityTooLarge."""
    try:
        return Form(await request.post())
    except (ValueError, LookupError) as error:  # a part without a name, a charset that is none, …
        raise web.HTTPBadRequest(text="the body is not a well-formed form") from error
