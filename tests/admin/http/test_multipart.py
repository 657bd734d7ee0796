import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.admin.http.form_body import MAX_FIELDS, File, parse_form

TYPE = "multipart/form-data; boundary=b"


def test_texts_and_files_are_parsed() -> None:
    body = (
        b'preamble\r\n--b\r\nContent-Disposition: form-data; name="name"\r\n\r\n\xc3\xa9\r\n'
        b'--b\r\nContent-Type: text/plain\r\ncontent-disposition: form-data; filename="x.torrent"; name=file\r\n\r\n'
        b"\xff\r\n--\r\n\r\n--b--\r\nepilogue"
    )
    assert parse_form(TYPE, body) == [("name", "é"), ("file", File("x.torrent", b"\xff\r\n--\r\n"))]
    assert parse_form('multipart/form-data; charset=utf-8; BOUNDARY="b"', body)[0] == ("name", "é")


def test_a_form_without_fields_is_empty() -> None:
    assert parse_form(TYPE, b"--b--\r\n") == []


def test_an_empty_file_is_parsed() -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename=""\r\n\r\n\r\n--b--'
    assert parse_form(TYPE, body) == [("file", File("", b""))]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b",
        b"--b\r\n",
        b"--c--",
        b"--b\r\n\r\nx\r\n--b--",
        b'--b\r\nContent-Disposition: form-data; filename="f"\r\n\r\nx\r\n--b--',
        b'--b\r\nContent-Disposition: form-data; name=""\r\n\r\nx\r\n--b--',
        b'--b\r\nContent-Disposition: attachment; name="x"\r\n\r\nx\r\n--b--',
        b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n\xff\r\n--b--',
        b'--b\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nx\r\n--b--',
        b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nx\r\n' * (MAX_FIELDS + 1) + b"--b--",
    ],
)
def test_malformed_forms_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_form(TYPE, body)


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=", TYPE + "b" * 70])
def test_a_missing_boundary_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_form(kind, b"--b--")


@given(st.text(), st.binary())
def test_any_input_is_parsed_or_refused(kind: str, body: bytes) -> None:
    for each in (kind, TYPE):
        try:
            parse_form(each, body)
        except ValueError:
            continue


@given(st.lists(st.binary().filter(lambda content: b"\r\n--b" not in b"\r\n" + content), max_size=MAX_FIELDS))
def test_file_contents_are_unchanged(contents: list[bytes]) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    body = b"".join(head + content + b"\r\n" for content in contents) + b"--b--\r\n"
    assert parse_form(TYPE, body) == [("file", File("f", content)) for content in contents]
