"""Messages of WebTorrent trackers, and the odd forms of clients."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import AnnounceReply, Event, InfoHash, PeerId, Scrape, ScrapeFile, ScrapeReply
from tracker.refusals import Refusal
from tracker.wire import webtorrent
from tracker.wire.webtorrent import Answer, BadMessage, Offer, SocketAnnounce, parse

HASH, PEER, OTHER = InfoHash(bytes(range(20))), PeerId(b"-WW0300-abcdefghijkl"), PeerId(b"\xff" * 20)
OFFER_ID = bytes(range(236, 256))
ID = OFFER_ID.decode("latin-1")
ids = st.binary(min_size=20, max_size=20)
IDS: dict[str, Any] = {"action": "announce", "info_hash": HASH.decode("latin-1"), "peer_id": PEER.decode("latin-1")}


def offer(sdp: Any = "v=0", kind: Any = "offer", offer_id: Any = ID) -> dict[str, Any]:
    return {"offer": {"type": kind, "sdp": sdp, "extra": 1}, "offer_id": offer_id}


def announce(**fields: Any) -> SocketAnnounce:
    message = parse(json.dumps({**IDS, **fields}), 10)
    assert isinstance(message, SocketAnnounce)
    return message


def refusal(message: Any) -> BadMessage:
    with pytest.raises(BadMessage) as caught:
        parse(message if isinstance(message, bytes | str) else json.dumps(message), 10)
    return caught.value


class TestAnnounces:
    def test_every_field_is_read(self) -> None:
        read = announce(uploaded=1, downloaded=2, left=3, event="started", numwant=5, key="0123abcd", offers=[offer()])
        assert read.announce[:8] == (HASH, PEER, 0, b"1", b"2", b"3", b"0123abcd", Event.STARTED)
        assert read.offers == (Offer(OFFER_ID, "v=0"),) and read.announce.peers_wanted == 1

    @pytest.mark.parametrize("nothing", [{}, *({"left": x, "event": x, "offers": x, "numwant": x} for x in (None, ""))])
    def test_missing_null_and_empty_are_the_same(self, nothing: dict[str, Any]) -> None:
        read = announce(**nothing)
        assert (read.announce.bytes_left, read.announce.event, read.offers) == (None, Event.UPDATE, ())

    def test_text_as_binary_frame_is_the_same(self) -> None:
        text = json.dumps(IDS)
        assert parse(text, 1) == parse(text.encode(), 1)

    @pytest.mark.parametrize(("event", "read"), [("paused", Event.PAUSED), ("Update", Event.UPDATE), (7, Event.UPDATE)])
    def test_paused_is_an_event_and_an_unknown_one_is_an_update(self, event: Any, read: Event) -> None:
        assert announce(event=event).announce.event is read

    @pytest.mark.parametrize("left", [7, 7.0, 7.9, "7"])
    def test_a_number_may_be_text_or_have_a_fraction(self, left: Any) -> None:
        assert announce(left=left).announce.bytes_left == b"7"

    def test_a_left_of_all_ones_is_unknown(self) -> None:
        assert announce(left=2**64 - 1).announce.bytes_left is None

    @pytest.mark.parametrize("wrong", [-1, 2**65, "x", [], True])
    def test_a_wrong_number_is_refused_with_its_torrent(self, wrong: Any) -> None:
        error = refusal({**IDS, "uploaded": wrong})
        assert (error.action, error.info_hash) == ("announce", HASH)
        assert str(error.refusal) == "uploaded must be a number from 0 to 2^64"

    @pytest.mark.parametrize("name", ["info_hash", "peer_id"])
    @pytest.mark.parametrize("wrong", [None, 7, "x" * 19, "x" * 21, "\u0100" + "x" * 19, "\ud800" + "x" * 19])
    def test_an_id_is_20_characters_of_a_byte_each(self, name: str, wrong: Any) -> None:
        message = json.dumps({**IDS, name: wrong})
        assert refusal(message).action == "announce"

    def test_malformed_offers_are_left_out(self) -> None:
        wrong = [
            None,
            3,
            {},
            offer(offer_id="x" * 19),
            offer(offer_id="x" * 21),
            offer(offer_id="\u0100" * 20),
            offer(kind="answer"),
            offer(sdp=None),
            offer(sdp="x" * (webtorrent.MAX_SDP_LENGTH + 1)),
            {"offer": "sdp", "offer_id": "x" * 20},
        ]
        assert announce(offers=[*wrong, offer()]).offers == (Offer(OFFER_ID, "v=0"),)

    def test_offers_of_another_type_are_refused(self) -> None:
        assert str(refusal({**IDS, "offers": 3}).refusal) == "offers must be a list"

    def test_at_most_20_offers_and_those_wanted_are_read(self) -> None:
        assert len(announce(offers=[offer()] * 10_000).offers) == webtorrent.MAX_OFFERS == 20
        assert len(announce(offers=[offer()] * 5, numwant=2).offers) == 2
        assert len(announce(offers=[offer()] * 5, numwant=-1).offers) == 5

    @pytest.mark.parametrize("event", ["stopped", "completed"])
    def test_who_stops_or_completes_offers_nothing(self, event: str) -> None:
        assert announce(event=event, offers=[offer()]).offers == ()


ANSWER = {"to_peer_id": OTHER.decode("latin-1"), "offer_id": OFFER_ID.decode("latin-1")}


class TestAnswers:
    def test_an_answer_with_the_least_fields(self) -> None:
        message = {**IDS, **ANSWER, "answer": {"type": "answer", "sdp": "v=0"}}
        assert parse(json.dumps(message), 1) == Answer(HASH, PEER, OTHER, Offer(OFFER_ID, "v=0"))

    @pytest.mark.parametrize(
        "wrong", [{"to_peer_id": None}, {"offer_id": "x"}, {"answer": "sdp"}, {"answer": {"a": 1}}]
    )
    def test_a_malformed_answer_is_refused_with_its_torrent(self, wrong: dict[str, Any]) -> None:
        error = refusal({**IDS, **ANSWER, "answer": {"type": "answer", "sdp": "v=0"}, **wrong})
        assert error.info_hash == HASH


class TestScrapes:
    def test_one_or_several_torrents(self) -> None:
        one, two = HASH.decode("latin-1"), "x" * 20
        assert parse(json.dumps({"action": "scrape", "info_hash": one}), 9) == Scrape((HASH,))
        several = parse(json.dumps({"action": "scrape", "info_hash": [one, two, one]}), 9)
        assert several == Scrape((HASH, InfoHash(b"x" * 20)))

    @pytest.mark.parametrize("missing", [{}, {"info_hash": None}, {"info_hash": ""}])
    def test_without_a_torrent_it_is_a_full_scrape(self, missing: dict[str, Any]) -> None:
        assert parse(json.dumps({"action": "scrape", **missing}), 9) == Scrape()

    @pytest.mark.parametrize("wrong", [[], ["x"], [None], 7, {}, ["x" * 20] * 11])
    def test_a_wrong_scrape_is_refused_as_one(self, wrong: Any) -> None:
        assert refusal({"action": "scrape", "info_hash": wrong}).action == "scrape"


@pytest.mark.parametrize(
    "message", [b"", b"{", b"\xff", "[]", "null", "7", "{}", '{"action": "shout"}', '{"action": null}', "[" * 5000]
)
def test_what_is_no_message_is_refused_with_an_action_that_clients_know(message: bytes | str) -> None:
    error = refusal(message)
    failure = json.loads(webtorrent.encode_failure(error.info_hash, error.refusal, error.action))
    assert failure == {"action": "announce", "info_hash": "\0" * 20, "failure reason": str(error.refusal)}


@given(ids, ids, ids, st.text(max_size=100, alphabet=st.characters(exclude_categories=["Cs"])))
def test_what_is_passed_on_has_every_byte(info_hash: bytes, peer_id: bytes, offer_id: bytes, sdp: str) -> None:
    peer, session = PeerId(peer_id), Offer(offer_id, sdp)
    text = webtorrent.encode_offer(InfoHash(info_hash), peer, session)
    read = json.loads(text)
    assert [read[name].encode("latin-1") for name in ("info_hash", "peer_id", "offer_id")] == [
        info_hash,
        peer_id,
        offer_id,
    ]
    assert read["offer"] == {"type": "offer", "sdp": sdp} and read["action"] == "announce"
    answer = webtorrent.encode_offer(InfoHash(info_hash), peer, session, "answer")
    assert json.loads(answer)["answer"] == {"type": "answer", "sdp": sdp}


def test_the_reply_to_an_announce() -> None:
    reply = AnnounceReply(120, 60, 3, 4, 5, warning="careful")
    assert json.loads(webtorrent.encode_reply(HASH, reply)) == {
        "action": "announce",
        "info_hash": HASH.decode("latin-1"),
        "interval": 120,
        "complete": 3,
        "incomplete": 4,
        "downloaded": 5,
        "warning message": "careful",
    }


def test_the_reply_to_a_scrape() -> None:
    reply = ScrapeReply({HASH: ScrapeFile(1, 2, 3, 2)}, 900)
    assert json.loads(webtorrent.encode_scrape(reply)) == {
        "action": "scrape",
        "files": {HASH.decode("latin-1"): {"complete": 1, "incomplete": 2, "downloaded": 3}},
        "flags": {"min_request_interval": 900},
    }


def test_a_failure_names_its_torrent() -> None:
    failure = json.loads(webtorrent.encode_failure(HASH, Refusal("busy")))
    assert failure["action"] == "announce" and failure["info_hash"] == HASH.decode("latin-1")
