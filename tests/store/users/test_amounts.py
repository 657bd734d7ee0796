"""No number from a client or in the store fails an announce half-way, or stops a count."""

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, START, Store, info_hash, text, timeout_key, update
from tracker.store.swarms.codec import Refused

EXACT, LARGEST = 2**53 - 1, 2**63 - 1
ODD = ["9223372036854775807", "-9223372036854775808", "9" * 30, "1e300", "-1e300", "12.5", "inf", "nan", "many", ""]


async def moved(store: Store) -> None:
    """A leecher of user 7 announces. 10 s later it completes, after it has moved 500 bytes each way."""
    await store.announce(update(1, "s", passkey=ALICE))
    store.clock.now += 10
    done = update(1, "c", passkey=ALICE, uploaded=500, downloaded=500, bytes_left=0)
    assert (await store.announce(done)).outcome == "update"
    await store.announce_counts.flush()


async def check_whole(store: Store) -> None:
    """Checks that every change of the second announce of ``moved`` was made."""
    peer = await store.peer(update(1))
    assert (peer["left"], peer["uploaded"], peer["completed"], peer["total_time"]) == ("0", "500", "1", "10")
    account = text(await store.redis.hgetall(store.keys.user_torrent("7", "1")))
    assert (account["total_time"], account["completed_at"]) == ("10", str(START + 10))
    assert await store.redis.sismember(store.keys.user_set("7", "complete"), "1")
    assert await store.redis.ttl(timeout_key(store.keys, "1", update(1).peer_id)) > 0
    assert await check_invariants(store.redis, store.keys) == 1


@pytest.mark.parametrize("held", ODD)
@pytest.mark.parametrize("total", ["uploaded", "downloaded", "announces", "snatches"])
async def test_a_total_of_a_user_counts_on_whatever_it_held(private: Store, total: str, held: str) -> None:
    user = private.keys.user("7")
    await private.redis.hset(user, total, held)
    await moved(private)
    await check_whole(private)
    found = int(await private.redis.hget(user, total))
    by = {"uploaded": 500, "downloaded": 500, "announces": 2, "snatches": 1}[total]
    assert -EXACT <= found <= EXACT
    if held in ("inf", "1e300", ODD[0], ODD[2]):
        assert found == EXACT
    elif held in ("many", "nan", "", "12.5"):
        assert found == by + (12 if held == "12.5" else 0)


@pytest.mark.parametrize("held", ODD)
@pytest.mark.parametrize("figure", ["announces", "snatches"])
async def test_a_count_of_a_torrent_counts_on_whatever_it_held(private: Store, figure: str, held: str) -> None:
    await private.torrents.add(info_hash(1))
    await private.redis.hset(private.keys.torrent(info_hash(1)), figure, held)
    await moved(private)
    found = int((await private.torrent(info_hash(1)))[figure])
    assert -EXACT <= found <= EXACT and found not in (0, -1)
    account = text(await private.redis.hgetall(private.keys.user_torrent("7", "1")))
    assert (account["total_time"], account["completed_at"]) == ("10", str(START + 10))
    assert (await private.users.find("7")).uploaded == 500


@pytest.mark.parametrize("held", ODD)
@pytest.mark.parametrize("field", ["uploaded", "downloaded", "total_time", "seed_time", "peers", "from", "until"])
async def test_an_account_stays_complete_whatever_its_fields_held(private: Store, field: str, held: str) -> None:
    await private.announce(update(1, "s", passkey=ALICE))
    await private.announce(update(1, passkey=ALICE))
    account = private.keys.user_torrent("7", "1")
    fields = ("from", "until") if field in ("from", "until") else (field,)  # both or none are written
    await private.redis.hset(account, mapping=dict.fromkeys(fields, held))
    private.clock.now += 10
    await private.announce(update(1, passkey=ALICE, uploaded=5))
    assert await private.silence(update(1)) == 1
    figures = {
        k: int(v) for k, v in text(await private.redis.hgetall(account)).items() if k != "peer_ids" and "." not in v
    }
    assert all(0 <= figure <= EXACT for figure in figures.values()), figures


@pytest.mark.parametrize("held", ["-9223372036854775808", "-1", str(EXACT + 1), "12.5", "many", ""])
@pytest.mark.parametrize("field", ["total_time", "seed_time"])
async def test_an_account_of_an_idle_seeder_stays_complete_whatever_its_times_held(
    private: Store, field: str, held: str
) -> None:
    """Regular announces add to both with one command each."""
    seeding = update(1, passkey=ALICE, bytes_left=0)
    await private.announce(seeding._replace(event=b"s"))
    account = private.keys.user_torrent("7", "1")
    await private.redis.hset(account, mapping={"total_time": 600, "seed_time": 600, field: held})
    private.clock.now += 1800
    await private.announce(seeding)
    found = text(await private.redis.hgetall(account))
    other = "seed_time" if field == "total_time" else "total_time"
    assert found[other] == "2400"
    assert 1800 <= int(found[field]) <= EXACT + 2 * 1800
    assert (await private.peer(seeding))["total_time"] == "1800"


@pytest.mark.parametrize("bytes_left", [0, 5])
async def test_an_idle_announce_that_fails_at_its_account_changes_nothing(private: Store, bytes_left: int) -> None:
    """Nor does it keep the peer in the swarm."""
    idle = update(1, passkey=ALICE, bytes_left=bytes_left)
    timeout = timeout_key(private.keys, "1", idle.peer_id)
    await private.announce(idle._replace(event=b"s"))
    await private.redis.set(private.keys.user_torrent("7", "1"), "no hash")
    await private.redis.pexpire(timeout, 1_000_000)
    before = await private.dump()
    private.clock.now += 1800
    outcome = await private.swarms.announce(idle)
    assert isinstance(outcome, Refused) and outcome.code == "error"
    assert await private.redis.pttl(timeout) <= 1_000_000
    assert await private.dump() == before


@pytest.mark.parametrize("bytes_left", [0, 5])
async def test_time_counts_once_where_the_timeout_of_an_idle_peer_is_gone(private: Store, bytes_left: int) -> None:
    idle = update(1, passkey=ALICE, bytes_left=bytes_left)
    await private.announce(idle._replace(event=b"s"))
    await private.redis.delete(timeout_key(private.keys, "1", idle.peer_id))
    private.clock.now += 1800
    await private.announce(idle)
    account = text(await private.redis.hgetall(private.keys.user_torrent("7", "1")))
    assert account["total_time"] == "1800" and account.get("seed_time", "0") == ("0" if bytes_left else "1800")
    assert await private.redis.ttl(timeout_key(private.keys, "1", idle.peer_id)) > 0


@pytest.mark.parametrize("held", ODD)
@pytest.mark.parametrize("name", ["multi_up", "multi_dn"])
@pytest.mark.parametrize(("uploaded", "downloaded"), [(500, 0), (0, 500), (500, 500)])
async def test_any_multiplier_leaves_an_announce_complete(
    private: Store, name: str, held: str, uploaded: int, downloaded: int
) -> None:
    """0 times `inf` is not a number. An announce without upload or download was once applied in part."""
    await private.announce(update(1, "s", passkey=ALICE))
    await private.redis.hset(private.keys.torrent(info_hash(1)), name, held)
    private.clock.now += 10
    done = update(1, "c", bytes_left=0, uploaded=uploaded, downloaded=downloaded, passkey=ALICE)
    await private.announce(done)
    user = await private.users.find("7")
    assert user.snatches == 1 and 0 <= user.uploaded <= EXACT and 0 <= user.downloaded <= EXACT
    account = await private.redis.hget(private.keys.user_torrent("7", "1"), "completed_at")
    assert account == str(START + 10).encode()


@pytest.mark.parametrize("held", [*ODD, "9218868437227405313"])
async def test_credit_cut_from_one_user_fails_no_announce(make_store: MakeStore, held: str) -> None:
    """One user's claims took `stats:credit_cut` to the end of 64 bits. After that every announce with a cut was applied
    by half."""
    store = await make_store(accounts="required", peer_memory=3600, max_credit=10)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    cut = store.keys.stat("credit_cut")
    await store.redis.set(cut, held)
    await store.announce(update(2, "s", passkey=BOB))
    for _ in range(3):
        store.clock.now += 10
        await store.announce(update(2, passkey=BOB, uploaded=EXACT))
        store.clock.now += 10
        await store.announce(update(2, passkey=BOB))
    assert -EXACT <= int(await store.redis.get(cut)) <= EXACT
    await moved(store)
    await check_user_7(store)
    assert -EXACT <= int(await store.redis.get(cut)) <= EXACT


async def check_user_7(store: Store) -> None:
    user = await store.users.find("7")
    assert (user.uploaded, user.downloaded, user.snatches, user.announces) == (100, 100, 1, 2)
    assert await store.redis.sismember(store.keys.user_set("7", "complete"), "1")


async def test_a_counter_of_another_type_fails_no_announce(make_store: MakeStore) -> None:
    store = await make_store(accounts="required", peer_memory=3600, max_credit=10)
    await store.users.add("7", ALICE)
    await store.redis.rpush(store.keys.stat("credit_cut"), "another program's")
    await moved(store)
    await check_user_7(store)
    assert await store.redis.lrange(store.keys.stat("credit_cut"), 0, -1) == [b"another program's"]


@pytest.mark.parametrize("name", ["active", "complete", "incomplete", "hnr"])
@pytest.mark.parametrize("event", ["u", "c", "x", "reap"])
async def test_a_set_of_another_type_fails_no_announce_half_way(private: Store, name: str, event: str) -> None:
    await private.announce(update(1, "s", passkey=ALICE))
    await private.redis.delete(private.keys.user_set("7", name))
    await private.redis.set(private.keys.user_set("7", name), "another program's")
    private.clock.now += 2000
    said = update(1, event[:1], passkey=ALICE, uploaded=5, downloaded=500, bytes_left=0)
    if event == "reap":
        await private.announce(said._replace(event=b"u"))
        assert await private.silence(said) == 1
    else:
        await private.announce(said)
    await private.announce_counts.flush()
    user = await private.users.find("7")
    assert (user.uploaded, user.downloaded, user.announces) == (5, 500, 2)
    account = text(await private.redis.hgetall(private.keys.user_torrent("7", "1")))
    assert (account["total_time"], account["downloaded"]) == ("2000", "500")
    gone = event in ("x", "reap")
    assert (account["peers"], (await private.peer(said))["active"]) == (("0", "0") if gone else ("1", "1"))


@pytest.mark.parametrize("key", ["user", "account"])
@pytest.mark.parametrize("event", ["s", "u", "c", "x"])
async def test_a_user_key_of_another_type_changes_nothing(private: Store, key: str, event: str) -> None:
    if event != "s":
        await private.announce(update(1, "s", passkey=ALICE))
    await private.torrents.add(info_hash(1))
    name = private.keys.user("7") if key == "user" else private.keys.user_torrent("7", "1")
    await private.redis.delete(name)
    await private.redis.set(name, "another program's")
    before = await private.dump()
    refused = await private.swarms.announce(update(1, event, passkey=ALICE, uploaded=5, bytes_left=0))
    assert refused == Refused("error", "")
    assert await private.dump() == before


async def test_an_account_of_another_type_keeps_no_peer_in_its_swarm(private: Store) -> None:
    await private.announce(update(1, "s", passkey=ALICE))
    account = private.keys.user_torrent("7", "1")
    await private.redis.delete(account)
    await private.redis.set(account, "another program's")
    assert await private.silence(update(1)) == 1
    assert await check_invariants(private.redis, private.keys) == 0
    assert await private.redis.get(account) == b"another program's"


@pytest.mark.parametrize("held", [str(LARGEST), "many", "1e300"])
async def test_a_count_at_its_maximum_stays_and_others_go_on(store: Store, held: str) -> None:
    for name in ("requests", "announces"):
        await store.redis.set(store.keys.stat(name), held)
    await store.redis.hset(store.keys.failures(), "denied", held)
    await store.redis.hset(store.keys.counter(86400, "requests"), str(START - START % 86400), held)
    store.counters.count("requests")
    store.counters.count("announces", by=2**70)
    store.counters.count("failures.denied")
    store.counters.count("scrapes")
    await store.counters.flush()
    one = 1 if held == "many" else LARGEST
    assert (await store.counters.totals())["requests"] == one
    assert (await store.counters.totals())["announces"] == LARGEST
    assert (await store.counters.totals())["scrapes"] == 1
    assert await store.counters.failures() == {"denied": one}
    assert await store.counters.series("requests", 86400) == [(START - START % 86400, one)]
