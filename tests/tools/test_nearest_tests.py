"""Which tests hold a file: by its name, by imports, by the scripts that include it, and as docs/testing.md says."""

import re

import pytest

from tools.nearest_tests import LUA, PACKAGE, ROOT, TESTS, nearest_tests


def names(file: str) -> list[str]:
    return [str(path.relative_to(TESTS)) for path in nearest_tests(PACKAGE / file)]


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("token_bucket.py", ["test_token_bucket.py"]),
        ("core/clients.py", ["core/test_clients.py"]),
        ("admin/api/work_items.py", ["admin/api/test_work.py"]),
        ("cli/commands/top.py", ["cli/test_top.py"]),
        ("__main__.py", ["cli/test_main.py"]),
        ("store/lua/jobs/claim.lua", ["store/jobs"]),
        ("store/lua/lib/hit_and_runs.lua", ["store/swarms", "store/users"]),
        ("core/nothing_of_this_name.py", ["core/test_announce.py"]),
        ("nothing_of_this_name.py", []),
    ],
)
def test_the_nearest_tests_are_found(file: str, tests: list[str]) -> None:
    assert names(file) == tests


def test_the_documents_show_the_tests_of_each_folder_of_scripts() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    shown = {
        folder: re.findall(r"`tests/([^`]+)`", tests)
        for folder, tests in re.findall(r"^\| `(\w+)/` \| (.+) \|$", page, re.MULTILINE)
    }
    folders = {path.parent for path in LUA.rglob("*.lua")} - {LUA / "lib"}
    assert shown == {folder.name: names(f"store/lua/{folder.name}/any.lua") for folder in folders}
