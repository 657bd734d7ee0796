"""The documents say what the code does: the generated ones are compared, the written ones name what exists."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tracker import settings_page
from tracker.settings import FIELDS, variable
from tracker.store import key_table, keys

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[[^\]]+\]\(([^)#:\s]+)(?:#[^)]*)?\)")
FILE = re.compile(
    r"`((?:tracker|tests|bench|docs|requirements)/[\w./-]+|[\w-]+\.(?:conf|toml|yaml)|Makefile)`"
)
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize(
    ("page", "as_markdown"),
    [("settings.md", settings_page.as_markdown), ("keys.md", key_table.as_markdown)],
)
def test_a_generated_page_is_what_the_code_says(page: str, as_markdown: Callable[[], str]) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == as_markdown(), "run `make docs`"


def test_every_setting_is_on_its_page() -> None:
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert all(f"`{variable(*field)}`" in page for field in FIELDS)


NOT_KEYS = {"timeouts", "channel"}
"""What keys.Keys builds besides keys: the beginning of many, and the names of channels."""
EXAMPLES: dict[str, object] = {
    "array": "s4",
    "name": "active",
    "figure": "seeders",
    "address": "192.0.2.1",
    "metric": "countries.GB.users",
}
"""Arguments that are one of a few words, by parameter name."""


def built_keys() -> dict[str, str]:
    """What every builder of the key table makes, by its name."""
    builder = keys.Keys("t:")
    made: dict[str, str] = {}
    for name, method in vars(keys.Keys).items():
        if callable(method) and not name.startswith("_") and name not in NOT_KEYS:
            kinds = {k: v for k, v in method.__annotations__.items() if k != "return"}
            key = getattr(builder, name)(*(_example(k, v) for k, v in kinds.items()))
            made[name] = key.decode() if isinstance(key, bytes) else key
    return made


def _example(name: str, kind: object) -> object:
    if name in EXAMPLES:
        return EXAMPLES[name]
    if kind is str:
        return "x"
    return 7 if "int" in str(kind) and "Info" not in str(kind) else b"\x01" * 20


def test_every_key_that_is_built_is_in_the_table() -> None:
    patterns = [re.escape(spec.pattern) for spec in key_table.KEYS]
    known = [re.compile(re.sub(r"<[^>]*>", ".+", pattern)) for pattern in patterns]
    unknown = {name: key for name, key in built_keys().items() if not any(k.fullmatch(key) for k in known)}
    assert not unknown


def test_every_key_in_the_table_has_a_writer_and_a_lifetime() -> None:
    for spec in key_table.KEYS:
        assert spec.type in {"STRING", "HASH", "SET", "ZSET", "LIST"}, spec
        assert spec.holds, spec
        assert spec.lifetime, spec
        assert spec.writer, spec


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_and_files_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not [name for name in FILE.findall(text) if not (ROOT / name).exists()]


def test_every_page_is_in_the_index() -> None:
    linked = {
        (DOCS / link).resolve() for link in LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    }
    assert not {page for page in DOCS.rglob("*.md") if page.name != "index.md"} - linked


def test_every_module_is_on_the_map() -> None:
    text = (DOCS / "map.md").read_text(encoding="utf-8")
    modules = [path.relative_to(ROOT) for path in (ROOT / "tracker").rglob("*.py") if path.stat().st_size]
    folders = re.findall(r"`(tracker/[\w/]+/)`", text)
    assert not [str(m) for m in modules if f"`{m}`" not in text and not str(m).startswith(tuple(folders))]
