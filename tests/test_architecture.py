"""The shape of the code, held by tests: who may import whom, what only one place does, how large things get.

The tables below are the documentation; a change of them is a decision, and says so in its commit.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tracker"

NOUNS = ("bittorrent", "errors")
STORE_FOUNDATIONS = (
    "store.connection",
    "store.figures",
    "store.keys",
    "store.key_table",
    "store.months",
    "store.scripts",
)

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # Nothing of ours: everybody may lean on these.
    "errors": (),
    "logs": (),
    "tracker_url": (),
    "setting_types": ("tracker_url",),
    "settings": ("setting_types", "settings_background", "settings_limits"),
    "settings_limits": ("setting_types",),
    "settings_background": ("setting_types",),
    "scoring": (),
    "geoip": (),
    "child": (),
    "counting": (),
    "telemetry": (),
    "descriptors": (),
    "listeners": ("errors", "setting_types"),
    # Nouns, and bytes <-> nouns. A module of wire may use wire.compact, and no other sibling.
    "bittorrent": ("errors",),
    "torrent_file": NOUNS,
    "wire": NOUNS,
    "wire.http": (*NOUNS, "wire.compact"),
    "wire.query": (*NOUNS, "wire.compact"),
    "wire.replies": (*NOUNS, "wire.compact"),
    "wire.udp": (*NOUNS, "wire.compact"),
    "wire.proxy": (*NOUNS, "wire.compact"),
    # Where settings come from, and how people read them.
    "settings_sources": ("errors", "settings"),
    "settings_page": ("reloading", "settings", "tracker_url"),
    # The store never sees wire, settings or a front end; its parts share keys, scripts and the connection only.
    "store": (*NOUNS, "counting", *STORE_FOUNDATIONS),
    "store.key_table": ("store.key_table",),
    "store.key_table.row": (),
    "store.maintenance": (*STORE_FOUNDATIONS, "store.listing"),
    "store.listing": STORE_FOUNDATIONS,
    "store.search": (*NOUNS, *STORE_FOUNDATIONS, "store.listing"),
    "store.batches": NOUNS,
    "store.swarms": (
        *NOUNS,
        *STORE_FOUNDATIONS,
        "store.batches",
        "store.listing",
        "store.swarm_rules",
        "store.update",
    ),
    "store.swarm_rules": (),
    "store.reaping": (*STORE_FOUNDATIONS, "bittorrent", "store.clock", "store.listing", "store.swarm_rules"),
    "store.secret": STORE_FOUNDATIONS,
    "store.update": NOUNS,
    "store.connection": (*NOUNS, "store.line", "store.sentinel", "store.server_url", "store.subscription"),
    "store.sentinel": ("store.server_url",),
    "store.server_url": ("errors",),
    "store.line": NOUNS,
    "store.subscription": (*NOUNS, "store.line"),
    "store.torrent": (*NOUNS, "store.figures"),
    "store.torrents": (
        *NOUNS,
        *STORE_FOUNDATIONS,
        "store.figures",
        "store.listing",
        "store.search",
        "store.torrent",
    ),
    "store.slices": (),
    "store.figures": (),
    "store.months": (),
    "store.series": (*NOUNS, *STORE_FOUNDATIONS, "store.slices"),
    "store.counters": (*NOUNS, *STORE_FOUNDATIONS, "store.series", "store.slices"),
    "store.jobs": (*NOUNS, "counting", *STORE_FOUNDATIONS, "store.job"),
    "store.uniques": (*NOUNS, *STORE_FOUNDATIONS, "store.metrics"),
    # Decisions.
    "refusals": (*NOUNS, "store"),
    "rules": ("settings", "store"),
    "reloading": ("errors", "settings", "settings_limits"),
    "limits": (*NOUNS, "settings_limits", "store"),
    "scrape": (*NOUNS, "limits", "refusals", "store"),
    "announce": (*NOUNS, "limits", "refusals", "rules", "scrape", "settings", "store"),
    # Front ends never see the store; the parts of the HTTP one know each other in one direction.
    "bounded_heads": (),
    "frontends": (*NOUNS, "settings", "announce", "wire", "listeners"),
    "frontends.crowd": ("bittorrent", "descriptors", "settings"),
    "frontends.connection": (
        *NOUNS,
        "bounded_heads",
        "settings",
        "wire",
        "frontends.crowd",
        "frontends.exchange",
    ),
    "frontends.heads": ("settings", "frontends.exchange"),
    "frontends.gate": ("listeners",),
    "frontends.front": (*NOUNS, "settings", "wire", "frontends.connection", "frontends.exchange"),
    "frontends.doors": (
        "bittorrent",
        "frontends.connection",
        "frontends.front",
        "frontends.gate",
        "frontends.heads",
    ),
    "frontends.door": (
        *NOUNS,
        "wire",
        "frontends.connection",
        "frontends.doors",
        "frontends.exchange",
        "frontends.heads",
    ),
    "frontends.http": (*NOUNS, "settings", "wire", "frontends", "listeners", "loops"),
    # Loops that run until cancelled.
    "workers": (*NOUNS, "counting", "settings", "store", "scoring", "geoip"),
    # Two receivers of figures, and what both have in common.
    "workers.stathat": (*NOUNS, "counting", "settings", "store", "workers.figures"),
    "workers.statsd": (*NOUNS, "counting", "settings", "store", "workers.figures"),
    # What other trackers are asked, in the words of the wire.
    "workers.upstreams": (*NOUNS, "settings", "tracker_url", "wire", "workers.upstreams"),
    # People: pages, API and metrics on a port of their own, out of the same stores as the command line.
    "admin": (
        *NOUNS,
        "admin",
        "bounded_heads",
        "doctor",
        "geoip",
        "listeners",
        "settings",
        "settings_page",
        "store",
        "stores",
        "telemetry",
        "torrent_file",
        "wire.compact",
        "wire.peer_id",
    ),
    "admin.desk": ("geoip", "settings", "stores", "telemetry"),
    # The private store.
    "data_directory": ("errors",),
    "server_memory": (),
    "valkey": ("errors", "child", "data_directory", "server_memory"),
    # The register as files.
    "register": (*NOUNS, "register", "torrent_file"),
    "progress": (),
    "private_file": (),
    # Copies of the private store.
    "backup": ("errors", "data_directory", "private_file", "store.connection", "valkey"),
    # On top: wiring, then words.
    "loops": (),
    "store_server": ("errors", "settings", "valkey"),
    "stores": ("settings", "settings_page", "store", "store_server"),
    "foundation": ("loops", "reloading", "rules", "settings", "store", "telemetry"),
    "joins": ("bittorrent", "foundation", "geoip", "loops", "settings", "store", "wire.peer_id", "workers"),
    "background": (
        "bittorrent",
        "foundation",
        "loops",
        "scoring",
        "settings",
        "store",
        "stores",
        "workers",
    ),
    # What answers peers: in the only process, or in each web process of several.
    "web": (
        "announce",
        "foundation",
        "frontends",
        "joins",
        "limits",
        "listeners",
        "loops",
        "settings",
        "store",
        "workers",
    ),
    "workforce": ("child", "errors", "listeners", "logs", "loops", "reloading", "settings", "telemetry"),
    "web_process": (
        "errors",
        "foundation",
        "joins",
        "listeners",
        "logs",
        "loops",
        "reloading",
        "stores",
        "telemetry",
        "web",
        "workforce",
        "readiness",
    ),
    "service": (
        *NOUNS,
        "admin",
        "background",
        "foundation",
        "joins",
        "listeners",
        "logs",
        "loops",
        "reloading",
        "settings",
        "settings_page",
        "store",
        "store_server",
        "stores",
        "telemetry",
        "web",
        "workers",
        "workforce",
        "readiness",
    ),
    # What a start needs before its store loads; all the rest is imported meanwhile.
    "start": ("reloading", "service", "settings", "store_server"),
    "readiness": ("store", "workers"),
    "finding": (),
    "doctor_failover": ("finding", "store"),
    "doctor": (*NOUNS, "doctor_failover", "finding", "geoip", "settings", "store"),
    "terminal": ("service", "store.tokens"),
    "commands": (
        *NOUNS,
        "admin.operations",
        "commands",
        "descriptors",
        "doctor",
        "geoip",
        "backup",
        "logs",
        "loops",
        "private_file",
        "progress",
        "register",
        "service",
        "settings",
        "settings_page",
        "settings_sources",
        "start",
        "store",
        "stores",
        "terminal",
        "torrent_file",
    ),
    "commands.top": ("commands", "errors", "stores", "terminal", "valkey"),
    "cli": ("commands", "terminal"),
    "__main__": ("cli",),
}
"""By module or, for the modules not named themselves, by package. A module in neither has no place yet."""

NEVER: dict[str, tuple[str, ...]] = {
    # socket is there for inet_pton, a pure function.
    "wire": ("asyncio", "aiohttp", "redis", "os", "time", "random", "secrets", "logging", "structlog"),
    "bittorrent": ("asyncio", "aiohttp", "redis", "socket", "os", "time", "random"),
    "scoring": ("asyncio", "aiohttp", "redis", "socket", "os", "time", "random"),
    "torrent_file": ("asyncio", "aiohttp", "redis", "socket", "time", "random"),
    "store.slices": ("asyncio", "aiohttp", "redis", "socket", "os", "time", "random"),
}
"""Libraries that a pure module has no use for: time and secrets are arguments."""

ONLY: dict[str, tuple[str, ...]] = {
    "redis": ("store",),
    "redis.exceptions": ("store", "workers", "service", "doctor", "backup", "commands", "admin"),
    "aiohttp": ("admin", "bounded_heads", "frontends", "workers.stathat", "workers.upstreams"),
    "aiohttp_jinja2": ("admin",),
    "jinja2": ("admin",),
    "prometheus_client": ("admin.metrics",),
    "geoip2": ("geoip",),
    "maxminddb": ("geoip",),
    "pydantic_settings": ("settings_sources",),
    "typer": ("cli", "commands", "progress", "terminal"),
}
"""Libraries that only these may import; the longest name that fits an import decides."""

TESTED_BY: dict[str, str] = {
    "bounded_heads": "admin/test_connections.py",
    "frontends.front": "frontends/test_http.py",
    "admin.desk": "admin/test_server.py",
    "admin.auth": "admin/test_security.py",
    "admin.api": "admin/api/test_openapi.py",
    "admin.api.contract": "admin/api/test_openapi.py",
    "admin.api.models": "admin/api/test_reading.py",
    "admin.headers": "admin/test_server.py",
    "admin.stopping": "admin/test_server.py",
    "admin.pages.rendering": "admin/test_pages.py",
    "admin.metrics.exposition": "admin/test_metrics.py",
    "admin.metrics.reading": "admin/test_metrics.py",
    "admin.metrics.table": "admin/test_metrics.py",
    "__main__": "test_cli.py",
    "child": "test_valkey.py",
    "commands.tokens": "test_commands_tokens.py",
    "store.key_table.access": "store/test_keys.py",
    "commands": "test_cli.py",
    "commands.clients": "test_cli.py",
    "commands.denials": "test_cli.py",
    "commands.doctor": "test_cli.py",
    "commands.geoip": "test_commands_geoip.py",
    "commands.exports": "test_commands_imports.py",
    "commands.imports": "test_commands_imports.py",
    "commands.jobs": "test_commands_jobs.py",
    "private_file": "test_commands_imports.py",
    "progress": "test_commands_imports.py",
    "commands.backups": "test_backup.py",
    "commands.completion": "test_commands_more.py",
    "commands.health": "test_commands_more.py",
    "commands.maintenance": "test_commands_maintenance.py",
    "commands.paging": "test_cli.py",
    "commands.scores": "test_commands_more.py",
    "commands.top": "test_commands_top.py",
    "register": "test_commands_imports.py",
    "register.files": "test_commands_imports.py",
    "register.rows": "test_commands_imports.py",
    "register.writing": "test_commands_imports.py",
    "store.accounts": "test_commands_imports.py",
    "store.key_table": "store/test_keys.py",
    "store.listing": "store/test_search.py",
    "store.key_table.tidiness": "store/test_maintenance.py",
    "store.torrent": "store/test_torrents.py",
    "store.update": "store/test_swarms.py",
    "store.swarm_rules": "store/test_accounting.py",
    "store.reaping": "store/test_sweep.py",
    "store.key_table.figures": "store/test_keys.py",
    "store.key_table.jobs": "store/test_keys.py",
    "store.key_table.matching": "store/test_maintenance.py",
    "store.key_table.row": "store/test_keys.py",
    "store.key_table.swarms": "store/test_keys.py",
    "store.key_table.uniques": "store/test_keys.py",
    "store.key_table.users": "store/test_keys.py",
    "commands.menu": "test_cli.py",
    "commands.serve": "test_service.py",
    "commands.settings": "test_cli.py",
    "commands.stats": "test_commands_stats.py",
    "commands.torrents": "test_cli.py",
    "commands.uniques": "test_commands_uniques.py",
    "commands.users": "test_cli.py",
    "commands.waiting": "test_commands_jobs.py",
    "counting": "store/test_counters.py",
    "data_directory": "test_valkey.py",
    "finding": "test_doctor.py",
    "errors": "test_bittorrent.py",
    "listeners": "frontends/test_listeners.py",
    "foundation": "test_service.py",
    "frontends.doors": "frontends/test_door.py",
    "joins": "e2e/test_background.py",
    "refusals": "test_announce.py",
    "rules": "test_announce.py",
    "scrape": "test_announce.py",
    "settings_limits": "test_limits.py",
    "store.offences": "test_limits.py",
    "workers.limits": "test_limits.py",
    "loops": "test_service.py",
    "settings_background": "test_settings.py",
    "start": "test_service.py",
    "store_server": "test_service.py",
    "stores": "test_service.py",
    "frontends.exchange": "frontends/test_http.py",
    "terminal": "test_cli.py",
    "workers.upstreams.answers": "workers/test_upstreams.py",
    "workers.upstreams.upstream": "workers/test_upstreams.py",
    "web": "test_service.py",
    "web_process": "test_workforce.py",
    "workers.figures": "workers/test_stathat.py",
}
"""Modules whose test file does not carry their name."""

FUNCTION_LINES = 60
FILE_LINES = 400
LARGER: dict[str, str] = {}
"""Files and functions (``path`` or ``path:name``) beyond the limits, each with the reason."""


@cache
def modules() -> list[str]:
    """Every module by dotted name without ``tracker.``; packages by their own name."""
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
    """Full names of what a module imports, wherever in it: ``tracker.x`` for ours."""
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


def allowed(module: str) -> tuple[str, ...] | None:
    places = [place for place in MAY_IMPORT if covers(place, module)]
    return MAY_IMPORT[max(places, key=len)] if places else None


@pytest.mark.parametrize("module", modules())
def test_a_module_has_a_place_and_imports_downwards_only(module: str) -> None:
    may = allowed(module)
    assert may is not None, f"tracker/{module} is in no row of MAY_IMPORT: where does it belong?"
    ours = {name.removeprefix("tracker.") for name in imports(module) if name.startswith("tracker.")}
    assert not {name for name in ours if not any(covers(place, name) for place in may)}


@pytest.mark.parametrize("module", modules())
def test_libraries_stay_where_they_belong(module: str) -> None:
    banned = {name for place, names in NEVER.items() if covers(place, module) for name in names}
    for imported in imports(module):
        assert not any(covers(name, imported) for name in banned), f"{module} is pure: no {imported}"
        restricted = [name for name in ONLY if covers(name, imported)]
        if restricted:
            places = ONLY[max(restricted, key=len)]
            assert any(covers(place, module) for place in places), f"only {places} may import {imported}"


def strings_in_code(tree: ast.Module) -> Iterator[str]:
    """Every string that is not a docstring or a bare text between statements."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in prose:
            yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")


@pytest.mark.parametrize(
    "module",
    [m for m in modules() if m not in ("store.keys", "settings") and not covers("store.key_table", m)],
)
def test_only_the_key_table_builds_keys(module: str) -> None:
    """The prefix is a setting: a literal ``t:`` would be wrong on every server that shares its Redis."""
    built = [text for text in strings_in_code(tree_of(path_of(module))) if re.match(r"t:(?!/)\S", text)]
    assert not built


@pytest.mark.parametrize(
    "script", sorted((PACKAGE / "store" / "lua").glob("*.lua")), ids=lambda path: path.name
)
def test_scripts_name_no_prefix_and_say_what_they_are(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    code = re.sub(r"--.*", "", text)
    assert not re.search(r"""(?<!\.\. )["']t:""", code), (
        "a key begins with the prefix that the script was given"
    )
    assert text.startswith(("--", "#!lua")), "the head says what it does"


def test_no_command_walks_all_keys() -> None:
    """T20: lists come from index sets, never from KEYS."""
    for script in (PACKAGE / "store" / "lua").glob("*.lua"):
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


@pytest.mark.parametrize("module", modules())
def test_tasks_are_started_in_task_groups_only(module: str) -> None:
    """Nobody hears the error of a lone task."""
    for node in ast.walk(tree_of(path_of(module))):
        if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future"):
            owner = node.value
            loop = isinstance(owner, ast.Call) or (
                isinstance(owner, ast.Name) and owner.id in ("asyncio", "loop")
            )
            assert not loop, f"line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            assert not {alias.name for alias in node.names} & {"create_task", "ensure_future"}


@pytest.mark.parametrize("module", modules())
def test_a_module_has_a_test_file(module: str) -> None:
    """tests/x/test_y.py, or several test_y_….py, for tracker/x/y.py."""
    if not path_of(module).read_text(encoding="utf-8").strip():
        return
    if module in TESTED_BY:
        assert (ROOT / "tests" / TESTED_BY[module]).exists()
        return
    folder, _, name = module.rpartition(".")
    found = [*(ROOT / "tests" / folder.replace(".", "/")).glob(f"test_{name}*.py")]
    found += (ROOT / "tests" / "e2e").glob(f"test_{name}*.py")
    assert found, f"tests/{folder.replace('.', '/')}/test_{name}.py is missing"


def test_the_tables_name_nothing_that_is_gone() -> None:
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


def test_files_and_functions_are_small_enough_to_hold_in_the_head() -> None:
    """Stop and think: split it, or say in LARGER why it is better whole."""
    large = {name: lines for name, lines, limit in sizes() if lines > limit and name not in LARGER}
    assert not large
