"""Parses form bodies."""

from urllib.parse import parse_qsl

from aiohttp import web
from multidict import MultiDict, MultiDictProxy

from tracker.admin.http.multipart import MAX_FIELDS, Field, parse_form
from tracker.admin.http.problems import Problem

URL_ENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


async def read_form_body(request: web.BaseRequest) -> MultiDictProxy[Field]:
    """The fields of a form; empty for a body of another type. The request caches its body.

    Forms are decoded as UTF-8 whatever charset they name: some codecs take quadratic time. Raises Problem for a
    malformed form, and HTTPRequestEntityTooLarge.
    """
    if request.content_type not in (URL_ENCODED, MULTIPART):
        return MultiDictProxy(MultiDict())
    data = await request.read()
    try:
        if request.content_type == MULTIPART:
            return MultiDictProxy(MultiDict(parse_form(request.headers["Content-Type"], data)))
        return MultiDictProxy(MultiDict(_pairs(data)))
    except ValueError as error:
        raise Problem(400, detail="malformed form body") from error


def _pairs(data: bytes) -> list[tuple[str, Field]]:
    pairs = parse_qsl(data.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    return [(name, value) for name, value in pairs]
