"""What a form brings, whatever was sent in its place."""

from urllib.parse import parse_qsl

from aiohttp import web
from multidict import MultiDict, MultiDictProxy

from tracker.admin.multipart import MOST_FIELDS, Field, parse_form
from tracker.admin.problems import Problem

URL_ENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


async def posted(request: web.BaseRequest) -> MultiDictProxy[Field]:
    """The fields of a form, the body read once however often it is asked for; none of a body of another type.

    Forms are UTF-8, whatever they say: some codecs take time by the square of a text. Raises Problem for a body that
    is no form, and HTTPRequestEntityTooLarge.
    """
    if request.content_type not in (URL_ENCODED, MULTIPART):
        return MultiDictProxy(MultiDict())
    data = await request.read()
    try:
        if request.content_type == MULTIPART:
            return MultiDictProxy(MultiDict(parse_form(request.headers["Content-Type"], data)))
        return MultiDictProxy(MultiDict(_pairs(data)))
    except ValueError as error:
        raise Problem(400, detail="the body is not a well-formed form") from error


def _pairs(data: bytes) -> list[tuple[str, Field]]:
    pairs = parse_qsl(data.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    return [(name, value) for name, value in pairs]
