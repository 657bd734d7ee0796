"""Parses multipart/form-data (RFC 7578) in memory, as UTF-8.

aiohttp's reader writes files to temporary files, leaves them open if a form breaks off, and decodes text by any codec
that a part names; some codecs take hours for a body of the max size. The port limits body sizes, so temporary files are
not needed.
"""

import re
from typing import NamedTuple

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
    parameters = {
        found[1].lower(): found[2] or found[3] or b"" for found in _PARAMETER.finditer(disposition[1])
    }
    name = parameters[b"name"].decode() if b"name" in parameters else ""
    if not name:
        raise ValueError("no name")
    if b"filename" in parameters:
        return name, File(parameters[b"filename"].decode(errors="replace"), content)
    return name, content.decode()
