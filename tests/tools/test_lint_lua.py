"""The Lua scripts are checked as the server gets them, and a finding names the file it comes from."""

import shutil

import pytest

from tools.lint_lua import DIRECT, assembled, check, located, main
from tracker.store.client.scripts import _DIRECT, source

LUACHECK = shutil.which("luacheck")
needs_luacheck = pytest.mark.skipif(LUACHECK is None, reason="luacheck is not installed")


def test_the_checked_text_is_what_the_server_gets() -> None:
    for name, lines in assembled().items():
        assert "".join(f"{line}\n" for _, _, line in lines) == source(name)


def test_a_finding_names_the_file_and_line_it_comes_from() -> None:
    origins = assembled()
    place = next(n for n, (file, _, _) in enumerate(origins["reap"], 1) if file == "lib/torrent.lua")
    found = located(f"    reap.lua:{place + 2}:7: (W211) unused variable", origins)
    assert found == "lib/torrent.lua:3:7: (W211) unused variable (in reap.lua)"


@needs_luacheck
def test_an_unused_function_and_an_unknown_global_are_found() -> None:
    lines = ["local function idle() end", "return redis.call('GET', KEYS[1]) or keys"]
    origins = {"one": [("lib/a.lua", number, line) for number, line in enumerate(lines, 1)]}
    unused, unknown = check(str(LUACHECK), origins)
    assert unused.startswith("lib/a.lua:1:16: (W211) unused function 'idle'")
    assert unknown.startswith("lib/a.lua:2:38: (W113) accessing undefined variable 'keys'")


@needs_luacheck
def test_a_script_may_leave_unused_what_another_one_uses_unless_peers_wait_for_it() -> None:
    fragment = ("lib/a.lua", 1, "local function both() end")
    origins = {"one": [fragment, ("one.lua", 1, "both()")], "two": [fragment], "reap": [fragment]}
    assert [each.rpartition(" ")[2] for each in check(str(LUACHECK), origins)] == ["reap.lua)"]
    # A new torrent is rare.
    assert {*DIRECT, "register"} == {name.removesuffix("_when_full") for name in _DIRECT}


@needs_luacheck
def test_no_fragment_has_a_function_that_no_script_uses() -> None:
    assert check(str(LUACHECK), assembled()) == []


def test_without_luacheck_the_check_fails_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main() == 1
    assert "apt install lua-check" in capsys.readouterr().err
