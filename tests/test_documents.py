"""Every code block of README.md and docs/ is run or read here or by a named test, or is listed with the reason."""

import json
import os
import re
import tomllib
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtest import trackers
from loadtest.servers import ROOT
from tests import commands
from tests.documents import PAGES, Block, Script, blocks, run
from tracker.errors import SettingsError
from tracker.settings.sources import load

READ = {"ini", "json", "toml", "yaml"}
"""Languages whose blocks are read below, wherever they stand."""
ELSEWHERE = {
    ("admin.md", "nginx"): "tests/e2e/test_proxies.py",
    ("changes.md", "python"): "tests/workers/test_webhooks.py",
    ("changes.md", "php"): "tests/e2e/test_php_webhook.py",
    ("cluster.md", "sh"): "tests/e2e/test_growth.py",
    ("moving.md", "sh"): "tests/cli/test_import_mapping.py",
    ("moving.md", "toml"): "tests/cli/test_import_mapping.py",
    ("operations.md", "haproxy"): "tests/e2e/test_proxies.py",
    ("proxies.md", "haproxy"): "tests/test_docs_pages.py",
    ("proxies.md", "nginx"): "tests/e2e/test_proxies.py",
    ("redis.md", "sh"): "tests/test_docs_pages.py",
    ("scores.md", "redis"): "tests/test_docs_pages.py",
    ("jobs.md", "redis"): "tests/test_docs_pages.py",
    ("uniques.md", "redis"): "tests/test_docs_pages.py",
    ("webtorrent.md", "nginx"): "tests/e2e/test_proxies.py",
}
"""(page, language) -> the test that runs or reads these blocks."""
HASH, V1, V2 = "c12fe1c06bba254a9dc9f519b335aa7c1367a88a", "01" * 20, "02" * 20
PASSKEY = "0123456789abcdef0123456789abcdef01234567"
ROWS = f"""
printf 'header = "Authorization: Bearer %s"\\n' "$TOKEN" >api.curl
api --json '{{"users": [{{"user_id": "7", "passkey": "{PASSKEY}", "name": "Alice"}}]}}' "$API/users/batch"
api --json '{{"torrents": [{{"info_hash": "{HASH}"}}, {{"info_hash": "{V1}"}}, {{"info_hash": "{V2}"}}]}}' \\
    "$API/torrents/batch"
"""
"""A user and torrents, unless they are there."""
LATER = """if [ -e later ]; then
{rows}
fi
touch later
"""
"""The page begins with the first user."""
NODE = """until command curl -s -K api.curl "$API/dht" | grep -q '"id"'; do :; done
"""
"""Until the node of the DHT is in the store."""
WORDS = {"INFO_HASH": HASH, "V1_HASH": V1, "V2_HASH": V2, "USER": "7"}
KEEP = """
api --json '{"name": "keep", "kind": "seeding"}' "$API/work/projects"
"""
LISTS = "printf 'item\\n' | tee list.txt >urgent.txt\n"
API_FILES = f"""
echo '{{"passkey": "{PASSKEY[::-1]}"}}' >passkey.json
echo '{{"users": [{{"user_id": "9", "passkey": "{PASSKEY[::-1]}"}}]}}' >users.json
api --json @users.json "$API/users/batch"
"""
CLI_FILES = f"""
mkdir torrents
cp film.torrent torrents/
echo {"8" * 40} >file
printf 'user_id,passkey\\n20,{"a" * 40}\\n' >users.csv
printf 'user_id\\tpasskey\\n21\\t{"b" * 40}\\n' >dump.tsv
printf 'kind = "users"\\n[fields]\\nuser_id = "user_id"\\npasskey = "passkey"\\n' >users.toml
"""
SEEDS = f"""command curl -s -K api.curl -H 'Content-Type: text/plain' --data-binary {HASH} \\
    "$API/work/projects/seeds/item-list" >added
"""
"""A torrent to seed, once the project is there."""
COUNTED = f"""announce {HASH} 1 0
until tracker unique show {HASH} >counted; do :; done
"""
PROJECT = {"TRACKER_WORK__LISTEN": "127.0.0.1:0"}
SCRIPTS: dict[str, Script] = {
    "quickstart.md": Script(
        before="for number in 1 2; do announce 6b8f41d3a5f0b2c4d7e9a1b3c5d7e9f10213c0d1 $number $((number - 1)); done"
    ),
    "private.md": Script(
        settings={
            "TRACKER_USERS__PRIVATE": "required",
            "TRACKER_TORRENTS__MODE": "registered",
            "TRACKER_ANNOUNCE__URLS": "https://tracker.example",
        },
        words=WORDS,
        before_each=LATER.format(rows=ROWS),
    ),
    "api.md": Script(
        settings={
            "TRACKER_CHANGES__MAX_ENTRIES": "1000",
            "TRACKER_DHT__ENABLED": "true",
            "TRACKER_DHT__LISTEN": "127.0.0.1:0",
            "TRACKER_DHT__TORRENTS": "all",
        },
        words={
            "$API/jobs/42": "$API/jobs/1",
            "1800000000": "4000000000",  # always later than the changes of the test
            "1800000000000-0": "4000000000000-0",
        },
        before=f"{ROWS + LISTS + API_FILES + NODE}announce {HASH} 1 0",
    ),
    "admin.md": Script(before=ROWS, words={"swk_…": "$TOKEN"}),
    "audit.md": Script(before=ROWS),
    "backup.md": Script(words={"/var/backups/tracker/": "backups/"}),
    "clients.md": Script(),
    "cli.md": Script(
        settings=PROJECT | {"TRACKER_GEOIP__DATABASE": "places.mmdb"},
        words=WORDS | {"ITEM": "item", "DIR": "drained"},
        before=KEEP + LISTS + CLI_FILES,
        before_each=ROWS,
    ),
    "metrics.md": Script(),
    "scores.md": Script(words=WORDS, before=ROWS),
    "uniques.md": Script(words=WORDS, before=ROWS + COUNTED, settings={"TRACKER_GEOIP__DATABASE": "places.mmdb"}),
    "work.md": Script(
        settings=PROJECT | {"TRACKER_TORRENTS__MODE": "registered"},
        words={"ITEM": "item", "/var/lib/tracker/work": "drained", "https://tracker.example/seeds": "$WORK/seeds"},
        before=f"{ROWS + LISTS}PASSKEY={PASSKEY}",
        before_each=SEEDS,
    ),
}
_MAKE = "sets up an environment of its own; .ci/run does"
_SITE = "settings of the site, or of another program"
_SERVER = "a proxy or another server that the operator configures"
_SYSTEM = "changes the machine: users, services, packages, the kernel"
_DOCKER = "needs docker; tests/deploy/test_built_image.py builds and runs the image with buildah"
_DRAWING = "a drawing, a formula or a figure"
_OWN_TEST = "has a test of its own: "
QUICK = {"quickstart.md", "api.md"}
"""Pages with few commands of `tracker`, each of which starts an interpreter."""
NOT_RUN: dict[tuple[str, str], str] = {
    ("README.md", "make"): _MAKE,
    ("README.md", "  tracker torrent add|"): "an overview of commands; cli.md has them",
    ("quickstart.md", "make"): _MAKE,
    ("quickstart.md", "swarmkeeper 1"): "the banner, read below",
    ("admin.md", "sign in"): "the banner's line, read below",
    ("admin.md", "ssh "): "needs another host",
    ("admin.md", "tracker.example {"): _SERVER,
    ("backup.md", "15 4 "): "a line of cron",
    ("backup.md", "tracker restore"): _OWN_TEST + "tests/valkey/test_backup.py, as no tracker may run",
    ("backup.md", "cp -a"): "loadtest/chaos/stores.py repairs a file so, as no tracker may run",
    ("backup.md", "server="): "as before",
    ("backup.md", "( exec"): "as before",
    ("cli.md", "tracker serve"): "starts a tracker, as each page here does",
    ("cli.md", "tracker top"): _OWN_TEST + "tests/cli/test_top.py",
    ("cli.md", "tracker torrent renumber"): _OWN_TEST + "tests/cli/test_renumber.py, as no tracker may run",
    ("cli.md", "tracker work seed"): _OWN_TEST + "tests/volunteer",
    ("cli.md", "tracker dht"): _OWN_TEST + "tests/cli/test_dht.py",
    ("cli.md", "tracker geoip update"): _OWN_TEST + "tests/workers/test_geoip_update.py, on a local server",
    ("cli.md", "tracker changes --follow"): "does not end",
    ("cli.md", "tracker sync"): _OWN_TEST + "tests/workers/site",
    ("cli.md", "tracker restore"): _OWN_TEST + "tests/valkey/test_backup.py, as no tracker may run",
    ("cli.md", "tracker reshard"): _OWN_TEST + "tests/e2e/test_growth.py",
    ("cluster.md", "cluster-enabled"): _SERVER,
    ("cluster.md", "min-replicas"): _SERVER,
    ("cluster.md", "COMPOSE_FILE="): _SITE,
    ("cluster.md", "STORE_URL="): _SITE,
    ("docker.md", "docker "): _DOCKER,
    ("geoip.md", "TRACKER_GEOIP__DATABASE=dbip"): _OWN_TEST + "tests/workers/test_geoip_update.py, on a local server",
    ("geoip.md", "AccountID"): _SERVER,
    ("geoip.md", "37 4 "): "a line of cron",
    ("geoip.md", "[Service]"): _SYSTEM,
    ("geoip.md", "[Timer]"): _SYSTEM,
    ("geoip.md", "#!/bin/sh"): "fetches from another host",
    ("jobs.md", "enqueue"): _DRAWING,
    ("jobs.md", "score = "): _DRAWING,
    ("kubernetes.md", "kubectl"): "needs a cluster; tests/deploy/test_kubernetes.py checks the manifests",
    ("map.md", "frontends/"): _DRAWING,
    ("metrics.md", "HEALTHCHECK"): "a line of the Dockerfile",
    ("metrics.md", "docker"): _DOCKER,
    ("moving.md", "TRACKER_HOST="): _SITE,
    ("moving.md", "SELECT "): "reads a site's database; tests/cli/test_import_mapping.py has what it returns",
    ("operations.md", "dpkg"): _SYSTEM + "; tests/deploy/test_packages.py installs the package",
    ("operations.md", "useradd"): _SYSTEM + "; tests/deploy/test_packages.py starts the unit",
    ("operations.md", "cd /etc/tracker"): _SYSTEM,
    ("operations.md", "min-replicas"): _SERVER,
    ("performance.md", "1,000,000 peers"): _DRAWING,
    ("private.md", "tracker torrent renumber"): _OWN_TEST + "tests/cli/test_renumber.py, as no tracker may run",
    ("proxies.md", "tracker.example"): _SERVER,
    ("redis.md", "t:{"): _DRAWING,
    ("sizing.md", ""): _DRAWING,
    ("sync.md", "tracker sync"): _OWN_TEST + "tests/workers/site",
    ("sync.md", "CREATE "): _SERVER,
    ("sync.md", "GRANT "): _SERVER,
    ("trust.md", "make"): "takes half an hour each; tools/test_all.py runs them",
    ("udp.md", "udp://"): "a URL",
    ("udp.md", "table inet"): _SYSTEM,
    ("udp.md", "stream {"): _SERVER,
    ("udp.md", "ip rule"): _SYSTEM,
    ("udp.md", "tracker.example. TXT"): "a record of the domain name system",
    ("webtorrent.md", "ws://"): "URLs",
    ("webtorrent.md", "curl "): _OWN_TEST + "tests/frontends/websocket, which sends these headers",
    ("work.md", "LOCK=seed"): _SYSTEM + "; tests/deploy/test_seed.py installs it",
    ("work.md", "SWARMKEEPER_PASSKEY="): _SITE,
}
"""(page, what a block or command begins with) -> why it cannot be run here."""


def reason(block: Block, command: str = "") -> str:
    """Why the block, or the command of it, is not run; empty if it is."""
    for (page, start), why in NOT_RUN.items():
        if page == block.page and (command or block.text.removeprefix("$ ")).startswith(start):
            return why
    return ""


ALL = [block for page in PAGES for block in blocks(page)]


def name_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


def test_every_block_is_run_or_read_or_named() -> None:
    missing = [
        name_of(block)
        for block in ALL
        if not (
            block.language in READ
            or (block.page, block.language) in ELSEWHERE
            or (block.language in ("sh", "console") and block.page in SCRIPTS)
            or reason(block)
        )
    ]
    assert missing == []
    for (page, _), test in ELSEWHERE.items():
        assert re.search(re.escape(page), (ROOT / test).read_text("utf-8")), (page, test)


def test_no_page_has_code_without_a_language() -> None:
    """A block by indentation, or a fence that names none."""
    found = [
        f"{page}: {line}"
        for page, path in PAGES.items()
        for line in re.findall(r"\n\n( {4}\S.*|```$)", re.sub(r"(?ms)^ *```\w.*?^ *```$", "", path.read_text()))
    ]
    assert found == []


def test_every_name_in_the_lists_is_of_a_block() -> None:
    starts = {
        (block.page, text)
        for block in ALL
        for text in (block.text.removeprefix("$ "), *(each for each, _ in block.commands()))
    }
    stale = {
        (page, start)
        for page, start in NOT_RUN
        if not any(of == page and text.startswith(start) for of, text in starts)
    }
    assert stale == set()
    named = {name for why in NOT_RUN.values() for name in re.findall(r"(?:loadtest|tests|tools)/[\w/.]+\w", why)}
    assert not [name for name in named if not (ROOT / name).exists()]
    assert ELSEWHERE.keys() <= {(block.page, block.language) for block in ALL}


@pytest.mark.parametrize("block", [b for b in ALL if b.language == "ini" and not reason(b)], ids=name_of)
def test_settings_on_pages_are_accepted(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, or after those before it on the page."""
    for name in [name for name in os.environ if name.startswith("TRACKER_")]:
        monkeypatch.delenv(name)
    before = [each.text for each in blocks(block.page, "ini") if each.line < block.line and not reason(each)]
    (tmp_path / "alone").write_text(block.text.replace("…", "x" * 40), "utf-8")
    (tmp_path / "after").write_text("".join([*before, block.text]).replace("…", "x" * 40), "utf-8")
    try:
        load(env_file=tmp_path / "alone")
    except SettingsError:
        load(env_file=tmp_path / "after")


def test_other_data_on_pages_can_be_read() -> None:
    """What it means is tested where it is used: mapping files, answers of the API, Prometheus."""
    readers = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}
    found = [readers[block.language](block.text) for block in ALL if block.language in readers]
    assert all(found) and len(found) > 10


def test_answers_on_pages_are_those_of_the_api(tmp_path: Path) -> None:
    tracker = trackers.start(tmp_path, TRACKER_CHANGES__MAX_ENTRIES="100")
    try:
        token = commands.run(tmp_path, "token", "create", "t").stdout
        found = re.search(r"swk_\S+", token)
        assert found

        def answer(path: str) -> Any:
            connection = HTTPConnection(tracker.admin_url.removeprefix("http://"), timeout=trackers.SECONDS)
            with closing(connection):
                connection.request("GET", f"/api/v1/{path}", headers={"Authorization": f"Bearer {found[0]}"})
                return json.load(connection.getresponse())

        (shown,) = (json.loads(block.text) for block in blocks("api.md", "json"))
        assert answer("torrents?limit=1000") == shown
        tracker.announce()
        (shown,) = (json.loads(block.text) for block in blocks("changes.md", "json"))
        given = answer("changes")
        assert given.keys() == shown.keys() and given["items"][0].keys() == shown["items"][0].keys()
    finally:
        tracker.kill()


def labels(banner: str) -> list[str]:
    return re.findall(r"^  (\w+(?: \w+)?) {2,}\S", banner, re.MULTILINE)


def test_the_banner_on_pages_is_that_of_a_tracker(tmp_path: Path) -> None:
    tracker = trackers.start(tmp_path)
    try:
        for page in ("README.md", "quickstart.md"):
            (block,) = (each for each in blocks(page) if " is running\n" in each.text)
            shown = block.text.removeprefix("$ make run\n")
            assert shown.splitlines()[0] == tracker.banner.splitlines()[0]
            assert labels(shown) == [label for label in labels(tracker.banner) if label != "udp"]
            assert re.findall(r"^  (?:places|sign in) .*", shown, re.MULTILINE)
    finally:
        tracker.kill()


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page in QUICK else [pytest.mark.long]) for page in SCRIPTS]
)
def test_the_commands_of_a_page_do_what_it_shows(page: str, tmp_path: Path) -> None:
    found = [
        (command, shown)
        for block in blocks(page, "sh", "console")
        for command, shown in block.commands()
        if not (reason(block) or reason(block, command))
    ]
    run(SCRIPTS[page], found, tmp_path / "page")
