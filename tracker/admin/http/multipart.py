"""multipart/form-data (RFC 7578) from memory, as UTF-8: what files are sent with.

aiohttp's own reader keeps files in temporary files, leaves them open where a form breaks off, and decodes texts by
whatever codec a part names, some of which take hours for what a port lets in. A body here is as large as the port lets
in at most, so nothing is gained by the first.
"""

import re
from typing import NamedTuple

MOST_FIELDS = 128
"""A page sends up to a hundred files at once."""

_BOUNDARY = re.compile(r"""boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_DISPOSITION = re.compile(rb"(?:^|\r\n)content-disposition:[ \t]*form-data((?:;[^\r\n]*)?)", re.IGNORECASE)
_PARAMETER = re.compile(rb"""[; \t](name|filename)=(?:"([^"]*)"|([^\s;"]+))""", re.IGNORECASE)


class File(NamedTuple):
    """A file as it came; ``name`` is its sender's, and empty where none was chosen."""

    name: str
    content: bytes


Field = str | File


def parse_form(content_type: str, body: bytes) -> list[tuple[str, Field]]:
    """The fields in their order; raises ValueError for what is no form."""
    named = _BOUNDARY.search(content_type)
    if named is None:
        raise ValueError("no boundary")
    boundary = (named[1] or named[2]).encode("ascii")
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MOST_FIELDS + 1)
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
