import hashlib
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import bencodepy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.torrent_files import FLAGS, HYBRID, V1, changed, made
from tracker.errors import ClientError
from tracker.wire.torrent_file import (
    MAX_DEPTH,
    MAX_VALUES,
    Piece,
    Pieces,
    TorrentFile,
    parse_torrent_file,
    with_announce_url,
)

MALFORMED = "this is not a well-formed .torrent file"
UNMATCHED = "the piece hashes of the .torrent file do not match the size of its files"
LAYERS = "the piece layers of the .torrent file do not match its files"
KINDS = pytest.mark.parametrize("kind", FLAGS)
FOLDER = {"top/a/b.bin": bytes(70_000), "top/ü.txt": b"x" * 33}
LINKED: dict[str, bytes | Path] = {"top/a.txt": b"q" * 425, "top/d/b.txt": Path("../a.txt")}
LARGE = {"large.bin": random.Random(5).randbytes(90_000)}


def torrent(info: dict[bytes, Any], **outer: object) -> bytes:
    encoded: bytes = bencodepy.encode({b"announce": b"http://tracker/announce", b"info": info} | outer)
    return encoded


def with_info(**changes: object) -> bytes:
    changed = {name.replace("_", " ").encode(): value for name, value in changes.items()}
    return torrent({name: value for name, value in (V1 | changed).items() if value is not None})


def with_files(*files: dict[bytes, Any]) -> bytes:
    return with_info(files=list(files), length=None)


def v2_info(tree: object, piece_length: int = 16384) -> bytes:
    return torrent({b"file tree": tree, b"meta version": 2, b"name": b"n", b"piece length": piece_length})


def leaf(length: int, **fields: object) -> dict[bytes, Any]:
    added = {name.replace("_", " ").encode(): value for name, value in fields.items()}
    return {b"": dict(sorted(({b"length": length, b"pieces root": b"\x22" * 32} | added).items()))}


def refusal(data: bytes) -> str:
    with pytest.raises(ClientError) as caught:
        parse_torrent_file(data)
    return caught.value.text


def loaded(data: bytes) -> Any:
    """As libtorrent reads it."""
    lt = pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")
    return lt.load_torrent_buffer(data)


@KINDS
@pytest.mark.parametrize("contents", [FOLDER, LARGE], ids=["folder", "one file"])
def test_a_file_made_by_libtorrent_has_the_same_fields(tmp_path: Path, kind: str, contents: dict[str, bytes]) -> None:
    """BEP 52: with folders, and with padding, which does not count."""
    data = made(tmp_path, kind, contents)
    judge = loaded(data).ti.info_hashes()

    parsed = parse_torrent_file(data)
    assert parsed.name == next(iter(contents)).partition("/")[0]
    assert (parsed.size_bytes, parsed.private) == (sum(map(len, contents.values())), False)
    assert (parsed.info_hash is not None, parsed.info_hash_v2 is not None) == (kind != "v2", kind != "v1")
    assert parsed.info_hash is None or parsed.info_hash == judge.v1.to_bytes()
    assert parsed.info_hash_v2 is None or parsed.info_hash_v2 == judge.v2.to_bytes()
    found = [each[:20] for each in (parsed.info_hash, parsed.info_hash_v2) if each]
    assert list(parsed.announce_hashes) == found

    # The bare file has all that a client needs: libtorrent reads it, with our announce URL only.
    assert b"secret" not in parsed.bare and parse_torrent_file(parsed.bare).bare == parsed.bare
    bare = loaded(with_announce_url(parsed.bare, "http://ours/é/announce"))
    assert bare.ti.info_hashes() == judge and bare.trackers == ["http://ours/é/announce"]
    whole, kept = bencodepy.decode(data), bencodepy.decode(parsed.bare)
    assert kept == {key: whole[key] for key in (b"info", b"piece layers") if key in whole}


class TestContents:
    def test_a_v1_file_has_its_fields(self) -> None:
        data, bare = torrent(V1), bencodepy.encode({"info": V1})
        expected: Any = hashlib.sha1(bencodepy.encode(V1), usedforsecurity=False).digest()
        pieces = Pieces(16384, 5, V1[b"pieces"])
        assert parse_torrent_file(data) == TorrentFile("n", expected, None, False, 5, bare, pieces)

    def test_the_hash_is_that_of_the_files_own_bytes(self) -> None:
        """Unsorted keys: encoding the dictionary again would give another hash."""
        info = b"d6:pieces20:%b4:name1:n6:lengthi5e12:piece lengthi16384ee" % V1[b"pieces"]
        parsed = parse_torrent_file(b"d4:info%b8:announce1:xe" % info)
        assert parsed.info_hash == hashlib.sha1(info, usedforsecurity=False).digest()

    def test_a_nested_info_key_is_ignored(self) -> None:
        nested = b"d1:ad4:infod4:name5:wrongee4:info%be" % bencodepy.encode(V1)
        assert parse_torrent_file(nested).name == "n"

    def test_trailing_bytes_are_ignored(self) -> None:
        assert parse_torrent_file(torrent(V1) + b"\r\n") == parse_torrent_file(torrent(V1))

    @pytest.mark.parametrize(
        ("value", "private"), [(1, True), (2, True), (-1, True), (2**62, True), (0, False), (b"1", False), ([], False)]
    )
    def test_the_private_flag_is_what_libtorrent_takes_for_it(self, value: object, private: bool) -> None:
        """BEP 27"""
        assert parse_torrent_file(with_info(private=value)).private is private
        assert loaded(with_info(private=value)).ti.priv() is private

    @pytest.mark.parametrize(
        "info",
        [
            b"d6:lengthi5e4:name1:n12:piece lengthi16384e6:pieces20:%b7:privatei0e7:privatei1ee",
            b"d5:filesld6:lengthi5e6:lengthi5e4:pathl1:aeee4:name1:n12:piece lengthi16384e6:pieces20:%be",
            b"d6:lengthi5e4:name1:n12:piece lengthi16384e6:pieces20:%b1:xld1:ale1:aleeee",
        ],
        ids=["private", "of a file", "of a list"],
    )
    def test_a_key_twice_in_the_info_dictionary_is_refused(self, info: bytes) -> None:
        text = refusal(b"d4:info%be" % (info % V1[b"pieces"]))
        assert text == "the .torrent file has a key twice in a dictionary"

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("größer".encode(), "größer"),
            (b"\xff\x1b[31m\n", "\ufffd[31m"),
            ("می\u200cخواهم".encode(), "می\u200cخواهم"),
            ("a\u202eb\u2066c\u00a0d\u3000e\u00adf".encode(), "abc\u00a0d\u3000e\u00adf"),
            (b"a" * 300, "a" * 255),
        ],
    )
    def test_names_keep_what_letters_need(self, name: bytes, text: str) -> None:
        assert parse_torrent_file(with_info(name=name)).name == text

    @pytest.mark.parametrize(
        ("encoding", "name", "text"),
        [
            (b"GBK", "日本語".encode("gbk"), "日本語"),
            (b"windows-1251", "Привет".encode("cp1251"), "Привет"),
            (b"GBK", "größer".encode(), "größer"),
            (b"hex", b"\xe4", "\ufffd"),
            (b"no such", b"\xe4", "\ufffd"),
            (5, b"\xe4", "\ufffd"),
        ],
    )
    def test_names_that_are_not_utf8_are_in_the_encoding_of_the_file(
        self, encoding: object, name: bytes, text: str
    ) -> None:
        assert parse_torrent_file(torrent(V1 | {b"name": name}, encoding=encoding)).name == text

    def test_the_size_is_the_sum_without_padding(self) -> None:
        """BEP 47"""
        files = [{b"length": 3, b"path": [b"a"]}, {b"attr": b"x", b"length": 4, b"path": [b"b"]}]
        assert parse_torrent_file(with_files(*files, {b"attr": b"p", b"length": 100})).size_bytes == 7

    @KINDS
    def test_a_symlink_has_no_bytes(self, tmp_path: Path, kind: str) -> None:
        """BEP 47: in a v2 tree, libtorrent writes no length."""
        parsed = parse_torrent_file(made(tmp_path, kind, LINKED))
        assert parsed.size_bytes == 425
        assert (parsed.pieces is None) if kind == "v2" else (parsed.pieces and parsed.pieces.count == 1)

    @pytest.mark.parametrize("length", [{}, {b"length": 425}])
    def test_the_length_of_a_symlink_does_not_count(self, length: dict[bytes, Any]) -> None:
        target = {b"attr": b"l", b"path": [b"b"], b"symlink path": [b"a"]}
        data = with_files({b"length": 425, b"path": [b"a"]}, target | length)
        parsed = parse_torrent_file(data)
        assert parsed.size_bytes == loaded(data).ti.total_size() == 425
        assert parsed.pieces is not None and parsed.pieces.total_bytes == 425

    def test_a_v2_file_tree_has_its_size(self) -> None:
        parsed = parse_torrent_file(v2_info({b"a": leaf(3), b"b": {b"c": leaf(4)}, b"e": {}}))
        assert parsed.size_bytes == 7 and parsed.info_hash is None and parsed.pieces is None
        assert parsed.info_hash_v2 is not None and parsed.announce_hashes == (parsed.info_hash_v2[:20],)


class TestPieces:
    @pytest.mark.parametrize("kind", ["v1", "hybrid"])
    def test_each_piece_of_several_files_has_its_hash(self, tmp_path: Path, kind: str) -> None:
        """A hybrid torrent has padding, which its pieces contain."""
        contents = {"top/a.bin": bytes(range(256)) * 200, "top/b.bin": b"x" * 40_001}
        pieces = parse_torrent_file(made(tmp_path, kind, contents)).pieces
        unit = 1 if kind == "v1" else 16384
        whole = b"".join(each + bytes(-len(each) % unit) for each in contents.values())
        assert pieces is not None and pieces.count == -(-len(whole) // 16384)
        for index in range(pieces.count):
            content = whole[index * 16384 : (index + 1) * 16384]
            digest = hashlib.sha1(content, usedforsecurity=False).digest()
            assert pieces.piece(index) == Piece(index, len(content), digest)

    @pytest.mark.parametrize(
        "changes",
        [
            {"piece_length": 4},  # two pieces for one hash
            {"length": 16385},
            {"pieces": b""},
            {"pieces": V1[b"pieces"] * 2},
            {"pieces": b"short"},
            {"pieces": 5},
        ],
    )
    def test_pieces_that_do_not_match_the_size_are_refused(self, changes: dict[str, object]) -> None:
        assert refusal(with_info(**changes)) == UNMATCHED

    @pytest.mark.parametrize("length", [None, 0, -1, b"16384", []])
    def test_a_piece_has_a_length(self, length: object) -> None:
        assert "piece length" in refusal(with_info(piece_length=length))

    @pytest.mark.parametrize("length", [1, 8192, 16385, 3 * 16384])
    def test_the_piece_length_of_a_v2_torrent_is_a_power_of_two(self, length: int) -> None:
        assert "a power of two" in refusal(v2_info({b"a": leaf(3)}, length))
        assert parse_torrent_file(with_info(piece_length=16385)).size_bytes == 5

    @pytest.mark.parametrize("length", [1, 5, 16384])
    def test_the_last_piece_may_be_shorter(self, length: int) -> None:
        pieces = parse_torrent_file(with_info(length=length)).pieces
        assert pieces is not None and pieces.piece(0) == Piece(0, length, V1[b"pieces"])

    def test_very_many_pieces_are_accepted(self) -> None:
        """A limit of one client is none of the torrent."""
        count = 400_000
        data = with_info(length=count * 16384, pieces=bytes(20 * count))
        assert parse_torrent_file(data).size_bytes == count * 16384


class TestWhatNoClientLoads:
    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (with_files(), "the torrent has no files"),
            (v2_info({}), "the torrent has no files"),
            (v2_info({b"a": {}}), "the torrent has no files"),
            (with_info(length=0, pieces=b""), "the torrent is empty"),
            (with_files({b"length": 5}), "a file of the torrent has no valid path"),
            (with_files({b"length": 5, b"path": []}), "a file of the torrent has no valid path"),
            (with_files({b"length": 5, b"path": [5]}), "a file of the torrent has no valid path"),
            (with_info(name=b""), "the torrent has no name"),
            (with_info(name=b".."), "the torrent has no name"),
            (with_info(name=None), "the torrent has no name"),
            (with_info(name=[]), "the torrent has no name"),
            (with_info(name=5), "the torrent has no name"),
            (
                with_files({b"attr": b"l", b"path": [b"a"], b"symlink path": [5]}),
                "the target of a symlink in the torrent is not valid",
            ),
            (with_info(meta_version=3), "the .torrent file is of an unknown version"),
            (with_info(file_tree={}), "the .torrent file has a file tree, but not meta version 2"),
            (v2_info({b"a": {b"": leaf(3)[b""], b"x": leaf(3)}}), "the file tree of the v2 torrent is not valid"),
            (v2_info(leaf(3)), "the file tree of the v2 torrent is not valid"),
            (v2_info({b"a": leaf(3, attr=b"p")}), "the file tree of the v2 torrent has padding files"),
            (v2_info({b"a": leaf(3, pieces_root=bytes(32))}), "a file of the v2 torrent has no valid pieces root"),
            (v2_info({b"a": leaf(3, pieces_root=b"short")}), "a file of the v2 torrent has no valid pieces root"),
        ],
    )
    def test_it_is_refused_with_the_reason(self, data: bytes, text: str) -> None:
        assert refusal(data) == text
        with pytest.raises(RuntimeError):
            loaded(data)

    def test_unsorted_keys_of_a_v2_torrent_are_refused(self) -> None:
        tree = b"d1:bd0:%be1:ad0:%bee" % (bencodepy.encode(leaf(3)[b""]), bencodepy.encode(leaf(3)[b""]))
        data = b"d4:infod9:file tree%b12:meta versioni2e4:name1:n12:piece lengthi16384eee" % tree
        assert refusal(data) == "the keys of the v2 .torrent file are not sorted"
        with pytest.raises(RuntimeError):
            loaded(data)

    @pytest.mark.parametrize(
        "changes",
        [
            {b"length": 6},
            {b"name": b"another"},
            {b"file tree": {b"a film": leaf(6)}},
            {b"file tree": {b"a film": leaf(5), b"b": leaf(5)}},
        ],
    )
    def test_parts_of_a_hybrid_torrent_that_differ_are_refused(self, changes: dict[bytes, Any]) -> None:
        parse_torrent_file(torrent(HYBRID))
        data = torrent(HYBRID | changes)
        assert refusal(data) == "the v1 and v2 parts of the .torrent file differ"
        with pytest.raises(RuntimeError):
            loaded(data)

    def test_files_of_a_hybrid_torrent_begin_with_a_piece(self, tmp_path: Path) -> None:
        data = made(tmp_path, "hybrid", FOLDER)
        files = bencodepy.decode(data)[b"info"][b"files"]
        assert files[1][b"attr"] == b"p"
        for wrong in ([files[0], *files[2:]], [files[0], files[1] | {b"length": 1}, *files[2:]]):
            unaligned = changed(data, b"info", b"files", to=wrong)
            assert refusal(unaligned) in {"the v1 and v2 parts of the .torrent file differ", UNMATCHED}


class TestPieceLayers:
    """BEP 52"""

    @pytest.fixture(params=["v2", "hybrid"])
    def data(self, tmp_path: Path, request: pytest.FixtureRequest) -> bytes:
        return made(tmp_path, request.param, LARGE)

    def test_a_layer_that_is_not_of_its_root_is_refused(self, data: bytes) -> None:
        ((root, layer),) = bencodepy.decode(data)[b"piece layers"].items()
        wrong: list[object] = [layer[:-1] + bytes([layer[-1] ^ 1]), layer[:-32], layer + bytes(32), b"", 5]
        for each in wrong:
            assert refusal(changed(data, b"piece layers", root, to=each)) == LAYERS
        assert refusal(changed(data, b"piece layers", to={bytes(32): layer})) == LAYERS
        assert refusal(changed(data, b"piece layers", bytes(32), to=layer)) == LAYERS
        assert refusal(changed(data, b"piece layers", to=5)) == LAYERS

    @pytest.mark.parametrize("size", [16385, 32768, 5 * 16384, 5 * 16384 + 1, 16 * 16384])
    def test_layers_of_any_number_of_pieces_match(self, tmp_path: Path, size: int) -> None:
        data = made(tmp_path, "v2", {"large.bin": random.Random(size).randbytes(size)})
        assert bencodepy.decode(parse_torrent_file(data).bare) == {
            key: value for key, value in bencodepy.decode(data).items() if key in (b"info", b"piece layers")
        }

    def test_a_file_without_them_is_accepted(self, data: bytes) -> None:
        """Clients get them from peers."""
        for less in (changed(data, b"piece layers", to=None), changed(data, b"piece layers", to={})):
            parsed = parse_torrent_file(less)
            assert parsed.announce_hashes == parse_torrent_file(data).announce_hashes
            assert len(parsed.bare) < len(parse_torrent_file(data).bare)


LENGTHS: list[object] = [-1, b"5", [], None]
NO_LISTS: list[object] = [5, {}, b""]
NO_TREES: list[object] = [5, b"x", [], {b"a": 5}, {b"a": {b"": 5}}]


class TestHostileInput:
    @pytest.mark.parametrize(
        "data",
        [
            *(b"", b"d", b"e", b"le", b"i1e", b"4:info", b"d4:info", b"d4:infod", b"d4:info5:abcd", b"d4:infole"),
            *(b"di1ei2ee", b"d4:infod1:aee", b"d4:infodi1ei2eee", b"d4:infodlei2eee", b"d4:infoi1ee", b"<html>"),
            *(b"d4:infodee", b"d4:infode4:infodee", b"d4:infod1:ai01eee", b"d4:infod1:ai-0eee", b"d4:infod1:aieee"),
            *(b"d04:infodee", b"d-1:", b"d99999999999999999999:", b"d4:infod1:a999999999:ee", b"d4:info\x00"),
            b"d4:infod1:ai" + b"9" * 5000 + b"eee",
        ],
    )
    def test_malformed_files_are_refused(self, data: bytes) -> None:
        assert refusal(data)

    @pytest.mark.parametrize("data", [torrent(V1)[:-1], torrent(V1)[:60], b"d4:infod1:aee"])
    def test_truncated_files_are_refused(self, data: bytes) -> None:
        assert refusal(data) == MALFORMED

    def test_each_refusal_names_its_reason(self) -> None:
        assert refusal(b"d8:announce1:xe") == "the .torrent file has no info dictionary"
        assert "neither pieces" in refusal(b"d4:infod4:name1:nee")
        assert refusal(b"d4:infod1:alee4:infod1:aleee") == "the .torrent file has a key twice in a dictionary"

    @pytest.mark.parametrize("opening", [b"l", b"d1:a"])
    @pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
    def test_nesting_beyond_the_limit_is_refused(self, opening: bytes, depth: int) -> None:
        assert refusal(b"d4:info" + opening * depth) in {"the .torrent file is nested too deeply", MALFORMED}
        assert refusal(b"d1:x" + opening * depth) == "the .torrent file is nested too deeply"

    def test_nesting_within_the_limit_is_accepted(self) -> None:
        deep = b"l" * (MAX_DEPTH - 1) + b"e" * (MAX_DEPTH - 1)
        info = bencodepy.encode(V1)[:-1] + b"1:x%be" % deep
        assert parse_torrent_file(b"d4:info%be" % info).size_bytes == 5

    def test_too_many_values_are_refused(self) -> None:
        assert refusal(b"d4:infol" + b"le" * MAX_VALUES) == "the .torrent file has too many values"
        half = b"l" + b"le" * (MAX_VALUES // 3) + b"e"
        assert refusal(b"d1:a%b1:b%b1:c%be" % (half, half, half)) == "the .torrent file has too many values"

    def test_a_file_that_is_too_large_is_refused(self) -> None:
        data = torrent(V1)
        parse_torrent_file(data, max_bytes=len(data))
        with pytest.raises(ClientError, match="too large"):
            parse_torrent_file(data, max_bytes=len(data) - 1)

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            *((with_info(length=each), "length") for each in LENGTHS),
            (with_files({}), "length"),
            (with_files({b"length": -1, b"path": [b"a"]}), "length"),
            *((with_info(files=each), "no files") for each in NO_LISTS),
            (with_info(files=[5]), "well-formed"),
            (with_files(*[{b"length": 2**62, b"path": [b"a"]}] * 3), "too large"),
            *((v2_info(tree), "not valid") for tree in NO_TREES),
            (v2_info({b"a": {b"": {}}}), "length"),
            (v2_info({b"a": {b"": {b"length": -1}}}), "length"),
        ],
    )
    def test_invalid_fields_are_refused(self, data: bytes, text: str) -> None:
        assert text in refusal(data)

    @given(st.binary())
    def test_random_bytes_raise_client_errors_only(self, junk: bytes) -> None:
        for data in (junk, b"d" + junk, b"d4:info" + junk, b"d4:infod6:pieces0:4:name1:n" + junk):
            with suppress(ClientError):
                parse_torrent_file(data)

    @given(st.integers(0, len(torrent(V1))), st.binary(max_size=3), st.integers(0, 3))
    def test_damaged_files_raise_client_errors_only(self, at: int, inserted: bytes, dropped: int) -> None:
        data = torrent(V1)
        with suppress(ClientError):
            parse_torrent_file(data[:at] + inserted + data[at + dropped :])

    @given(
        st.recursive(
            st.integers(-5, 2**64) | st.binary(max_size=5),
            lambda inner: st.lists(inner) | st.dictionaries(st.binary(max_size=3), inner),
        )
    )
    def test_the_span_of_any_bencoded_value_is_exact(self, value: object) -> None:
        info = bencodepy.encode(V1 | {b"x": value})
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
