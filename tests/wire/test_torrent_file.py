import hashlib
from contextlib import suppress
from pathlib import Path

import bencodepy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.errors import ClientError
from tracker.wire.torrent_file import (
    MAX_DEPTH,
    MAX_TOKENS,
    Piece,
    TorrentFile,
    parse_pieces,
    parse_torrent_file,
    with_announce_url,
)

PIECES = b"\x11" * 20
V1_INFO = {b"length": 5, b"name": b"n", b"piece length": 16384, b"pieces": PIECES}
MALFORMED = "this is not a well-formed .torrent file"


def torrent(info: dict[bytes, object]) -> bytes:
    encoded: bytes = bencodepy.encode({b"announce": b"http://tracker/announce", b"info": info})
    return encoded


def with_info(**changes: object) -> bytes:
    changed = {name.replace("_", " ").encode(): value for name, value in changes.items()}
    return torrent(V1_INFO | changed)


def v2_info(tree: object) -> bytes:
    return torrent({b"file tree": tree, b"meta version": 2, b"name": b"n", b"piece length": 16384})


def refusal(data: bytes) -> str:
    with pytest.raises(ClientError) as caught:
        parse_torrent_file(data)
    return caught.value.text


@pytest.mark.parametrize(
    ("flags", "hashes"),
    [
        ("v1_only", (True, False)),
        ("v2_only", (False, True)),
        ("canonical_files", (True, True)),
    ],
    ids=["v1", "v2", "hybrid"],
)
def test_a_file_made_by_libtorrent_has_the_same_fields(
    tmp_path: Path, flags: str, hashes: tuple[bool, bool]
) -> None:
    """BEP 52: with folders, and with padding, which does not count."""
    lt = pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")
    contents = {"top/a/b.bin": bytes(70_000), "top/ü.txt": b"x" * 33}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    entries = [lt.create_file_entry(name, len(content)) for name, content in contents.items()]
    creator = lt.create_torrent(entries, piece_size=16384, flags=getattr(lt.create_torrent, flags))
    creator.add_tracker("http://other/secret/announce")
    lt.set_piece_hashes(creator, str(tmp_path))
    (tmp_path / "made.torrent").write_bytes(data := lt.bencode(creator.generate()))
    judge = lt.torrent_info(str(tmp_path / "made.torrent")).info_hashes()

    parsed = parse_torrent_file(data)
    assert (parsed.name, parsed.size_bytes, parsed.private) == ("top", 70_033, False)
    assert (parsed.info_hash is not None, parsed.info_hash_v2 is not None) == hashes
    assert parsed.info_hash is None or parsed.info_hash == judge.v1.to_bytes()
    assert parsed.info_hash_v2 is None or parsed.info_hash_v2 == judge.v2.to_bytes()
    found = [each[:20] for each in (parsed.info_hash, parsed.info_hash_v2) if each]
    assert list(parsed.announce_hashes) == found

    # The bare file has all that a client needs: libtorrent reads it, with our announce URL only.
    assert b"secret" not in parsed.bare and parse_torrent_file(parsed.bare).bare == parsed.bare
    bare = lt.load_torrent_buffer(with_announce_url(parsed.bare, "http://ours/é/announce"))
    assert bare.ti.info_hashes() == judge and bare.trackers == ["http://ours/é/announce"]
    whole, kept = bencodepy.decode(data), bencodepy.decode(parsed.bare)
    assert kept == {key: whole[key] for key in (b"info", b"piece layers") if key in whole}


class TestContents:
    def test_a_v1_file_has_its_fields(self) -> None:
        data, bare = torrent(V1_INFO), bencodepy.encode({"info": V1_INFO})
        expected = hashlib.sha1(bencodepy.encode(V1_INFO), usedforsecurity=False).digest()
        assert parse_torrent_file(data) == TorrentFile("n", expected, None, False, 5, bare)  # type: ignore[arg-type]

    def test_the_hash_is_that_of_the_files_own_bytes(self) -> None:
        """Unsorted keys: encoding the dictionary again would give another hash."""
        info = b"d6:pieces20:%b4:name1:n6:lengthi5e12:piece lengthi16384ee" % PIECES
        parsed = parse_torrent_file(b"d4:info%b8:announce1:xe" % info)
        assert parsed.info_hash == hashlib.sha1(info, usedforsecurity=False).digest()

    def test_a_nested_info_key_is_ignored(self) -> None:
        nested = b"d1:ad4:infod4:name5:wrongee4:info%be" % bencodepy.encode(V1_INFO)
        assert parse_torrent_file(nested).name == "n"

    def test_trailing_bytes_are_ignored(self) -> None:
        assert parse_torrent_file(torrent(V1_INFO) + b"\r\n") == parse_torrent_file(torrent(V1_INFO))

    @pytest.mark.parametrize(
        ("value", "private"), [(1, True), (0, False), (2, False), (b"1", False), ([], False)]
    )
    def test_the_private_flag_is_read(self, value: object, private: bool) -> None:
        """BEP 27"""
        assert parse_torrent_file(with_info(private=value)).private is private

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("größer".encode(), "größer"),
            (b"\xff\x1b[31m\n", "\ufffd\ufffd[31m\ufffd"),
            (b"", ""),
            (b"a" * 300, "a" * 255),
        ],
    )
    def test_names_are_printable(self, name: bytes, text: str) -> None:
        assert parse_torrent_file(with_info(name=name)).name == text

    def test_the_size_is_the_sum_without_padding(self) -> None:
        """BEP 47"""
        files = [{b"length": 3}, {b"length": 4, b"attr": b"x"}, {b"attr": b"p", b"length": 100}]
        assert parse_torrent_file(with_info(files=files)).size_bytes == 7

    def test_a_v2_file_tree_has_its_size(self) -> None:
        tree = {b"a": {b"": {b"length": 3}}, b"b": {b"c": {b"": {b"length": 4}}}, b"e": {}}
        parsed = parse_torrent_file(v2_info(tree))
        assert parsed.size_bytes == 7 and parsed.info_hash is None
        assert parsed.info_hash_v2 is not None and parsed.announce_hashes == (parsed.info_hash_v2[:20],)


class TestPieces:
    @pytest.mark.parametrize("flags", ["v1_only", "canonical_files"], ids=["v1", "hybrid with padding"])
    def test_each_piece_of_several_files_has_its_hash(self, tmp_path: Path, flags: str) -> None:
        lt = pytest.importorskip(
            "libtorrent", reason="libtorrent has no wheel for this interpreter or system"
        )
        contents = {"top/a.bin": bytes(range(256)) * 200, "top/b.bin": b"x" * 40_001}
        (tmp_path / "top").mkdir()
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content)
        entries = [lt.create_file_entry(name, len(content)) for name, content in contents.items()]
        creator = lt.create_torrent(entries, piece_size=16384, flags=getattr(lt.create_torrent, flags))
        lt.set_piece_hashes(creator, str(tmp_path))
        unit = 1 if flags == "v1_only" else 16384
        whole = b"".join(content + bytes(-len(content) % unit) for content in contents.values())

        pieces = parse_pieces(lt.bencode(creator.generate()))
        assert pieces is not None and pieces.count == -(-len(whole) // 16384)
        for index in range(pieces.count):
            content = whole[index * 16384 : (index + 1) * 16384]
            digest = hashlib.sha1(content, usedforsecurity=False).digest()
            assert pieces.piece(index) == Piece(index, len(content), digest)

    def test_a_v2_torrent_has_none(self) -> None:
        assert parse_pieces(v2_info({b"a": {b"": {b"length": 3}}})) is None

    @pytest.mark.parametrize(
        "changes",
        [
            {"piece_length": 0},
            {"piece_length": -1},
            {"piece_length": b"16384"},
            {"piece_length": 4},  # two pieces for one hash
            {"length": 0},
            {"length": 16385},
            {"length": -1},
            {"pieces": b""},
            {"pieces": PIECES * 2},
            {"files": [{b"length": 5}, {b"length": -1, b"attr": b"p"}]},
        ],
    )
    def test_pieces_that_do_not_match_the_size_are_none(self, changes: dict[str, object]) -> None:
        assert parse_pieces(with_info(**changes)) is None

    @pytest.mark.parametrize("length", [1, 5, 16384])
    def test_the_last_piece_may_be_shorter(self, length: int) -> None:
        pieces = parse_pieces(with_info(length=length))
        assert pieces is not None and pieces.piece(0) == Piece(0, length, PIECES)

    @pytest.mark.parametrize("data", [b"", b"d4:info", b"<html>", with_info(pieces=b"short")])
    def test_malformed_files_are_refused(self, data: bytes) -> None:
        with pytest.raises(ClientError):
            parse_pieces(data)


class TestHostileInput:
    @pytest.mark.parametrize(
        "data",
        [
            *(
                b"",
                b"d",
                b"e",
                b"le",
                b"i1e",
                b"4:info",
                b"d4:info",
                b"d4:infod",
                b"d4:info5:abcd",
                b"d4:infole",
            ),
            *(
                b"di1ei2ee",
                b"d4:infod1:aee",
                b"d4:infodi1ei2eee",
                b"d4:infodlei2eee",
                b"d4:infoi1ee",
                b"<html>",
            ),
            *(
                b"d4:infodee",
                b"d4:infode4:infodee",
                b"d4:infod1:ai01eee",
                b"d4:infod1:ai-0eee",
                b"d4:infod1:aieee",
            ),
            *(b"d04:infodee", b"d-1:", b"d99999999999999999999:", b"d4:infod1:a999999999:ee", b"d4:info\x00"),
            b"d4:infod1:ai" + b"9" * 5000 + b"eee",
        ],
    )
    def test_malformed_files_are_refused(self, data: bytes) -> None:
        assert refusal(data)

    @pytest.mark.parametrize("data", [torrent(V1_INFO)[:-1], torrent(V1_INFO)[:60], b"d4:infod1:aee"])
    def test_truncated_files_are_refused(self, data: bytes) -> None:
        assert refusal(data) == MALFORMED

    def test_each_refusal_names_its_reason(self) -> None:
        assert refusal(b"d8:announce1:xe") == "the .torrent file has no info dictionary"
        assert "neither pieces" in refusal(b"d4:infod4:name1:nee")

    @pytest.mark.parametrize("opening", [b"l", b"d1:a"])
    @pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
    def test_nesting_beyond_the_limit_is_refused(self, opening: bytes, depth: int) -> None:
        assert refusal(b"d4:info" + opening * depth) in {"the .torrent file is nested too deeply", MALFORMED}
        assert refusal(b"d1:x" + opening * depth) == "the .torrent file is nested too deeply"

    def test_nesting_within_the_limit_is_accepted(self) -> None:
        deep = b"l" * (MAX_DEPTH - 1) + b"e" * (MAX_DEPTH - 1)
        info = b"d6:lengthi5e4:name1:n6:pieces0:1:x%be" % deep
        assert parse_torrent_file(b"d4:info%be" % info).size_bytes == 5

    def test_too_many_values_are_refused(self) -> None:
        assert refusal(b"d4:infol" + b"le" * MAX_TOKENS) == "the .torrent file has too many values"
        half = b"l" + b"le" * (MAX_TOKENS // 4) + b"e"
        assert refusal(b"d1:a%b1:b%b1:c%be" % (half, half, half)) == "the .torrent file has too many values"

    def test_a_file_that_is_too_large_is_refused(self) -> None:
        data = torrent(V1_INFO)
        parse_torrent_file(data, max_bytes=len(data))
        with pytest.raises(ClientError, match="too large"):
            parse_torrent_file(data, max_bytes=len(data) - 1)

    @pytest.mark.parametrize(
        "changes",
        [
            *(
                {"length": -1},
                {"length": b"5"},
                {"length": []},
                {"name": 5},
                {"name": []},
                {"pieces": b"short"},
            ),
            *({"pieces": 5}, {"files": 5}, {"files": [5]}, {"files": [{}]}, {"files": {}}),
            {"files": [{b"length": 2**62}, {b"length": 2**62}, {b"length": 2**62}]},
        ],
    )
    def test_invalid_fields_of_v1_are_refused(self, changes: dict[str, object]) -> None:
        assert refusal(with_info(**changes)) == MALFORMED

    @pytest.mark.parametrize(
        "tree", [5, b"x", [], {b"a": 5}, {b"a": {b"": 5}}, {b"a": {b"": {}}}, {b"a": {b"": {b"length": -1}}}]
    )
    def test_invalid_fields_of_v2_are_refused(self, tree: object) -> None:
        assert refusal(v2_info(tree)) == MALFORMED

    @given(st.binary())
    def test_random_bytes_raise_client_errors_only(self, junk: bytes) -> None:
        for data in (junk, b"d" + junk, b"d4:info" + junk, b"d4:infod6:pieces0:4:name1:n" + junk):
            with suppress(ClientError):
                parse_torrent_file(data)

    @given(st.integers(0, len(torrent(V1_INFO))), st.binary(max_size=3), st.integers(0, 3))
    def test_damaged_files_raise_client_errors_only(self, at: int, inserted: bytes, dropped: int) -> None:
        data = torrent(V1_INFO)
        with suppress(ClientError):
            parse_torrent_file(data[:at] + inserted + data[at + dropped :])

    @given(
        st.recursive(
            st.integers(-5, 2**64) | st.binary(max_size=5),
            lambda inner: st.lists(inner) | st.dictionaries(st.binary(max_size=3), inner),
        )
    )
    def test_the_span_of_any_bencoded_value_is_exact(self, value: object) -> None:
        info = bencodepy.encode(V1_INFO | {b"x": value})
        if max(map(abs, _integers(value)), default=0) >= 10**19:
            assert refusal(b"d1:x%b4:info%be" % (bencodepy.encode(value), info)) == MALFORMED
            return
        parsed = parse_torrent_file(b"d1:x%b4:info%be" % (bencodepy.encode(value), info))
        assert parsed.info_hash == hashlib.sha1(info, usedforsecurity=False).digest()


def _integers(value: object) -> list[int]:
    if isinstance(value, int):
        return [value]
    inner = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    return [number for each in inner for number in _integers(each)]
