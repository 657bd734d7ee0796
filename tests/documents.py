"""The code blocks of README.md and docs/: found by language, and run as scripts on a tracker of the page's own."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import bencodepy

from loadtest import trackers
from loadtest.servers import ROOT
from tests.torrent_files import HYBRID, V1

PAGES = {path.name: path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
_FENCED = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
TORRENTS = {"film": V1, "album": V1 | {b"name": b"album"}, "hybrid": HYBRID}
"""Files that pages name, with other info dictionaries."""
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_EXAMPLE = re.compile(r"[0-9a-zA-Z_]+…")
_MARK = "@@ command "


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    def commands(self) -> Iterator[tuple[str, str]]:
        """Each command with the output that the page shows: of a session those after ``$``, of a script each line."""
        if self.text.startswith("#!"):
            yield self.text, ""
        elif self.language == "console":
            for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                yield command, shown
        else:
            lines = self.text.replace("\\\n", "\\\0").splitlines()
            yield from ((line.replace("\0", "\n"), "") for line in lines if line.strip(" \n#") and line[0] != "#")


def blocks(page: str, *languages: str) -> list[Block]:
    """Those of the page in its order; only of these languages if any are given."""
    text = PAGES[page].read_text("utf-8")
    found = [
        Block(page, text.count("\n", 0, match.start()) + 1, match[2], match[3]) for match in _FENCED.finditer(text)
    ]
    return [block for block in found if not languages or block.language in languages]


@dataclass(frozen=True)
class Script:
    """How the commands of a page are run: settings of its tracker, words of the page and what replaces them here, what
    is done before the first command, and before each."""

    settings: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    before_each: str = ""


_PRELUDE = r"""
set -uo pipefail
mkdir -p .venv/bin
printf '#!/bin/sh\nexec "$PYTHON" -m tracker "$@"\n' >.venv/bin/tracker
chmod +x .venv/bin/tracker
tracker() { "$PYTHON" -m tracker "$@"; }
curl() { command curl --fail-with-body --silent --show-error --globoff "$@"; }
TOKEN=$(tracker token create documents | grep -o 'swk_[^ ]*') || exit 1
api() { command curl --fail-with-body -sS -H "Authorization: Bearer $TOKEN" "$@" >/dev/null || exit 1; }
announce() { # INFO_HASH NUMBER LEFT
    local query="peer_id=-TR4000-abcdefghijk$2&port=688$2&left=$3&event=started"
    command curl -sS "$ANNOUNCE?info_hash=$(sed 's/../%&/g' <<<"$1")&$query" --output announced
    ! grep -a 'failure reason' announced || exit 1
}
"""


def run(script: Script, commands: list[tuple[str, str]], home: Path) -> None:
    """Runs the commands in one shell, in the directory of a tracker that is started for it. Each must succeed and print
    what the page shows; `3f6c…` stands for any text, and the width of columns does not matter."""
    home.mkdir()
    (home / "answers").write_text("y\n" * 9)
    for name, info in TORRENTS.items():
        (home / f"{name}.torrent").write_bytes(bencodepy.encode({b"info": info}))
    tracker = trackers.start(home, **script.settings)
    try:
        variables = {
            "PYTHON": sys.executable,
            "ANNOUNCE": f"{tracker.url}/announce",
            "API": f"{tracker.admin_url}/api/v1",
            "WORK": next(iter(re.findall(r"^ +work +(http\S+)/", tracker.banner, re.MULTILINE)), ""),
            "COLUMNS": "200",
            "TERM": "xterm",
        }
        words = {"http://127.0.0.1:6970": tracker.admin_url, "http://localhost:6969": tracker.url} | dict(script.words)
        text = _as_text(script, commands, words)
        status, printed = _in_terminal(text, home, trackers.environment({**script.settings, **variables}))
    finally:
        tracker.kill()
    first, *outputs = printed.split(_MARK)
    assert outputs, first
    for (command, shown), output in zip(commands, outputs, strict=False):
        text = output.partition("\n")[2]
        assert _pattern(shown).fullmatch(text) or not shown, f"$ {command}\n{text}\nthe page: {shown}"
    last = commands[len(outputs) - 1][0]
    assert status == 0 and len(outputs) == len(commands), f"$ {last}\n{outputs[-1]}"


def _in_terminal(text: str, home: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    """The exit status of bash and what it prints to a terminal."""
    outer, inner = pty.openpty()
    with subprocess.Popen(
        ["bash", "-c", text], cwd=home, env=variables, stdin=subprocess.DEVNULL, stdout=inner, stderr=inner
    ) as process:
        os.close(inner)
        parts = []
        with suppress(OSError):  # how a terminal ends
            while part := os.read(outer, 65536):
                parts.append(part)
        os.close(outer)
    printed = b"".join(parts).decode("utf-8", "replace").replace("\r\n", "\n")
    return process.returncode, _COLOUR.sub("", printed)


def _as_text(script: Script, commands: list[tuple[str, str]], words: Mapping[str, str]) -> str:
    parts = [_PRELUDE, script.before]
    for number, (command, _) in enumerate(commands):
        here = reduce(_replaced, words.items(), command)
        parts.append(f"{script.before_each}\necho; echo '{_MARK}{number}'\n{{ {here}\n}} <answers || exit 1")
    return "\n".join(parts)


def _replaced(text: str, word: tuple[str, str]) -> str:
    return re.sub(rf"(?<![\w/]){re.escape(word[0])}(?!\w)", word[1], text)


def _pattern(shown: str) -> "re.Pattern[str]":
    lines = (
        r"[ \t]+".join(re.escape(word).replace("…", r".*") for word in line.split())
        for line in _EXAMPLE.sub("…", shown).splitlines()
    )
    return re.compile(r"\s*" + r"\s*\n\s*".join(lines) + r"\s*")
