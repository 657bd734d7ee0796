"""What code of the admin side never does, whatever it is sent; and that files of others are what they were."""

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
ROOT = Path(__file__).parents[2]
ADMIN = ROOT / "tracker" / "admin"
VENDOR = ADMIN / "static" / "vendor"
EVERYWHERE = sorted((ROOT / "tracker").rglob("*.py"))
SCRIPTS = sorted((ADMIN / "static").glob("*.js"))

RUNS_TEXT = {"eval", "exec", "compile", "__import__"}
MAKES_OBJECTS = {"pickle", "marshal", "shelve", "dill", "yaml", "xml", "lxml"}
BETWEEN_OURSELVES = {"workforce.py": {"pickle"}}
"""Over a pair of sockets that only a parent and its child hold."""
GOES_OUT = {
    "subprocess",
    "urllib.request",
    "http.client",
    "ftplib",
    "smtplib",
    "requests",
    "httpx",
    "aiohttp.client",
}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def called(tree: ast.AST) -> Iterator[str]:
    """Names of what is called, with those before their dots where that are names too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@pytest.mark.parametrize("path", EVERYWHERE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_was_sent_is_run_or_becomes_an_object(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not RUNS_TEXT & set(called(tree))
    found = {name.partition(".")[0] for name in imported(tree)} & MAKES_OBJECTS
    assert found == BETWEEN_OURSELVES.get(path.name, set())
    assert not {"os.system", "os.popen"} & set(called(tree))
    words = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "shell"]
    assert not [word for word in words if isinstance(word.value, ast.Constant)]


@pytest.mark.parametrize("path", sorted(ADMIN.rglob("*.py")), ids=lambda path: str(path.relative_to(ADMIN)))
def test_the_admin_side_asks_nobody_and_starts_nothing(path: Path) -> None:
    """So nobody has it ask for them (SSRF), or run a command."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [
        name
        for name in imported(tree)
        if name in GOES_OUT or name.startswith(tuple(f"{x}." for x in GOES_OUT))
    ]
    assert not [
        name for name in called(tree) if name.endswith(("ClientSession", "open_connection", ".connect"))
    ]


def test_templates_are_ours_and_escape_by_themselves() -> None:
    """None is made out of what was sent, and ``safe`` stands behind nothing that was."""
    for path in ADMIN.rglob("*.py"):
        assert "from_string" not in path.read_text(encoding="utf-8"), path
    for path in (ADMIN / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"{{([^}]*)\|\s*safe\b", text) in ([], [" drawings[name] "]), (
            path
        )  # of icons, which are ours
        assert "autoescape" not in text, path
        assert not re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", text), path
        assert not re.findall(r"""\s(?:on\w+|style)=""", text), path


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_of_pages_run_no_text_and_keep_no_secret(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(
        r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write", text
    )
    assert not re.findall(r"sessionStorage|indexedDB|document\.cookie", text)
    assert set(re.findall(r"""localStorage\.\w+\(["'](\w+)["']""", text)) <= {"theme"}


def test_files_of_others_are_what_they_were() -> None:
    listed = re.findall(
        r"^\| `([\w.-]+)` \|.*\| `([0-9a-f]{64})` \|$",
        (VENDOR / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert {name for name, _ in listed} == {
        path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")
    }
    assert not [
        name for name, sum_ in listed if hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() != sum_
    ]
