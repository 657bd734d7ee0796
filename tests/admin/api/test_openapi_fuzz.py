"""Responses match the OpenAPI document: schemathesis generates requests from it.

It runs as a program of its own, so that neither its plugin nor its warnings touch the rest of the tests.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.admin.conftest import Admin, Serve
from tests.store.harness import Store, running, update
from tests.store.sharding.harness import SHARDS
from tracker.admin.api import GROUPS
from tracker.bittorrent import InfoHash
from tracker.settings.model import RedisSettings, Settings
from tracker.store.jobs.records import SWEEP
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.store.work.records import NewItem, Project

KNOWN = InfoHash(bytes.fromhex("c12fe1c06bba254a9dc9f519b335aa7c1367a88a"))
"""The example of the document."""

CONFIG = """
[headers]
Authorization = "Bearer ${API_TOKEN}"

[checks]
enabled = false
not_a_server_error.enabled = true
status_code_conformance.enabled = true
content_type_conformance.enabled = true
response_headers_conformance.enabled = true
response_schema_conformance.enabled = true
negative_data_rejection.enabled = true
positive_data_acceptance.enabled = true
unsupported_method.enabled = true

# A sorted search, a file that is no torrent, an end in the past or without its multiplier, a
# rule without one, too many rules, a min above the max, a name
# that is not printable: schemas cannot express that these are refused. Of work distribution: a setting or an item of
# the other kind of project, who is neither a name nor an address, a cursor that no page had, a filter without a field.
[[operations]]
include-operation-id = ["torrents_list_all", "users_list_all",
  "exports_torrents_as_csv", "exports_torrents_as_json_lines", "exports_users_as_csv", "exports_users_as_json_lines",
  "torrents_create", "torrents_upload", "jobs_reprocess", "tokens_create",
  "work_create", "work_edit", "work_items_list_all", "work_items_add", "work_items_add_list", "work_claims_list_all",
  "work_claims_release", "work_policy_preview", "work_blocked_block", "work_blocked_unblock",
  "work_blocked_block_everywhere", "work_blocked_unblock_everywhere", "freeleech_give",
  "groups_edit", "groups_replace", "multipliers_replace",
  "rules_set_of_all", "rules_set_of_torrent", "rules_set_of_user",
  "users_create", "users_edit", "torrents_edit", "exports_peers"]
checks.positive_data_acceptance.enabled = false

# An invalid row of a batch is an outcome.
[[operations]]
include-operation-id = ["torrents_batch", "users_batch", "user_torrents_batch"]
checks.negative_data_rejection.enabled = false

# These paths are those of a torrent or a user, too.
[[operations]]
include-operation-id = ["torrents_batch", "users_batch", "users_lookup",
  "exports_torrents_as_csv", "exports_torrents_as_json_lines", "exports_users_as_csv", "exports_users_as_json_lines"]
checks.unsupported_method.enabled = false
"""


async def _fill(admin: Admin, url: str, prefix: str, shards: int) -> None:
    """Creates the objects of the document's examples."""
    store = admin.store
    await store.torrents.add(KNOWN, {"name": "a film"})
    await store.users.add("7")
    await store.torrents.deny(KNOWN, "no")
    await store.torrents.allow(KNOWN)
    for _ in range(42):
        await store.jobs.enqueue(SWEEP, {"number": _})
    await store.work.projects.create(Project("archive"))
    await store.work.items.add("archive", [NewItem(KNOWN.hex())])
    async with running(Store(url, Keys(prefix), SwarmRules(), shards=shards)) as announcing:
        await announcing.announce(update(1, info_hash=KNOWN, event="s"))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("phases", "shards", "examples"),
    [
        pytest.param("examples,fuzzing", 1, 4, id="short"),
        pytest.param("examples,fuzzing", SHARDS, 8, marks=pytest.mark.long, id="shards"),
        pytest.param("examples,coverage,fuzzing", 1, 8, marks=pytest.mark.long, id="all"),
        pytest.param("examples,coverage,fuzzing", SHARDS, 8, marks=pytest.mark.long, id="all with shards"),
    ],
)
async def test_responses_match_the_document(
    phases: str, shards: int, examples: int, serve: Serve, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    admin = await serve(Settings(redis=RedisSettings(prefix=prefix, shards=shards)))
    await _fill(admin, redis_url, prefix, shards)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    report = tmp_path / "report.ndjson"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{admin.url}/api/openapi.json"),
        *("--phases", phases),
        *("--max-examples", str(examples), "--seed", "1", "--generation-deterministic"),
        *(
            "--suppress-health-check",
            "too_slow",
            "--no-color",
            "--no-shrink",
            "--continue-on-failure",
            "--report",
            "ndjson",
        ),
        *("--report-ndjson-path", str(report), "--request-timeout", "20"),
        cwd=tmp_path,
        env={"API_TOKEN": await admin.token("admin"), "PATH": "", "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    text = output.decode("utf-8", "replace")
    assert process.returncode == 0, text
    declared = sum(len(group.all) for group in GROUPS)
    assert f"Tested: {declared}" in text, text
