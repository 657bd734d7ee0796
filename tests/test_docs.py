"""Generated pages are up to date, and written pages name only files, keys and settings that exist."""

import inspect
import re
from pathlib import Path

from tracker.cli.files.rows import COLUMNS
from tracker.settings import reference
from tracker.settings.model import FIELDS, variable
from tracker.store.access.audit import COLUMNS as AUDIT_COLUMNS
from tracker.store.changes.changes import Change
from tracker.store.schema import keys, table
from tracker.store.schema.record import fields_of
from tracker.store.work import sizes
from tracker.workers import connectable, push, samples, work

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[[^\]]+\]\(([^)#:\s]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:tracker|tests|loadtest|docs|requirements)/[\w./-]+|[\w-]+\.(?:conf|toml|yaml)|Makefile)`")
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


def test_the_page_of_settings_is_up_to_date() -> None:
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == reference.as_markdown(), "run `make docs`"


def test_every_setting_is_on_its_page() -> None:
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert all(f"`{variable(*field)}`" in page for field in FIELDS)


def test_periodic_jobs_run_as_often_as_their_page_says() -> None:
    page = (DOCS / "jobs.md").read_text(encoding="utf-8")
    said = re.findall(r"(?m)^\| `(\w+)` \|.*once per (\d+) (s|minutes|hours)", page)
    seconds = {name: int(number) * {"s": 1, "minutes": 60, "hours": 3600}[unit] for name, number, unit in said}
    assert seconds == {
        "work_policy": work.POLICY_EVERY_SECONDS,
        "work_verify": work.VERIFY_EVERY_SECONDS,
        "work_sizes": sizes.EVERY_SECONDS,
        "check_connectable": connectable.EVERY_SECONDS,
        "clean_counters": samples.CLEAN_SECONDS,
        "push_figures": push.FLUSH_SECONDS,
    }


NOT_KEYS = {"timeouts", "channel"}
"""Methods of keys.Keys that build no key: a common prefix, and channel names."""
EXAMPLES: dict[str, object] = {
    "array": "s4",
    "name": "active",
    "counter": "seeders",
    "ranking": "seeders",
    "order": "uploaded",
    "address": "192.0.2.1",
    "metric": "countries.France.users",
    "todo": "todo",
    "board": "downloader_count",
    **dict.fromkeys(("of", "first", "second"), 7),
}
"""Example values for parameters that allow only certain words, or whose type does not tell, by parameter name."""


def built_keys() -> dict[str, str]:
    """An example key of every method of keys.Keys, by method name."""
    builder = keys.Keys("t:")
    made: dict[str, str] = {}
    for name, method in inspect.getmembers(builder, inspect.ismethod):
        if not name.startswith("_") and name not in NOT_KEYS:
            parameters = inspect.signature(method).parameters.values()
            key = method(*(_example(each.name, each.annotation) for each in parameters))
            made[name] = key.decode() if isinstance(key, bytes) else key
    return made


def _example(name: str, kind: object) -> object:
    if name in EXAMPLES:
        return EXAMPLES[name]
    if kind is str:
        return "x"
    return 7 if re.search(r"\bint\b", str(kind)) else b"\x01" * 20


def test_every_key_that_is_built_is_in_the_table() -> None:
    patterns = [re.escape(spec.pattern) for spec in table.KEYS]
    known = [re.compile(re.sub(r"<[^>]*>", ".+", pattern)) for pattern in patterns]
    unknown = {name: key for name, key in built_keys().items() if not any(k.fullmatch(key) for k in known)}
    assert not unknown


def test_every_key_in_the_table_has_a_writer_and_a_lifetime() -> None:
    for spec in table.KEYS:
        assert spec.type in {"STRING", "HASH", "SET", "ZSET", "LIST", "STREAM"}, spec
        assert spec.holds, spec
        assert spec.lifetime, spec
        assert spec.writer, spec


def test_links_and_files_named_exist() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    links = [(page, link) for page, text in texts.items() for link in LINK.findall(text)]
    assert not [(page.name, link) for page, link in links if not (page.parent / link).exists()]
    files = [(page, name) for page, text in texts.items() for name in FILE.findall(text)]
    assert not [(page.name, name) for page, name in files if not (ROOT / name).exists()]


def test_every_page_is_in_the_index() -> None:
    linked = {(DOCS / link).resolve() for link in LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))}
    assert not {page for page in DOCS.rglob("*.md") if page.name != "index.md"} - linked


def test_the_map_names_every_folder_and_is_short() -> None:
    text = (DOCS / "map.md").read_text(encoding="utf-8")
    package = ROOT / "tracker"
    folders = {path.parent for path in package.rglob("*.py") if path.stat().st_size} - {package}
    places = {f"tracker/{path.relative_to(package)}/" for path in folders}
    places |= {f"tracker/{path.name}" for path in package.glob("*.py")}
    assert not [place for place in sorted(places) if f"`{place}`" not in text]
    assert len(text.splitlines()) <= 80


def test_a_decision_fits_on_one_page() -> None:
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in (DOCS / "decisions").glob("*.md")}
    assert not {name: number for name, number in words.items() if number > 500}


def test_prose_lines_have_at_most_120_characters() -> None:
    """Except tables, code, and lines of a single link or word."""
    found = []
    for page in PAGES:
        fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            shown = fenced or line.startswith(("|", "    ", "![", "<")) or len(line.split()) < 4
            if len(line) > 120 and not shown:
                found.append(f"{page.name}:{number}")
    assert not found


def test_the_pages_of_places_name_the_sources_and_no_export_has_places() -> None:
    """The licences ask for it wherever places are shown."""
    texts = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("geoip", "uniques", "api", "cli")}
    assert all(source in texts["geoip"] for source in ("https://db-ip.com", "https://www.maxmind.com"))
    assert all("geoip.md#which-database" in texts[name] for name in ("uniques", "api"))
    assert re.search(r"tracker unique top .*docs/geoip.md", texts["cli"])
    columns = {name for names in (*COLUMNS.values(), AUDIT_COLUMNS) for name in names}
    assert "No export has places." in texts["api"]
    assert not columns & {"country", "subdivision", "city", "postcode", "place"}


def test_the_page_of_the_feed_has_all_changes_and_fields() -> None:
    page = (DOCS / "changes.md").read_text(encoding="utf-8")
    tables = [
        re.findall(r"`(\w+)`", " ".join(re.findall(r"(?m)^\|([^|]*)\|", page.partition(head)[2].split("\n\n")[0])))
        for head in ("| `change` | when |\n", "| field | meaning |\n")
    ]
    kinds, fields = map(set, tables)
    described = fields_of(Change)["change"].about
    assert kinds == set(re.findall(r"`(\w+)`", described))
    assert fields | {"change"} == set(fields_of(Change))
