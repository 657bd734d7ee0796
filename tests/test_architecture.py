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

from tests.syntax import nodes_of, tree_of
from tools.nearest_tests import HELD_BY, TESTS, nearest_tests

pytestmark = pytest.mark.once
ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tracker"

NOUNS = ("bittorrent", "errors", "names")

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # Basic types. All modules may import them.
    "errors": (),
    "names": (),
    "bittorrent": ("errors",),
    # What announces and scrapes are refused with.
    "refusals": ("errors",),
    # Parsing and encoding, without side effects.
    "wire": (*NOUNS, "refusals"),
    "geoip": ("system.logger",),
    "token_bucket": (),
    # The operating system, and the settings.
    "system": (*NOUNS, "wire"),
    "settings": (*NOUNS, "system.logger", "wire"),
    # All Redis commands. The change feed and lists of peers have readable endpoints and programs; reads of the main
    # prefix for unknown passkeys have a rate.
    "store": (*NOUNS, "system.logger", "token_bucket", "wire.endpoint", "wire.peer_id"),
    # Decisions of a DHT node: no sockets, no store, no clock.
    "dht": (*NOUNS, "token_bucket", "wire"),
    # Decisions on announces and scrapes.
    "core": (*NOUNS, "refusals", "settings", "store", "system.logger", "wire"),
    # Sockets of peers. Front ends import core, never the store.
    "frontends": (*NOUNS, "core", "dht", "refusals", "settings", "system", "token_bucket", "wire"),
    # Coroutines that run until cancelled.
    "workers": (
        *NOUNS,
        "core",
        "dht",
        "geoip",
        "settings",
        "store",
        "system.http_client",
        "system.logger",
        "token_bucket",
        "wire",
    ),
    # The private server.
    "valkey": ("errors", "settings", "store", "system"),
    # What every process needs.
    "runtime": (*NOUNS, "settings", "store", "system", "valkey", "workers.site.mapping"),
    "doctor": (*NOUNS, "geoip", "refusals", "settings", "store", "system", "wire.endpoint", "workers.site"),
    # Operations of the API, the dashboard and the command line.
    "operations": (*NOUNS, "geoip", "store", "system", "wire", "workers.work"),
    # The admin port.
    "admin": (
        *NOUNS,
        "doctor",
        "geoip",
        "operations",
        "refusals",
        "runtime",
        "settings",
        "store",
        "system",
        "token_bucket",
        "wire",
    ),
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
        "workers.geoip_update",
        "workers.site",
    ),
}
"""Folder -> folders that its modules may import besides their own."""

INSIDE: dict[str, tuple[str, ...]] = {
    # The schema and the client, then what knows shards, then the subjects.
    "store": (
        "schema client",
        "sharding",
        "stats access changes torrents dht",
        "jobs swarms",
        "users work",
        "layout",
        "store",
        "maintenance resharding",
    ),
    "frontends": ("http udp dht work", "websocket"),
    "admin": ("http world context", "auth metrics", "pages", "api", "site", "server"),
}
"""Folder -> its folders, from the lowest floor to the highest. A module imports from lower floors only, and not from
another folder on its own."""

NEVER: dict[str, tuple[str, ...]] = {
    # socket is there for inet_pton, a pure function.
    "wire": ("asyncio", "aiohttp", "redis", "os", "time", "random", "secrets", "logging", "tracker.system"),
    "bittorrent": ("asyncio", "aiohttp", "redis", "socket", "os", "time", "random"),
    "dht": ("asyncio", "aiohttp", "redis", "socket", "os", "time", "secrets", "logging", "tracker.system"),
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
        "doctor.server_checks",
        "valkey.backup",
        "cli.commands",
        "admin",
        "operations.audit",
    ),
    "aiohttp": (
        "admin",
        "system.aiohttp_connection",
        "system.http_client",
        "frontends",
        "workers.push",
        "workers.upstreams",
        "workers.geoip_update",
        "workers.webhooks",
        "volunteer.work_api",
    ),
    # A command imports it with its first line only.
    "structlog": ("system.logger", "system.logs"),
    # An extra: the modules here are imported only where a site's database is used.
    "sqlalchemy": ("workers.site",),
    "libtorrent": ("volunteer.clients.internal",),
    "qbittorrentapi": ("volunteer.clients.qbittorrent",),
    "transmission_rpc": ("volunteer.clients.transmission",),
    "aiohttp_jinja2": ("admin",),
    "jinja2": ("admin", "frontends.work"),
    "prometheus_client": ("admin.metrics",),
    "geoip2": ("geoip",),
    "maxminddb": ("geoip",),
    "pydantic_settings": ("settings.sources",),
    "typer": ("cli.main", "cli.commands", "cli.terminal"),
}
"""Library -> the only modules that may import it. The longest matching name decides."""

FUNCTION_LINES = 60
FILE_LINES = 500
LARGER: dict[str, str] = {}
"""Files and functions (``path`` or ``path:name``) beyond the limits, each with the reason."""


@cache
def modules() -> list[str]:
    """Returns dotted name without ``tracker.`` -> path of every module and package."""
    return sorted(name for path in PACKAGE.rglob("*.py") if (name := _name(path)))


def _name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def path_of(module: str) -> Path:
    base = PACKAGE.joinpath(*module.split("."))
    package = base / "__init__.py"
    return package if package.is_file() else base.with_suffix(".py")  # a folder may have stayed with its bytecode


def imports(module: str) -> Iterator[str]:
    """Returns the full names of all imports in a module, also inside functions."""
    for node in nodes_of(path_of(module)):
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
    """Returns the row of MAY_IMPORT for ``module``: the longest matching name. __main__ starts the command line."""
    module = "cli" if module == "__main__" else module
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


def test_folders_import_from_lower_floors() -> None:
    faults = []
    for place, floors in INSIDE.items():
        floor_of = {f"{place}.{name}": number for number, names in enumerate(floors) for name in names.split()}
        for module in (module for module in modules() if covers(place, module) and module != place):
            own = next(folder for folder in floor_of if covers(folder, module))
            for name in ours(module):
                other = next((folder for folder in floor_of if covers(folder, name)), own)
                if other != own and floor_of[other] >= floor_of[own]:
                    faults.append(f"{module} imports {name}, which is not on a lower floor")
    assert not faults, "\n".join(faults)


def test_no_module_imports_itself_through_others() -> None:
    """Also not inside functions."""
    assert tuple(TopologicalSorter({module: ours(module) for module in modules()}).static_order())


def test_the_table_and_the_imports_of_a_module_are_few() -> None:
    assert len(MAY_IMPORT) <= 22
    assert not [module for module in modules() if len(ours(module)) > 40]


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
        assert not re.search(r"""call\s*\(\s*["']KEYS["']""", script.read_text("utf-8"), re.IGNORECASE), script
    for module in modules():
        for node in nodes_of(path_of(module)):
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
COMMAND_METHODS = frozenset({"command", "pipeline", "direct", "execute_command", "evalsha", "eval", "script_load"})


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
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or id(node) in decorators:
            continue
        if node.func.attr in COMMAND_METHODS and module not in ("cli.commands", "cli.main"):  # typer's command()
            yield f"{module} line {node.lineno}: {node.func.attr}()"


def test_redis_commands_are_sent_in_the_store_only() -> None:
    others = [m for m in modules() if not any(covers(place, m) for place in SENDS_COMMANDS)]
    assert not [place for module in others for place in sent_commands(module)]
    assert any(True for module in modules() if covers("store", module) for _ in sent_commands(module))


def store_classes() -> set[str]:
    """Returns the classes of the store's subjects whose constructor takes shards, a connection or scripts."""
    return {
        node.name
        for module in modules()
        if covers("store", module) and not covers("store.client", module) and not covers("store.sharding", module)
        for node in nodes_of(path_of(module))
        if isinstance(node, ast.ClassDef)
        and node.name not in ("Store", "Search", "Memory", "SharedRules", "Swarms", "Lease", "_ShardStates", "_Walk")
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        if {arg.arg for arg in method.args.args} & {"connection", "scripts", "shard", "shards"}
    }


def own_classes(module: str) -> set[str]:
    """Returns the classes that a module defines. A model of the API may have the same name as a store class."""
    return {node.name for node in nodes_of(path_of(module)) if isinstance(node, ast.ClassDef)}


def test_store_classes_are_constructed_in_one_place() -> None:
    """In store/store.py, and where it has the parts of a subject built, so that a process has one of each. Search,
    Memory, Swarms, Lease, _ShardStates and _Walk are built by the class that uses them; SharedRules is
    a base."""
    classes = store_classes()
    assert {"AllSwarms", "Torrents", "Users", "Counters", "Jobs", "Claims"} <= classes
    built = [
        (node.func.id, module)
        for module in modules()
        for node in nodes_of(path_of(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in classes | {"Scripts", "Store"} and node.func.id not in own_classes(module)
    ]
    places = {"store.store", "store.users.parts", "store.work.work"}
    assert [name for name, module in built if module not in places] == ["Store", "Scripts"]
    assert {name for name, module in built if module in places} == classes - {"UserParts"}


def test_parts_of_the_store_are_written_for_any_number_of_shards() -> None:
    """No subclass for several shards, and no question whether there is one; but the prefix of a single shard is the
    configured one (schema/keys.py), and a store remembers its number (layout.py)."""
    layout = ("store.schema.keys", "store.layout")
    questions = re.compile(r"shards\)? *(==|!=|<=|>|<) *1\b")
    for module in modules():
        assert not [name for name in own_classes(module) if "Sharded" in name], module
        if module not in layout:
            assert not questions.search(path_of(module).read_text("utf-8")), module


def lone_tasks(module: str) -> Iterator[str]:
    """Yields the lines that start a task outside a task group. Nothing would report an error of such a task."""
    for node in nodes_of(path_of(module)):
        if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future"):
            owner = node.value
            named = isinstance(owner, ast.Name) and owner.id in ("asyncio", "loop")
            if named or isinstance(owner, ast.Call):
                yield f"{module} line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            names = {alias.name for alias in node.names} & {"create_task", "ensure_future"}
            yield from (f"{module} imports {name}" for name in names)


def test_background_work_waits_for_the_store_in_one_loop() -> None:
    """In workers/loop.py. Besides, the deny list is not read meanwhile."""
    waiting = {
        module
        for module in modules()
        for node in nodes_of(path_of(module))
        if isinstance(node, ast.Attribute) and node.attr == "until_available" and not covers("store", module)
    }
    assert waiting == {"workers.loop", "workers.admission"}


def test_tasks_are_started_in_task_groups_only() -> None:
    assert not [place for module in modules() for place in lone_tasks(module)]


def test_each_file_has_a_test() -> None:
    """By its name, an import, or a line of HELD_BY in tools/nearest_tests.py, which `make mutate` uses as well."""
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.lua")]
    assert not [path for path in files if path.read_text(encoding="utf-8").strip() and not nearest_tests(path)]


def test_the_tables_name_only_existing_modules() -> None:
    named = (*MAY_IMPORT, *NEVER, *(place for places in ONLY.values() for place in places))
    assert not {place for place in named if not path_of(place).exists()}
    assert all((PACKAGE / place).exists() for place in HELD_BY)
    assert all((TESTS / test).exists() for tests in HELD_BY.values() for test in tests)
    assert all((ROOT / name.partition(":")[0]).exists() for name in LARGER)


def sizes() -> Iterator[tuple[str, int, int]]:
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.lua")]):
        name = str(path.relative_to(ROOT))
        yield name, len(path.read_text(encoding="utf-8").splitlines()), FILE_LINES
        if path.suffix == ".py":
            for node in nodes_of(path):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{name}:{node.name}", (node.end_lineno or 0) - node.lineno + 1, FUNCTION_LINES


def test_files_and_functions_have_limited_size() -> None:
    """Split a larger one, or add it to LARGER with the reason."""
    large = {name: lines for name, lines, limit in sizes() if lines > limit and name not in LARGER}
    assert not large
