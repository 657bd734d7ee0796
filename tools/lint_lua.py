"""Checks the Lua scripts as the server gets them, includes resolved, with luacheck (Debian: lua-check).

A finding names the file and line it comes from. Where luacheck is not installed, one line says how to install it.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from tracker.store.client.scripts import lines_of

LUA = Path(str(resources.files("tracker.store"))) / "lua"
GLOBALS = ("KEYS", "ARGV", "redis", "struct", "bit", "cjson", "cmsgpack")
"""What the server adds to Lua 5.1 for a script; none of them may be assigned."""
MISSING = """The Lua scripts were not checked, as luacheck is not installed. Install it:
apt install lua-check (Debian, Ubuntu), brew install luacheck, or luarocks install luacheck.
"""
FINDING = re.compile(r"(?P<script>[a-z_]+)\.lua:(?P<line>\d+):(?P<column>\d+): (?P<text>.*)")
UNUSED = re.compile(r"(?P<place>(?P<file>[^:]+):\d+:\d+: \(W211\) .*) \(in (?P<script>[a-z_]+)\.lua\)")

DIRECT = ("announce", "scrape", "reap", "due")


Origins = dict[str, list[tuple[str, int, str]]]
"""The lines of each script, with the file and line number that each comes from."""


def scripts() -> dict[str, Path]:
    return {path.stem: path for path in sorted(LUA.rglob("*.lua")) if path.read_text("utf-8").startswith("#!lua")}


def located(finding: str, origins: Origins) -> str:
    """The finding with the place it comes from in front, and the script it was found in behind."""
    match = FINDING.fullmatch(finding.strip())
    if match is None:
        return finding
    file, number, _ = origins[match["script"]][int(match["line"]) - 1]
    return f"{file}:{number}:{match['column']}: {match['text']} (in {match['script']}.lua)"


def assembled() -> Origins:
    return {name: list(lines_of(str(path.relative_to(LUA)))) for name, path in scripts().items()}


def check(luacheck: str, origins: Origins) -> list[str]:
    """What luacheck finds in the scripts, without repetitions."""
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in origins.items():
            Path(folder, f"{name}.lua").write_text("".join(f"{line}\n" for _, _, line in lines), "utf-8")
        command = [luacheck, "--std", "lua51", "--read-globals", *GLOBALS, "--codes", "--formatter", "plain"]
        command += ["--no-config", "--no-cache", "--", *(f"{name}.lua" for name in origins)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 (our own files)
    findings = [located(line, origins) for line in done.stdout.splitlines() if line.strip()]
    if done.returncode and not findings:
        findings = [done.stderr.strip() or f"luacheck ended with {done.returncode}"]
    return sorted(set(unused_everywhere(findings, origins)))


def unused_everywhere(findings: list[str], origins: Origins) -> Iterator[str]:
    """Without what one script leaves unused in a fragment and another one uses. Scripts of DIRECT use all."""
    including = Counter(file for lines in origins.values() for file in {file for file, _, _ in lines})
    unused = Counter(found["place"] for each in findings if (found := UNUSED.fullmatch(each)))
    for each in findings:
        found = UNUSED.fullmatch(each)
        is_rare = found is not None and unused[found["place"]] < including[found["file"]]
        if found is None or not is_rare or found["script"] in DIRECT:
            yield each


def main() -> int:
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        sys.stderr.write(MISSING)
        return 1
    findings = check(luacheck, assembled())
    sys.stdout.write(("\n".join(findings) or f"luacheck: no warnings in {len(scripts())} scripts") + "\n")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
