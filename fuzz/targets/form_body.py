"""Form bodies on the admin port, of both content types: parsed, or rejected with ValueError."""

from collections.abc import Iterable

from tracker.admin.http.form_body import MAX_FIELDS, File, _pairs, parse_form
from tracker.admin.pages.forms import clean, cursor_number, page_number

MAX_LENGTH = 1000


def check(data: bytes) -> None:
    """The first line is the Content-Type."""
    kind, _, body = data.partition(b"\n")
    for multipart in (True, False):
        try:
            fields = parse_form(kind.decode("latin-1"), body) if multipart else _pairs(body)
        except ValueError:
            continue
        assert len(fields) <= MAX_FIELDS
        for name, field in fields:
            name.encode()
            if isinstance(field, File):
                field.name.encode()
                assert field.content in body
            else:
                assert clean(field) == clean(field).strip() and len(clean(field)) <= 2000
                assert 1 <= page_number(field) <= 1_000_000 and 0 <= cursor_number(field) < 2**64
    _check_file(body)


def _check_file(content: bytes) -> None:
    """A file part is parsed unchanged unless it contains the boundary."""
    if b"\r\n--zz" in b"\r\n" + content:
        return
    part = b'--zz\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n%b\r\n--zz--\r\n' % content
    assert parse_form("multipart/form-data; boundary=zz", part) == [("f", File("a", content))]


def seeds() -> Iterable[bytes]:
    kind = b"multipart/form-data; boundary=b\n"
    return [
        kind + b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nhello\r\n--b--\r\n',
        kind
        + b'--b\r\ncontent-disposition: form-data; name=f; filename="x.torrent"\r\nContent-Type: x\r\n\r\n\0\r\n--b--',
        b'multipart/form-data; boundary="q r"\n--q r\r\n\r\n--q r--',
        b"application/x-www-form-urlencoded\na=b&c=%E4%B8&d=+&page=7",
    ]
