"""Statements of README.md, CONTRIBUTING.md and SECURITY.md are true."""

import re
from pathlib import Path

from tracker.settings.model import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_each_front_end() -> None:
    """The first paragraph lists what the tracker serves, and the planned protocols."""
    names = {"http": "HTTP", "udp": "UDP", "websocket": "WebSocket", "work": "volunteers", "dht": "DHT"}
    now, _, later = README.partition("It serves ")[2].partition("\n\n")[0].partition(". ")
    here = {path.name for path in (ROOT / "tracker/frontends").iterdir() if (path / "__init__.py").exists()}
    assert {name for name, word in names.items() if word in now} == here
    assert {name for name, word in names.items() if word in later} == names.keys() - here


def test_the_make_targets_named_in_the_pages_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page}: make {target}"


def test_the_security_page_states_the_default_addresses() -> None:
    settings = Settings()
    assert set(settings.http.listen) == {"0.0.0.0:6969", "[::]:6969"}
    assert settings.admin.listen == ("127.0.0.1:6970",)
    assert settings.redis.url is None
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "The announce port listens on all addresses. The admin port listens on 127.0.0.1 and" in " ".join(
        text.split()
    )


def test_the_metadata_contains_no_project_url() -> None:
    """The project has no public address. A wrong URL would send vulnerability reports to strangers."""
    assert "[project.urls]" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "no public address" in " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())


def test_the_readme_is_short_and_begins_with_a_picture_three_lines_and_two_commands() -> None:
    """A picture in light and dark, what it is, for whom with one link each, and how to run and test it."""
    assert README.count("\n") <= 120
    title, picture, text, users, heading, commands, *_ = README.split("\n\n")
    assert (title, heading) == ("# swarmkeeper", "## Run it, test it")
    shown = re.findall(r'(?:srcset|src)="([^"]+)"', picture)
    assert len(shown) == 2 and all((ROOT / path).is_file() for path in shown)
    assert picture.startswith("<picture>") and {path.rpartition("-")[2] for path in shown} == {"light.png", "dark.png"}
    assert len(text.splitlines()) == 3
    _, _, *rows = users.splitlines()
    links = {re.split(r" *\| *", row)[1]: re.findall(r"\]\((docs/[\w.]+)\)", row) for row in rows}
    assert links.keys() == {"a public tracker", "a private site", "a LAN", "an archive with volunteers"}
    assert all(len(found) == 1 and (ROOT / found[0]).is_file() for found in links.values())
    assert commands == "```sh\nmake run\nmake test\n```"


def test_every_picture_is_shown_on_a_page() -> None:
    pages = [README, *(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))]
    for picture in (ROOT / "docs/pictures").iterdir():
        assert any(f"pictures/{picture.name}" in page for page in pages), picture.name
