"""Parses form bodies in memory, as UTF-8.

aiohttp's reader of multipart/form-data (RFC 7578) writes files to temporary files, leaves them open if a form breaks
off, and decodes text by any codec that a part names; some codecs take hours for a body of the max size. The port limits
body sizes, so temporary files are not needed.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

from aiohttp import web
from multidict import MultiDict, MultiDictProxy

from tracker.admin.http.problems import Problem

MAX_FIELDS = 128
"""The upload page sends up to 100 files at once."""

_BOUNDARY = re.compile(r"""boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_DISPOSITION = re.compile(rb"(?:^|\r\n)content-disposition:[ \t]*form-data((?:;[^\r\n]*)?)", re.IGNORECASE)
_PARAMETER = re.compile(rb"""[; \t](name|filename)=(?:"([^"]*)"|([^\s;"]+))""", re.IGNORECASE)


class File(NamedTuple):
    """An uploaded file. ``name`` is as sent; empty if no file was chosen."""

    name: str
    content: bytes


Field = str | File


def parse_form(content_type: str, body: bytes) -> list[tuple[str, Field]]:
    """The fields in order. Raises ValueError for a malformed form."""
    named = _BOUNDARY.search(content_type)
    if named is None:
        raise ValueError("no boundary")
    boundary = (named[1] or named[2]).encode("ascii")
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MAX_FIELDS + 1)
    if not parts or not parts.pop().startswith(b"--"):
        raise ValueError("no end, or too many fields")
    return [_field(part) for part in parts]


def _field(part: bytes) -> tuple[str, Field]:
    head, blank, content = part.partition(b"\r\n\r\n")
    disposition = _DISPOSITION.search(head)
    if not blank or disposition is None:
        raise ValueError("no field")
    parameters = {found[1].lower(): found[2] or found[3] or b"" for found in _PARAMETER.finditer(disposition[1])}
    name = parameters[b"name"].decode() if b"name" in parameters else ""
    if not name:
        raise ValueError("no name")
    if b"filename" in parameters:
        return name, File(parameters[b"filename"].decode(errors="replace"), content)
    return name, content.decode()


URL_ENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


async def read_form_body(request: web.BaseRequest) -> MultiDictProxy[Field]:
    """The fields of a form; empty for a body of another type. The request caches its body. Forms are decoded as UTF-8
    whatever charset they name: some codecs take quadratic time. Raises Problem for a malformed form, and
    HTTPRequestEntityTooLarge."""
    fields: MultiDict[Field] = MultiDict()
    if request.content_type in (URL_ENCODED, MULTIPART):
        data = await request.read()
        try:
            is_multipart = request.content_type == MULTIPART
            fields.extend(parse_form(request.headers["Content-Type"], data) if is_multipart else _pairs(data))
        except ValueError as error:
            raise Problem(400, detail="malformed form body") from error
    return MultiDictProxy(fields)


def _pairs(data: bytes) -> list[tuple[str, Field]]:
    return [*parse_qsl(data.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)]
