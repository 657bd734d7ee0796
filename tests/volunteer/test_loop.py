"""Rounds of the volunteer's program, with libtorrent as its client and a server whose answers the test chooses."""

import asyncio
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from aiohttp import web

from tests.e2e.peers import PAYLOAD, Share, settings
from tests.fake_time import FakeTime
from tests.volunteer.work_server import ANNOUNCE, PASSKEY, WorkServer, work_server
from tests.waiting import eventually, in_background
from tracker.errors import StartupError
from tracker.volunteer.clients import NewTorrent
from tracker.volunteer.clients.internal import Internal
from tracker.volunteer.loop import UNLISTED_SECONDS, Confirm, Item, Rules, State, Volunteer, open_state
from tracker.volunteer.work_api import Denied, Identity, Unavailable, WorkApi

USER = Identity(PASSKEY)
SIZE = 50_000
SPACE = 10 * SIZE


class Machine:
    """The machine of one volunteer: client, state file and program. ``start`` begins anew after a kill."""

    def __init__(self, server: WorkServer, folder: Path, stack: AsyncExitStack) -> None:
        self.server = server
        self.folder = folder
        self.state_path = folder / "state.json"
        self._stack = stack
        self.time = FakeTime()
        folder.mkdir()

    async def start(self, who: Identity = USER, confirm: Confirm | None = None, **rules: Any) -> Volunteer:
        self.client = Internal(self.folder / "data", settings=settings(("127.0.0.1:0",)))
        self._stack.callback(self.client.close)
        self.state = self._stack.enter_context(open_state(self.state_path))
        api = await self._stack.enter_async_context(WorkApi.open(self.server.url, who))
        chosen = {"space": SPACE, "max_torrents": 50, "auto_drop": True, "drop_chance": 1.0, **rules}
        return Volunteer(
            api,
            self.client,
            self.state,
            Rules(**chosen),
            confirm=confirm,
            random=Random(self.folder.name),
            clock=self.time.timer,
            timer=self.time.timer,
            sleep=self.time,
        )

    def shares(self, count: int, size: int = SIZE) -> list[Share]:
        return [self.server.share(self.folder.parent / f"source{number}", size) for number in range(count)]

    @property
    def stages(self) -> dict[str, str]:
        return {info_hash: item.stage for info_hash, item in self.state.items.items()}

    @property
    def torrents(self) -> list[str]:
        return sorted(each.info_hash for each in self.client.torrents({}))

    @property
    def claimed(self) -> list[str]:
        return sorted(self.server.claims)


@pytest.fixture
async def server() -> AsyncIterator[WorkServer]:
    async with work_server() as running:
        yield running


Machines = Callable[[str], Machine]


@pytest.fixture
async def machines(server: WorkServer, tmp_path: Path) -> AsyncIterator[Machines]:
    async with AsyncExitStack() as stack:
        yield lambda name: Machine(server, tmp_path / name, stack)


@pytest.fixture
def machine(machines: Machines) -> Machine:
    return machines("machine")


# Asking


async def test_torrents_are_claimed_added_and_seeded(machine: Machine) -> None:
    [share] = machine.shares(1)
    volunteer = await machine.start()
    machine.server.put_data(machine.folder / "data", share)
    await volunteer.round()
    assert machine.torrents == [share.info_hash.hex()] == machine.claimed
    await eventually(lambda: all(each.seeding for each in machine.client.torrents({})))
    [trackers] = [handle.trackers() for handle in machine.client._session.get_torrents()]
    assert [each["url"] for each in trackers] == [ANNOUNCE]
    await volunteer.round()
    assert machine.server.names("extend") == [share.info_hash.hex()]
    assert machine.torrents == machine.claimed


ADA = Identity(name="ada_1", port=6881)


async def test_a_name_and_a_port_do_where_there_are_no_passkeys(machine: Machine) -> None:
    """Only who has the token gives a claim back: without the state file it lapses."""
    [share] = machine.shares(1)
    machine.server.by_name = True
    volunteer = await machine.start(ADA)
    await volunteer.round()
    await volunteer.round()
    assert machine.server.claims == {share.info_hash.hex(): ("ada_1", "1")}
    asked = [fields for path, fields in machine.server.calls if path == "request"]
    assert {(fields["downloader"], fields["port"]) for fields in asked} == {("ada_1", 6881)}
    assert machine.server.names("extend") == [share.info_hash.hex()]
    machine.state.items.clear()
    machine.server.not_needed.add(share.info_hash.hex())
    await volunteer.round()
    assert machine.torrents == [] and machine.server.names("release") == []


async def test_a_name_gives_nothing_back_whose_token_it_does_not_know(machine: Machine) -> None:
    """The answer to a request was lost, or another claimant uses the name."""
    machine.shares(1)
    machine.server.by_name = True
    volunteer = await machine.start(ADA)
    machine.server.hook = lambda path, moment: (
        web.Response(status=503) if (path, moment) == ("request", "after") else None
    )
    with pytest.raises(Unavailable):
        await volunteer.round()
    machine.server.hook = lambda path, moment: None
    await volunteer.round()
    assert machine.server.names("release") == [] and len(machine.server.claims) == 1


@pytest.mark.parametrize(("who", "by_name", "hint"), [(USER, True, "use --name and --port"), (ADA, False, "passkey")])
async def test_the_wrong_kind_of_claimant_is_told_so_at_once(
    machine: Machine, who: Identity, by_name: bool, hint: str
) -> None:
    machine.server.by_name = by_name
    with pytest.raises(Denied, match=hint):
        await (await machine.start(who)).round()
    assert [path for path, _ in machine.server.calls] == ["mine"]


async def test_the_space_is_never_exceeded(machine: Machine) -> None:
    """W27: each torrent counts with its full size from its claim on."""
    machine.shares(4)
    volunteer = await machine.start(space=2 * SIZE + SIZE // 2)
    await volunteer.round()
    await volunteer.round()
    assert len(machine.torrents) == 2 == len(machine.server.claims)
    asked = [fields["free_bytes"] for path, fields in machine.server.calls if path == "request"]
    assert asked[:3] == [2 * SIZE + SIZE // 2, SIZE + SIZE // 2, SIZE // 2]
    assert len(asked) == 4


async def test_a_full_space_asks_for_nothing(machine: Machine) -> None:
    machine.shares(2)
    await (await machine.start(space=SIZE)).round()
    assert len(machine.torrents) == 1
    assert len(machine.server.names("request")) == 1


async def test_no_more_torrents_than_allowed_are_claimed(machine: Machine) -> None:
    machine.shares(3)
    volunteer = await machine.start(max_torrents=2)
    await volunteer.round()
    await volunteer.round()
    assert len(machine.torrents) == 2 == len(machine.server.names("request"))


@pytest.mark.parametrize("told", [SPACE + 1, None])
async def test_a_torrent_above_the_space_or_of_unknown_size_is_given_back(machine: Machine, told: int | None) -> None:
    [share] = machine.shares(1)
    machine.server.torrents[share.info_hash.hex()] = (machine.server.torrents[share.info_hash.hex()][0], told)
    machine.server.keeps_to_size = False
    await (await machine.start()).round()
    assert (machine.torrents, machine.stages, machine.server.claims) == ([], {}, {})


async def test_a_torrent_larger_than_the_tracker_says_is_given_back(machine: Machine) -> None:
    [share] = machine.shares(1)
    machine.server.torrents[share.info_hash.hex()] = (machine.server.torrents[share.info_hash.hex()][0], SIZE - 1)
    await (await machine.start()).round()
    assert (machine.torrents, machine.stages, machine.server.claims) == ([], {}, {})


async def test_a_wrong_torrent_file_is_given_back(machine: Machine) -> None:
    one, two = machine.shares(2)
    data = machine.server.torrents.pop(two.info_hash.hex())
    machine.server.torrents[one.info_hash.hex()] = data
    await (await machine.start()).round()
    assert (machine.torrents, machine.stages, machine.server.claims) == ([], {}, {})


async def test_a_torrent_file_that_is_not_available_is_fetched_later(machine: Machine) -> None:
    machine.shares(2)
    volunteer = await machine.start()
    machine.server.hook = lambda path, moment: web.Response(status=503) if path == "torrent" else None
    await volunteer.round()
    assert (list(machine.stages.values()), len(machine.server.claims)) == (["claimed"], 1)
    machine.server.hook = lambda path, moment: None
    await volunteer.round()
    assert machine.torrents == machine.claimed
    assert len(machine.torrents) == 2


async def test_a_magnet_link_that_turns_out_too_large_is_stopped(machine: Machine) -> None:
    """W27: a liar says 1 byte. The .torrent file is what a swarm would send."""
    [share] = machine.shares(1)
    info_hash = share.info_hash.hex()
    machine.server.torrents[info_hash] = (machine.server.torrents[info_hash][0], 1)
    machine.server.files = False
    volunteer = await machine.start(space=100, auto_drop=False)
    await volunteer.round()
    assert machine.torrents == [info_hash]
    data = share.torrent(ANNOUNCE).read_bytes()
    machine.client.remove(info_hash, delete_data=False)
    machine.client.add(NewTorrent(info_hash, "payload", ANNOUNCE, data))
    await eventually(lambda: machine.client.torrents({})[0].size == SIZE)
    await volunteer.round()
    assert machine.client._handles[info_hash].status().paused
    assert machine.server.claims == {}
    assert volunteer.not_needed(await volunteer_mine(machine)) == [info_hash]


async def volunteer_mine(machine: Machine) -> Any:
    async with WorkApi.open(machine.server.url, USER) as api:
        return await api.mine()


# Dropping


async def test_what_is_not_needed_is_dropped_and_its_data_kept(machine: Machine) -> None:
    [share] = machine.shares(1)
    volunteer = await machine.start()
    machine.server.put_data(machine.folder / "data", share)
    await volunteer.round()
    machine.server.kept = {share.info_hash.hex(): PASSKEY}
    machine.server.claims.clear()
    await volunteer.round()
    assert machine.torrents == [share.info_hash.hex()], "it is still needed"
    machine.server.not_needed.add(share.info_hash.hex())
    await volunteer.round()
    assert (machine.torrents, machine.stages) == ([], {})
    assert (machine.folder / "data" / PAYLOAD).exists()


async def test_a_claim_that_is_not_needed_is_given_back_and_its_data_deleted_if_wanted(machine: Machine) -> None:
    [share] = machine.shares(1)
    volunteer = await machine.start(delete_data=True)
    machine.server.put_data(machine.folder / "data", share)
    await volunteer.round()
    await eventually(lambda: all(each.seeding for each in machine.client.torrents({})))
    machine.server.not_needed.add(share.info_hash.hex())
    machine.server.max_claims = 0
    await volunteer.round()
    assert (machine.torrents, machine.server.claims) == ([], {})
    await eventually(lambda: not (machine.folder / "data" / PAYLOAD).exists())


@pytest.mark.parametrize("answer", [True, False])
async def test_a_person_is_asked_once_before_something_is_dropped(machine: Machine, answer: bool) -> None:
    [share] = machine.shares(1)
    questions: list[str] = []

    async def confirm(name: str) -> bool:
        questions.append(name)
        return answer

    volunteer = await machine.start(auto_drop=False, confirm=confirm)
    await volunteer.round()
    machine.server.not_needed.add(share.info_hash.hex())
    machine.server.max_claims = 0
    await volunteer.round()
    await volunteer.round()
    assert questions == ["payload"]
    assert machine.torrents == ([] if answer else [share.info_hash.hex()])


async def test_without_a_person_nothing_is_dropped(machine: Machine) -> None:
    [share] = machine.shares(1)
    volunteer = await machine.start(auto_drop=False)
    machine.server.not_needed.add(share.info_hash.hex())
    await volunteer.round()
    await volunteer.round()
    assert machine.torrents == [share.info_hash.hex()]


async def test_a_tracker_that_forgets_its_lists_for_a_while_drops_nothing(machine: Machine) -> None:
    [share] = machine.shares(1)
    machine.time.now = 1000.0
    volunteer = await machine.start()
    await volunteer.round()
    machine.server.claims.clear()
    machine.server.torrents.clear()
    await volunteer.round()
    machine.time.now += UNLISTED_SECONDS - 1
    await volunteer.round()
    assert machine.torrents == [share.info_hash.hex()]
    machine.time.now += 2
    await volunteer.round()
    assert machine.torrents == []


async def test_ten_volunteers_take_different_torrents_and_do_not_all_drop_the_same_one(
    server: WorkServer, machines: Machines
) -> None:
    """W28. The server says to all of them that one torrent is not needed; half of them could go for good."""
    group = [machines(f"machine{number}") for number in range(10)]
    first, *_ = group[0].shares(10)
    running = [
        await machine.start(Identity(f"{PASSKEY}{number}"), max_torrents=1, drop_chance=0.25)
        for number, machine in enumerate(group)
    ]
    await asyncio.gather(*(volunteer.round() for volunteer in running))
    taken = [each for machine in group for each in machine.torrents]
    assert sorted(taken) == sorted(server.torrents)
    server.torrents.clear()
    for machine in group:  # now all have the same one
        machine.client.add(NewTorrent(first.info_hash.hex(), "", ANNOUNCE, first.torrent().read_bytes()))
    server.not_needed.add(first.info_hash.hex())
    server.hook = lambda path, moment: (
        web.json_response({"items": [server._row(first.info_hash.hex(), "kept")]}) if path == "mine" else None
    )
    left = [10]
    for _ in range(4):
        await asyncio.gather(*(volunteer.round() for volunteer in running))
        left.append(sum(first.info_hash.hex() in machine.torrents for machine in group))
        assert left[-1] >= left[-2] / 2, left
    assert 0 < left[-1] < 10


# Going on after a kill


async def test_a_request_whose_answer_was_lost_is_given_back_and_asked_for_again(machine: Machine) -> None:
    """The claim of another program of the same user stays."""
    one, two = machine.shares(2)
    machine.server.claims[one.info_hash.hex()] = (PASSKEY, "of the other program")
    volunteer = await machine.start()
    machine.server.hook = lambda path, moment: (
        web.Response(status=502) if (path, moment) == ("request", "after") else None
    )
    with pytest.raises(Unavailable):
        await volunteer.round()
    assert len(machine.server.claims) == 2
    assert machine.torrents == []
    machine.server.hook = lambda path, moment: None
    await volunteer.round()
    assert machine.server.names("release") == [two.info_hash.hex()]
    assert machine.torrents == [two.info_hash.hex()]
    assert machine.claimed == sorted([one.info_hash.hex(), two.info_hash.hex()])


@pytest.mark.parametrize("stage", ["claimed", "adding"])
@pytest.mark.parametrize("in_client", [False, True])
async def test_a_program_that_was_killed_goes_on(machine: Machine, stage: Any, in_client: bool) -> None:
    """W27: killed between two notes in the file; the client may have the torrent already."""
    [share] = machine.shares(1)
    info_hash = share.info_hash.hex()
    machine.server.claims[info_hash] = (PASSKEY, "1")
    url = f"{machine.server.url}/torrents/{info_hash}.torrent"
    item = Item(size=SIZE, stage=stage, token="1", torrent_url=url, announce_url=ANNOUNCE)
    machine.state_path.write_text(State(items={info_hash: item}).model_dump_json())
    volunteer = await machine.start()
    if in_client:
        new = NewTorrent(info_hash, "payload", ANNOUNCE, share.torrent(ANNOUNCE).read_bytes())
        machine.client.add(new)
    await volunteer.round()
    assert (machine.torrents, machine.stages) == ([info_hash], {info_hash: "added"})
    assert machine.claimed == [info_hash]


async def test_a_claim_that_was_lost_before_the_torrent_was_added_is_forgotten(machine: Machine) -> None:
    item = Item(size=SIZE, token="1", announce_url=ANNOUNCE)
    machine.state_path.write_text(State(items={"ab" * 20: item}).model_dump_json())
    await (await machine.start()).round()
    assert (machine.torrents, machine.stages) == ([], {})


async def test_labelled_torrents_are_found_again_without_the_file(machine: Machine) -> None:
    machine.shares(2)
    volunteer = await machine.start(space=SIZE)
    await volunteer.round()
    before = machine.torrents
    machine.state.items.clear()
    await volunteer.round()
    assert (machine.torrents, sorted(machine.stages)) == (before, before)
    assert len(machine.server.claims) == 1, "its size counts as before"


async def test_a_magnet_link_counts_with_its_size_also_without_the_file(machine: Machine) -> None:
    """W27: the client does not know the size yet, but the tracker does."""
    machine.shares(2)
    machine.server.files = False
    volunteer = await machine.start(space=SIZE)
    await volunteer.round()
    machine.state.items.clear()
    await volunteer.round()
    assert len(machine.server.claims) == 1


async def test_a_torrent_that_a_person_removed_is_given_back_after_three_rounds(machine: Machine) -> None:
    """A client that starts lists few torrents at first."""
    [share] = machine.shares(1)
    volunteer = await machine.start()
    await volunteer.round()
    machine.server.torrents.clear()
    machine.client.remove(share.info_hash.hex(), delete_data=False)
    for expected in (1, 1, 0):
        await volunteer.round()
        assert len(machine.server.claims) == expected
    assert machine.stages == {}


async def test_the_file_is_private_and_has_one_user(machine: Machine) -> None:
    machine.shares(1)
    await (await machine.start()).round()
    assert stat.S_IMODE(machine.state_path.stat().st_mode) == 0o600
    with pytest.raises(StartupError, match="another process uses"), open_state(machine.state_path):
        pass


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("{")
    with pytest.raises(StartupError, match="damaged"), open_state(tmp_path / "state"):
        pass


# Refusals and pauses


@pytest.mark.parametrize("status", [401, 403, 404, 455])
async def test_the_program_ends_when_waiting_does_not_help(machine: Machine, status: int) -> None:
    machine.server.hook = lambda path, moment: web.Response(status=status)
    with pytest.raises(Denied):
        await (await machine.start()).run()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"items": 1}', b'{"items": [{"item_name": "../../x", "state": ""}]}', b"x" * 5_000_000]
)
async def test_a_malformed_list_changes_nothing(machine: Machine, body: bytes) -> None:
    machine.server.hook = lambda path, moment: web.Response(body=body)
    with pytest.raises(Unavailable):
        await (await machine.start()).round()
    assert [path for path, _ in machine.server.calls] == ["mine"]


@pytest.mark.parametrize(
    "change",
    [
        {"item_name": "AB" * 20},
        {"announce_url": "file:///etc/passwd"},
        {"announce_url": None},
        {"size": -1},
        {"size": "many"},
        {"token": "x" * 300},
    ],
)
async def test_a_malformed_grant_adds_nothing(machine: Machine, change: dict[str, Any]) -> None:
    [share] = machine.shares(1)
    grant = machine.server._grant(share.info_hash.hex(), SIZE, "1") | change
    machine.server.hook = lambda path, moment: web.json_response(grant) if path == "request" else None
    with pytest.raises(Unavailable):
        await (await machine.start()).round()
    assert machine.torrents == []


@pytest.mark.parametrize("url", ["file:///{}", "http://127.0.0.1:9/reboot", "http://127.0.0.1:9/{}.torrent"])
async def test_only_urls_of_the_torrent_are_fetched(machine: Machine, url: str) -> None:
    [share] = machine.shares(1)
    info_hash = share.info_hash.hex()
    grant = machine.server._grant(info_hash, SIZE, "1") | {"torrent_url": url.format(info_hash)}
    machine.server.claims[info_hash] = (PASSKEY, "1")
    machine.server.hook = lambda path, moment: web.json_response(grant) if path == "request" else None
    await (await machine.start()).round()
    assert machine.torrents == []
    waits = "{}" in url and url.startswith("http")
    assert machine.server.names("release") == ([] if waits else [info_hash])


async def test_a_tracker_that_asks_for_time_gets_it_and_pauses_differ(server: WorkServer, machines: Machines) -> None:
    """W28: Retry-After is kept, and more is added by chance."""
    server.hook = lambda path, moment: web.Response(status=429, headers={"Retry-After": "100"})
    second: list[float] = []
    for number in range(3):
        machine = machines(f"machine{number}")
        volunteer = await machine.start()
        async with in_background(volunteer.run()):
            server.calls.clear()
            await machine.time.pass_until(lambda: len(server.calls) >= 2)
        second.append(machine.time.now)
    assert all(100 < each <= 115 for each in second)
    assert len(set(second)) == 3


async def test_pauses_grow_while_nothing_answers(machine: Machine) -> None:
    machine.server.hook = lambda path, moment: web.Response(status=500)
    volunteer = await machine.start()
    async with in_background(volunteer.run()):
        await machine.time.pass_until(lambda: len(machine.server.calls) >= 12)
        assert 3 * 900 < machine.time.now < 12 * 1800
        machine.server.hook = lambda path, moment: None
        began = len(machine.server.calls)
        await machine.time.pass_until(lambda: len(machine.server.calls) >= began + 3)
    assert machine.server.calls[-1][0] in ("mine", "request")


async def test_a_preview_changes_nothing(machine: Machine) -> None:
    one, _two = machine.shares(2)
    volunteer = await machine.start(space=SIZE + 10)
    await volunteer.round()
    machine.server.not_needed.add(one.info_hash.hex())
    before = (machine.torrents, dict(machine.server.claims), machine.state_path.read_bytes())
    assert await volunteer.preview() == [
        "would drop payload: no longer needed",
        "would ask for up to 49 torrents, 10 bytes in total",
    ]
    assert (machine.torrents, dict(machine.server.claims), machine.state_path.read_bytes()) == before
