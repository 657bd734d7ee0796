"""The tests that hold a file of `tracker/`, as far as names and imports tell; HELD_BY names the others.

python tools/nearest_tests.py FILE ...
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, TESTS = ROOT / "tracker", ROOT / "tests"
LUA = PACKAGE / "store" / "lua"
INCLUDE = re.compile(r"^ *--@ include (\S+)", re.MULTILINE)
IMPORT = re.compile(r"^\s*from (tracker[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)

HELD_BY: dict[str, tuple[str, ...]] = {
    "__main__.py": ("cli/test_main.py",),
    "admin/api": ("admin/api/test_openapi.py", "admin/api/test_users.py", "admin/api/test_torrents.py"),
    "admin/auth/auth.py": ("admin/test_security.py",),
    "admin/metrics": ("admin/metrics/test_metrics.py",),
    "admin/pages": ("admin/pages/test_pages.py",),
    "admin/site/changes.py": ("admin/site/test_unit3d.py", "admin/site/test_ocelot.py"),
    "app/web.py": ("frontends/websocket/test_websockets.py",),
    "frontends/websocket": ("frontends/websocket/test_websockets.py",),
    "cli": ("cli/test_main.py", "cli/test_commands.py", "cli/test_users.py"),
    "cli/commands/maintenance.py": ("cli/test_maintenance.py", "valkey/test_backup.py"),
    "cli/commands/exports.py": ("cli/test_imports.py",),
    "cli/commands/work": ("cli/test_work.py", "cli/test_seed.py"),
    "cli/files": ("cli/test_imports.py", "cli/test_import_mapping.py"),
    "core": ("core/test_announce.py",),
    "core/work.py": ("frontends/work/test_calls.py",),
    "doctor": ("doctor/test_checks.py", "doctor/test_replicas.py"),
    "frontends/http": ("frontends/http/test_server.py",),
    "frontends/work": ("frontends/work/test_calls.py", "frontends/work/test_public.py"),
    "operations": ("admin/api/test_users.py", "admin/api/test_jobs.py"),
    "settings": ("settings/test_model.py",),
    "store/lua/announce": ("store/swarms", "store/users"),
    "store/lua/changes": ("store/changes", "workers/test_webhooks.py"),
    "store/resharding": ("store/resharding/test_reshard.py",),
    "store/schema/table": ("store/schema/test_keys.py",),
    "store/sharding": ("store/sharding/test_parts.py", "store/sharding/test_users.py"),
    "store/torrents/hybrids.py": ("store/sharding/test_hybrids.py",),
    "store/users/copies.py": ("store/sharding/test_users.py", "workers/test_user_sums.py"),
    "store/users/sums.py": ("store/sharding/test_users.py", "workers/test_user_sums.py"),
    "store/torrents/name_index.py": ("store/torrents/test_search.py",),
    "store/work": ("store/work/test_projects.py", "store/work/test_claims.py", "admin/api/test_work.py"),
    "system/private_file.py": ("cli/test_imports.py",),
    "system/resources.py": ("system/test_file_limits.py", "system/test_memory.py"),
    "workers/upstreams": ("workers/test_upstreams.py",),
    "store/users/site_rows.py": ("workers/site/test_sync.py", "workers/site/test_comparing.py"),
    "workers/site": ("workers/site/test_sync.py", "workers/site/test_bad_input.py"),
}
"""File or folder of `tracker/` -> its tests, where neither a name nor an import tells. The longest row counts."""


@cache
def _importing() -> dict[str, list[Path]]:
    """The test files that import a module, by its dotted name."""
    found: dict[str, list[Path]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        names = set(re.findall(r"^import (tracker[\w.]*)", text, re.MULTILINE))
        for package, imported in IMPORT.findall(text):
            names |= {package, *(f"{package}.{name}" for name in re.findall(r"\w+", imported))}
        for name in names:
            found.setdefault(name, []).append(path)
    return found


def _of_its_name(folder: Path, name: str) -> list[Path]:
    """test_<name>.py and test_<name>_*.py; else that of the name's first words: test_work.py for work_items.py."""
    words = name.split("_")
    first_words = ("_".join(words[:count]) for count in range(len(words) - 1, 0, -1))
    patterns = (f"test_{name}.py", f"test_{name}_*.py")
    own = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    return own or next(([path] for each in first_words if (path := folder / f"test_{each}.py").exists()), [])


def _by_row(inside: str) -> list[Path]:
    rows = [row for row in HELD_BY if inside == row or inside.startswith(f"{row.rstrip('/')}/")]
    return [TESTS / each for each in HELD_BY[max(rows, key=len)]] if rows else []


def _of_module(file: Path) -> list[Path]:
    inside = file.relative_to(PACKAGE).with_suffix("")
    parts = ("", *(inside.parent if inside.name == "__init__" else inside).parts)
    folder = TESTS.joinpath(*parts[:-1])
    importing = _importing().get(".".join(("tracker", *parts[1:])), [])
    return (
        _of_its_name(folder, parts[-1])
        or _of_its_name(folder.parent, parts[-1])
        or [path for path in importing if path.parent in (folder, folder.parent)]
        or _by_row(str(file.relative_to(PACKAGE)))
        or importing
    )


@cache
def _included() -> dict[Path, frozenset[str]]:
    return {path: frozenset(INCLUDE.findall(path.read_text(encoding="utf-8"))) for path in LUA.rglob("*.lua")}


def _scripts_with(fragment: Path) -> Iterator[Path]:
    """The scripts that include a fragment, also through others."""
    for path, included in _included().items():
        if str(fragment.relative_to(LUA)) in included:
            yield from _scripts_with(path) if path.parent.name == "lib" else (path,)


def _of_script(file: Path) -> list[Path]:
    """The tests of the script's subject; of a fragment, those of all scripts that include it."""
    if found := _by_row(str(file.relative_to(PACKAGE))):
        return found
    if file.parent.name == "lib":
        return sorted({each for script in _scripts_with(file) for each in _of_script(script)})
    return [TESTS / "store" / file.parent.name]


def nearest_tests(file: Path) -> list[Path]:
    """Test files and folders, the nearest first; none where nothing holds the file."""
    found = _of_script(file) if file.suffix == ".lua" else _of_module(file)
    return [path for path in dict.fromkeys(found) if path.exists()]


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(argument, *(path.relative_to(ROOT) for path in nearest_tests(Path(argument).resolve())))
