"""The structure of the code: allowed imports, actions with a single place, and maximum sizes.

The tables below are the documentation. Changing a table is a decision; state the reason in the commit.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tracker"

NOUNS = ("bittorrent", "errors")
STORE_BASE = (*NOUNS, "store.client", "store.schema")

_ADMIN = (
    *NOUNS,
    "admin",
    "doctor",
    "geoip",
    "operations",
    "refusals",
    "runtime",
    "settings",
    "store",
    "wire",
)

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # Basic types. All modules may import them.
    "errors": (),
    "bittorrent": ("errors",),
    # What announces and scrapes are refused with.
    "refusals": ("errors",),
    # Parsing and encoding, without side effects.
    "wire": (*NOUNS, "refusals"),
    "geoip": (),
    "token_bucket": (),
    # The operating system, and the settings.
    "system": (*NOUNS, "settings.types"),
    "settings": (*NOUNS, "wire"),
    # All Redis commands. Each subject may import the client, the schema, and the subjects listed here.
    "store.schema": NOUNS,
    "store.client": NOUNS,
    "store.stats": STORE_BASE,
    "store.jobs": (*STORE_BASE, "store.stats"),
    "store.access": STORE_BASE,
    "store.changes": STORE_BASE,
    "store.torrents": STORE_BASE,
    "store.users": (*STORE_BASE, "store.swarms"),
    "store.swarms": (*STORE_BASE, "store.torrents"),
    "store.work": (*STORE_BASE, "store.stats", "store.swarms", "store.torrents"),
    "store.dht": STORE_BASE,
    "store.maintenance": (*STORE_BASE, "store.torrents", "store.users"),
    # The parts of a store with several shards.
    "store.sharding": (
        *STORE_BASE,
        "store.changes",
        "store.dht",
        "store.maintenance",
        "store.stats",
        "store.swarms",
        "store.torrents",
        "store.users",
        "store.work",
    ),
    "store.store": (*NOUNS, "store"),
    "store.resharding": (*NOUNS, "store"),
    # Decisions of a DHT node: no sockets, no store, no clock.
    "dht": (*NOUNS, "token_bucket", "wire"),
    # Decisions on announces and scrapes.
    "core": (*NOUNS, "refusals", "settings", "store", "wire"),
    # Sockets of peers. Front ends import core, never the store.
    "frontends.http": (*NOUNS, "core", "refusals", "settings", "system", "wire"),
    "frontends.udp": (*NOUNS, "refusals", "settings", "system", "token_bucket", "wire"),
    "frontends.dht": (*NOUNS, "dht", "system", "wire"),
    "frontends.work": (*NOUNS, "core", "settings", "system", "wire"),
    # Coroutines that run until cancelled.
    "workers": (*NOUNS, "core", "dht", "geoip", "settings", "store", "token_bucket", "wire"),
    # The private server.
    "valkey": ("errors", "settings", "store", "system"),
    # What every process needs.
    "runtime": (*NOUNS, "dht", "settings", "store", "system", "valkey"),
    "doctor": (*NOUNS, "geoip", "settings", "store", "system"),
    # Operations of the API, the dashboard and the command line.
    "operations": (*NOUNS, "geoip", "store", "system", "wire", "workers.work"),
    # The admin port.
    "admin.http": (*NOUNS, "system"),
    "admin.world": ("geoip",),
    "admin.context": ("geoip", "runtime", "settings", "store", "system"),
    "admin.auth": (*NOUNS, "admin.context", "admin.http", "operations", "store", "token_bucket", "wire"),
    "admin.metrics": (*NOUNS, "admin.context", "runtime", "store"),
    "admin.pages": (
        *NOUNS,
        "admin",
        "doctor",
        "geoip",
        "operations",
        "refusals",
        "runtime",
        "settings",
        "store",
        "wire",
    ),
    "admin.api": (
        *NOUNS,
        "admin",
        "doctor",
        "geoip",
        "operations",
        "refusals",
        "runtime",
        "settings",
        "store",
        "wire",
    ),
    "admin.server": ("admin", "settings", "system", "wire"),
    # The program of volunteers, which runs beside their BitTorrent client. It knows no store.
    "volunteer": ("errors", "system", "wire"),
    # On top: the processes, and the command line.
    "app": (
        *NOUNS,
        "admin",
        "core",
        "dht",
        "frontends",
        "geoip",
        "runtime",
        "settings",
        "store",
        "system",
        "valkey",
        "wire",
        "workers",
    ),
    "cli": (
        *NOUNS,
        "app",
        "doctor",
        "geoip",
        "operations",
        "runtime",
        "settings",
        "store",
        "system",
        "valkey",
        "volunteer",
        "wire",
    ),
    "__main__": ("cli",),
}
"""Folder -> folders that its modules may import besides their own. ``store`` means all folders of the store."""

NEVER: dict[str, tuple[str, ...]] = {
    # socket is there for inet_pton, a pure function.
    "wire": ("asyncio", "aiohttp", "redis", "os", "time", "random", "secrets", "logging", "structlog"),
    "bittorrent": ("asyncio", "aiohttp", "redis", "socket", "os", "time", "random"),
    "dht": ("asyncio", "aiohttp", "redis", "socket", "os", "time", "secrets", "logging", "structlog"),
    "core.scoring": ("asyncio", "aiohttp", "redis", "socket", "os", "time", "random"),
    "wire.torrent_file": ("asyncio", "aiohttp", "redis", "socket", "time", "random"),
    "store.stats.slices": ("asyncio", "aiohttp", "redis", "socket", "os", "time", "random"),
}
"""Libraries that modules without side effects must not import: time and secrets are arguments."""

ONLY: dict[str, tuple[str, ...]] = {
    "redis": ("store",),
    "redis.exceptions": (
        "store",
        "workers",
        "app.service",
        "doctor.checks",
        "doctor.clock",
        "doctor.nodes",
        "doctor.replicas",
        "valkey.backup",
        "cli.commands",
        "admin",
        "operations.audit",
    ),
    "aiohttp": (
        "admin",
        "system.aiohttp_connection",
        "frontends",
        "workers.push.stathat",
        "workers.upstreams",
        "workers.webhooks",
        "volunteer.work_api",
    ),
    "libtorrent": ("volunteer.clients.internal",),
    "qbittorrentapi": ("volunteer.clients.qbittorrent",),
    "transmission_rpc": ("volunteer.clients.transmission",),
    "aiohttp_jinja2": ("admin",),
    "jinja2": ("admin", "frontends.work"),
    "prometheus_client": ("admin.metrics",),
    "geoip2": ("geoip",),
    "maxminddb": ("geoip",),
    "pydantic_settings": ("settings.sources",),
    "typer": ("cli.main", "cli.commands", "cli.progress", "cli.terminal"),
}
"""Library -> the only modules that may import it. The longest matching name decides."""

TESTED_BY: dict[str, str] = {
    "admin.api.batch_rows": "admin/api/test_batches.py",
    "admin.api.hit_and_runs": "admin/api/test_users.py",
    "admin.api.torrent_batches": "admin/api/test_batches.py",
    "admin.api.torrent_query": "admin/api/test_exports.py",
    "admin.api.user_batches": "admin/api/test_batches.py",
    "admin.api.user_query": "admin/api/test_users.py",
    "admin.api.work_blocked": "admin/api/test_work.py",
    "admin.api.work_claims": "admin/api/test_work.py",
    "admin.api.work_items": "admin/api/test_work.py",
    "admin.api.work_policy": "admin/api/test_work.py",
    "admin.api.work_results": "admin/api/test_work.py",
    "admin.pages.work_project": "admin/pages/test_work.py",
    "cli.commands.audit": "cli/test_audit.py",
    "cli.commands.reshard": "cli/test_reshard.py",
    "store.schema.table.places": "store/schema/test_places.py",
    "cli.commands.work": "cli/test_work.py",
    "cli.commands.work.claims": "cli/test_work.py",
    "cli.commands.work.drain": "cli/test_work.py",
    "cli.commands.work.group": "cli/test_work.py",
    "cli.commands.work.items": "cli/test_work.py",
    "cli.commands.work.policy": "cli/test_work.py",
    "cli.commands.work.projects": "cli/test_work.py",
    **dict.fromkeys(
        (f"store.resharding.{name}" for name in ("copying", "counts", "feed", "joined", "parts", "values")),
        "store/resharding/test_reshard.py",
    ),
    "doctor.clock": "doctor/test_checks.py",
    "doctor.nodes": "doctor/test_replicas.py",
    "store.sharding.counters": "store/sharding/test_parts.py",
    "store.sharding.dht_torrents": "store/sharding/test_parts.py",
    "store.sharding.leases": "workers/test_shard_leases.py",
    "store.sharding.maintenance": "store/sharding/test_parts.py",
    "store.sharding.peer_counts": "store/sharding/test_parts.py",
    "store.sharding.scores": "store/sharding/test_parts.py",
    "store.sharding.shards": "store/sharding/test_torrents.py",
    "store.sharding.unique_users": "store/sharding/test_parts.py",
    "store.sharding.user_copies": "store/sharding/test_users.py",
    "store.sharding.user_sums": "store/sharding/test_users.py",
    "store.work.finished": "admin/api/test_work.py",
    "store.work.statistics": "admin/api/test_work.py",
    "store.work.sizes": "workers/work/test_sizes.py",
    "store.work.demand": "store/work/test_policy.py",
    "store.work.facts": "store/sharding/test_work.py",
    "store.work.torrent_states": "workers/work/test_policy.py",
    "admin.pages": "admin/pages/test_pages.py",
    "admin.pages.history_data": "admin/pages/test_history.py",
    "admin.world": "admin/pages/test_world_data.py",
    "settings.http": "settings/test_model.py",
    "settings.announces": "settings/test_model.py",
    "store.client.reply_errors": "store/client/test_connection.py",
    "settings.store": "settings/test_model.py",
    "settings.users": "settings/test_model.py",
    "settings.udp": "settings/test_model.py",
    "settings.removed": "settings/test_sources.py",
    "frontends.http.handler": "frontends/http/test_server.py",
    "admin.context": "admin/test_server.py",
    "admin.auth.auth": "admin/test_security.py",
    "admin.api": "admin/api/test_openapi.py",
    "admin.api.contract": "admin/api/test_openapi.py",
    "admin.api.models": "admin/api/test_reading.py",
    "admin.http.headers": "admin/test_server.py",
    "admin.http.stopping": "admin/test_server.py",
    "admin.pages.rendering": "admin/pages/test_pages.py",
    "admin.metrics.exposition": "admin/metrics/test_metrics.py",
    "admin.metrics.store_readings": "admin/metrics/test_metrics.py",
    "admin.metrics.metric": "admin/metrics/test_metrics.py",
    "admin.metrics.sources": "admin/metrics/test_metrics.py",
    "admin.metrics.table": "admin/metrics/test_metrics.py",
    "__main__": "cli/test_main.py",
    "system.child_process": "valkey/test_server.py",
    "cli.commands.tokens": "cli/test_tokens.py",
    "store.schema.table.access": "store/schema/test_keys.py",
    "store.changes.webhooks": "workers/test_webhooks.py",
    "store.schema.table.changes": "store/schema/test_keys.py",
    "cli.commands": "cli/test_main.py",
    "cli.commands.options": "cli/test_every_field.py",
    "cli.commands.changes": "cli/test_changes.py",
    "cli.commands.clients": "cli/test_main.py",
    "cli.commands.denials": "cli/test_main.py",
    "cli.commands.doctor": "cli/test_main.py",
    "cli.commands.geoip": "cli/test_geoip.py",
    "cli.commands.exports": "cli/test_imports.py",
    "cli.commands.imports": "cli/test_imports.py",
    "cli.commands.jobs": "cli/test_jobs.py",
    "system.private_file": "cli/test_imports.py",
    "cli.progress": "cli/test_imports.py",
    "cli.commands.backups": "valkey/test_backup.py",
    "cli.commands.completion": "cli/test_commands.py",
    "cli.commands.health": "cli/test_commands.py",
    "cli.commands.maintenance": "cli/test_maintenance.py",
    "cli.commands.paging": "cli/test_main.py",
    "cli.commands.scores": "cli/test_commands.py",
    "cli.commands.top": "cli/test_top.py",
    "cli.files": "cli/test_imports.py",
    "cli.files.checkpoint": "cli/test_import_mapping.py",
    "cli.files.mapping": "cli/test_import_mapping.py",
    "cli.files.reading": "cli/test_imports.py",
    "cli.files.rows": "cli/test_imports.py",
    "cli.files.writing": "cli/test_imports.py",
    "store.schema.folding": "store/torrents/test_search.py",
    "store.users.fields": "store/users/test_importing.py",
    "store.sharding.removals": "workers/test_removals.py",
    "store.schema.table": "store/schema/test_keys.py",
    "store.torrents.name_index": "store/torrents/test_search.py",
    "store.schema.table.cleanup": "store/maintenance/test_maintenance.py",
    "store.torrents.records": "store/torrents/test_torrents.py",
    "store.swarms.codec": "store/swarms/test_swarms.py",
    "store.swarms.peer_counts": "store/swarms/test_sweep.py",
    "store.swarms.rules": "store/users/test_accounting.py",
    "store.swarms.reaping": "store/swarms/test_sweep.py",
    "store.schema.table.stats": "store/schema/test_keys.py",
    "store.schema.table.jobs": "store/schema/test_keys.py",
    "store.schema.table.matching": "store/maintenance/test_maintenance.py",
    "store.schema.table.row": "store/schema/test_keys.py",
    "store.schema.table.swarms": "store/schema/test_keys.py",
    "store.schema.table.unique_users": "store/schema/test_keys.py",
    "store.schema.table.users": "store/schema/test_keys.py",
    "store.schema.multipliers": "store/users/test_rules.py",
    "core.work": "frontends/work/test_calls.py",
    "core.work_figures": "frontends/work/test_public.py",
    "core.work_holdings": "frontends/work/test_holdings.py",
    "core.work_limits": "frontends/work/test_server.py",
    "frontends.work.connections": "frontends/work/test_server.py",
    "frontends.work.feed": "frontends/work/test_public.py",
    "frontends.work.links": "frontends/work/test_calls.py",
    "frontends.work.replies": "frontends/work/test_calls.py",
    "frontends.work.requests": "frontends/work/test_calls.py",
    "frontends.work.rendering": "frontends/work/test_public.py",
    "settings.work": "frontends/work/test_server.py",
    "settings.dht": "app/test_dht.py",
    "store.schema.table.dht": "store/schema/test_keys.py",
    "store.schema.table.work": "store/schema/test_keys.py",
    "store.work.blocks": "store/work/test_refusals.py",
    "store.work.leaderboard": "store/work/test_log.py",
    "store.work.paging": "store/work/test_projects.py",
    "store.work.items": "store/work/test_projects.py",
    "store.work.project_fields": "store/work/test_projects.py",
    "store.work.records": "store/work/test_claims.py",
    "store.work.work": "store/work/test_claims.py",
    "dht.samples": "dht/test_responder.py",
    "app.dht_client": "cli/test_dht.py",
    "cli.commands.dht": "cli/test_dht.py",
    "cli.commands.menu": "cli/test_main.py",
    "cli.commands.multipliers": "cli/test_multipliers.py",
    "cli.commands.freeleech": "cli/test_freeleech.py",
    "cli.commands.serve": "app/test_service.py",
    "cli.commands.settings": "cli/test_main.py",
    "cli.commands.stats": "cli/test_stats.py",
    "cli.commands.torrents": "cli/test_main.py",
    "cli.commands.uniques": "cli/test_unique_users.py",
    "cli.commands.users": "cli/test_main.py",
    "cli.commands.waiting": "cli/test_jobs.py",
    "cli.commands.work.seed": "cli/test_seed.py",
    "volunteer.clients": "volunteer/test_clients.py",
    "volunteer.clients.internal": "volunteer/test_clients.py",
    "volunteer.clients.opening": "cli/test_seed.py",
    "volunteer.clients.qbittorrent": "volunteer/test_clients.py",
    "volunteer.clients.transmission": "volunteer/test_clients.py",
    "volunteer.rules": "volunteer/test_loop.py",
    "volunteer.work_api": "volunteer/test_loop.py",
    "volunteer.state": "volunteer/test_loop.py",
    "store.stats.count": "store/stats/test_counters.py",
    "store.stats.refusal_samples": "workers/test_refusal_samples.py",
    "store.stats.size_samples": "workers/test_size_samples.py",
    "valkey.data_directory": "valkey/test_server.py",
    "doctor.finding": "doctor/test_checks.py",
    "doctor.server_checks": "doctor/test_checks.py",
    "doctor.settings_checks": "doctor/test_checks.py",
    "errors": "test_bittorrent.py",
    "system.listeners": "frontends/http/test_listeners.py",
    "runtime.context": "app/test_service.py",
    "app.join_events": "e2e/test_background.py",
    "core.counter_names": "core/test_announce.py",
    "core.refusals": "core/test_announce.py",
    "core.warning_messages": "core/test_announce.py",
    "core.intervals": "core/test_announce.py",
    "core.scrape": "core/test_announce.py",
    "settings.limits": "core/test_rate_limits.py",
    "store.access.rate_limits": "core/test_rate_limits.py",
    "workers.rate_limits": "core/test_rate_limits.py",
    "system.event_loop": "app/test_service.py",
    "settings.background": "settings/test_model.py",
    "app.start": "app/test_service.py",
    "valkey.opening": "app/test_service.py",
    "runtime.store": "app/test_service.py",
    "frontends.http.aiohttp_messages": "frontends/http/test_server.py",
    "cli.terminal": "cli/test_main.py",
    "workers.upstreams.protocol": "workers/test_upstreams.py",
    "workers.upstreams.upstream": "workers/test_upstreams.py",
    "app.web": "app/test_service.py",
    "operations.service": "admin/api/test_jobs.py",
    "operations.users": "admin/api/test_users.py",
    "store.users.hit_and_runs": "store/users/test_hit_and_runs.py",
    "app.web_process": "app/test_web_processes.py",
    "workers.heartbeat": "app/test_web_processes.py",
    "workers.push.sender": "workers/push/test_stathat.py",
}
"""Modules whose test file has another name."""

FUNCTION_LINES = 60
FILE_LINES = 500
LARGER: dict[str, str] = {
    "tracker/store/lua/announce/announce.lua": "its head is the reference of all arguments and answers",
    "tracker/store/lua/announce/credit.lua": "one step of an announce is one file",
}
"""Files and functions (``path`` or ``path:name``) beyond the limits, each with the reason."""


@cache
def modules() -> list[str]:
    """Returns dotted name without ``tracker.`` -> path of every module and package."""
    return sorted(name for path in PACKAGE.rglob("*.py") if (name := _name(path)))


def _name(path: Path) -> str:
    return (
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")
    )


def path_of(module: str) -> Path:
    base = PACKAGE.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(module: str) -> Iterator[str]:
    """Returns the full names of all imports in a module, also inside functions."""
    for node in ast.walk(tree_of(path_of(module))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import in line {node.lineno}"
            source = node.module or ""
            for alias in node.names:
                inside = f"{source}.{alias.name}"
                is_module = source.split(".")[0] == "tracker" and inside.removeprefix("tracker.") in modules()
                yield inside if is_module else source


def covers(place: str, module: str) -> bool:
    return module == place or module.startswith(f"{place}.")


def row_of(module: str) -> str | None:
    """Returns the row of MAY_IMPORT for ``module``: the longest matching name."""
    return max((row for row in MAY_IMPORT if covers(row, module)), key=len, default=None)


def ours(module: str) -> set[str]:
    """The modules of this package that ``module`` imports."""
    return {name.removeprefix("tracker.") for name in imports(module) if name.startswith("tracker.")}


def test_every_module_is_in_a_row_and_imports_what_its_row_allows() -> None:
    faults = []
    for module in modules():
        row = row_of(module)
        if row is None:
            if path_of(module).read_text(encoding="utf-8").strip():
                faults.append(f"tracker/{module} is in no row of MAY_IMPORT")
            continue
        for name in ours(module):
            if not covers(row, name) and not any(covers(place, name) for place in MAY_IMPORT[row]):
                faults.append(f"{module} imports {name}, which the row {row} does not allow")
    assert not faults, "\n".join(faults)


def test_rows_import_each_other_in_one_direction() -> None:
    found: dict[str, set[str]] = {row: set() for row in MAY_IMPORT}
    for module in modules():
        row = row_of(module)
        if row is not None:
            found[row] |= {other for name in ours(module) if (other := row_of(name)) not in (None, row)}
    assert tuple(TopologicalSorter(found).static_order())  # raises CycleError for a cycle


def misplaced_libraries(module: str) -> Iterator[str]:
    banned = {name for place, names in NEVER.items() if covers(place, module) for name in names}
    for imported in imports(module):
        if any(covers(name, imported) for name in banned):
            yield f"{module} is pure: no {imported}"
        restricted = [name for name in ONLY if covers(name, imported)]
        places = ONLY[max(restricted, key=len)] if restricted else (module,)
        if not any(covers(place, module) for place in places):
            yield f"{module} imports {imported}: only {places} may"


def test_libraries_are_imported_only_where_allowed() -> None:
    assert not [fault for module in modules() for fault in misplaced_libraries(module)]


def strings_in_code(tree: ast.Module) -> Iterator[str]:
    """Yields every string except docstrings and other strings that are statements."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in prose:
            yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def test_only_the_key_table_builds_keys() -> None:
    """The prefix is a setting, so a literal ``t:`` would be wrong with another prefix."""
    free = [m for m in modules() if m != "settings.model" and not covers("store.schema", m)]
    literals = ((module, text) for module in free for text in strings_in_code(tree_of(path_of(module))))
    assert not [f"{module}: {text}" for module, text in literals if re.match(r"t:(?!/)\S", text)]


def test_scripts_use_the_given_prefix_and_have_a_description() -> None:
    """A script gets the prefix of its keys as a parameter. Its first comment says what it does."""
    scripts = {path.name: path.read_text("utf-8") for path in (PACKAGE / "store" / "lua").rglob("*.lua")}
    code = {name: re.sub(r"--.*", "", text) for name, text in scripts.items()}
    assert not [name for name, text in code.items() if re.search(r"""(?<!\.\. )["']t:""", text)]
    assert not [name for name, text in scripts.items() if not text.startswith(("--", "#!lua"))]


def test_no_command_walks_all_keys() -> None:
    """T20: lists are read from index sets, never with KEYS."""
    for script in (PACKAGE / "store" / "lua").rglob("*.lua"):
        assert not re.search(r"""call\s*\(\s*["']KEYS["']""", script.read_text("utf-8"), re.IGNORECASE), (
            script
        )
    for module in modules():
        for node in ast.walk(tree_of(path_of(module))):
            if isinstance(node, ast.Call):
                assert not _asks_for_all_keys(node), f"{module} line {node.lineno}"


def _asks_for_all_keys(call: ast.Call) -> bool:
    """``client.keys("pattern")`` or ``client.execute_command("KEYS", …)``; a dict's ``keys()`` takes nothing."""
    by_method = isinstance(call.func, ast.Attribute) and call.func.attr == "keys" and bool(call.args)
    first = call.args[0] if call.args else None
    by_name = isinstance(first, ast.Constant) and str(first.value).upper() == "KEYS"
    return by_method or by_name


SENDS_COMMANDS = ("store", "doctor", "valkey.backup")
"""Modules outside the store that send Redis commands: the doctor and the backup read the server's state."""
COMMAND_METHODS = frozenset(
    {"command", "pipeline", "direct", "execute_command", "evalsha", "eval", "script_load"}
)


def sent_commands(module: str) -> Iterator[str]:
    """Yields the lines that send a Redis command: calls of a connection's method, except typer's decorators."""
    tree = tree_of(path_of(module))
    decorators = {
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for each in node.decorator_list
    }
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or id(node) in decorators
        ):
            continue
        if node.func.attr in COMMAND_METHODS and module != "cli.commands.menu":  # typer's command()
            yield f"{module} line {node.lineno}: {node.func.attr}()"


def test_redis_commands_are_sent_in_the_store_only() -> None:
    others = [m for m in modules() if not any(covers(place, m) for place in SENDS_COMMANDS)]
    assert not [place for module in others for place in sent_commands(module)]
    assert any(True for module in modules() if covers("store", module) for _ in sent_commands(module))


def store_classes() -> set[str]:
    """Returns the classes of the store whose constructor takes a connection or scripts."""
    return {
        node.name
        for module in modules()
        if covers("store", module) and not covers("store.client", module)
        for node in ast.walk(tree_of(path_of(module)))
        if isinstance(node, ast.ClassDef)
        and node.name not in ("Store", "Search", "Memory", "Series", "TorrentStates")
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        if {arg.arg for arg in method.args.args} & {"connection", "scripts"}
    }


def own_classes(module: str) -> set[str]:
    """Returns the classes that a module defines. A model of the API may have the same name as a store class."""
    return {node.name for node in ast.walk(tree_of(path_of(module))) if isinstance(node, ast.ClassDef)}


def test_store_classes_are_constructed_in_one_place() -> None:
    """In store/store.py, so that a process has one of each for each shard. Parts over several shards build those of the
    shards. Search, Memory and TorrentStates are built by the class that uses them, and Series is a base."""
    classes = store_classes()
    assert {"Swarms", "Torrents", "Users", "Counters", "Jobs"} <= classes
    built = [
        (node.func.id, module)
        for module in modules()
        for node in ast.walk(tree_of(path_of(module)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in classes | {"Scripts", "Keys", "Store"} and node.func.id not in own_classes(module)
    ]
    assert {module for _, module in built if not covers("store.sharding", module)} == {
        "store.store",
        "runtime.store",
    }
    assert [name for name, module in built if module == "runtime.store"] == ["Store"]
    assert {name for name, module in built if module == "store.store"} == classes | {"Scripts", "Keys"}


def lone_tasks(module: str) -> Iterator[str]:
    """Yields the lines that start a task outside a task group. Nothing would report an error of such a task."""
    for node in ast.walk(tree_of(path_of(module))):
        if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future"):
            owner = node.value
            named = isinstance(owner, ast.Name) and owner.id in ("asyncio", "loop")
            if named or isinstance(owner, ast.Call):
                yield f"{module} line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            names = {alias.name for alias in node.names} & {"create_task", "ensure_future"}
            yield from (f"{module} imports {name}" for name in names)


def test_tasks_are_started_in_task_groups_only() -> None:
    assert not [place for module in modules() for place in lone_tasks(module)]


def has_test_file(module: str) -> bool:
    """tests/x/test_y.py, or several test_y_….py, for tracker/x/y.py."""
    if not path_of(module).read_text(encoding="utf-8").strip():
        return True
    if module in TESTED_BY:
        return (ROOT / "tests" / TESTED_BY[module]).exists()
    folder, _, name = module.rpartition(".")
    places = (ROOT / "tests" / folder.replace(".", "/"), ROOT / "tests" / "e2e")
    return any(True for place in places for _ in place.glob(f"test_{name}*.py"))


def test_each_module_has_a_test_file() -> None:
    assert not [module for module in modules() if not has_test_file(module)]


def test_the_tables_name_only_existing_modules() -> None:
    assert not {place for place in MAY_IMPORT if not path_of(place).exists()}
    assert all(path_of(module).exists() for module in TESTED_BY)
    assert all((ROOT / name.partition(":")[0]).exists() for name in LARGER)


def sizes() -> Iterator[tuple[str, int, int]]:
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.lua")]):
        name = str(path.relative_to(ROOT))
        yield name, len(path.read_text(encoding="utf-8").splitlines()), FILE_LINES
        if path.suffix == ".py":
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{name}:{node.name}", (node.end_lineno or 0) - node.lineno + 1, FUNCTION_LINES


def test_files_and_functions_have_limited_size() -> None:
    """Split a larger one, or add it to LARGER with the reason."""
    large = {name: lines for name, lines, limit in sizes() if lines > limit and name not in LARGER}
    assert not large
