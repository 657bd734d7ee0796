"""What the code of the admin port never does, by its source; and that vendored files are unchanged."""

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax import nodes_of

pytestmark = pytest.mark.once
ROOT = Path(__file__).parents[2]
ADMIN = ROOT / "tracker" / "admin"
VENDOR = ADMIN / "static" / "vendor"
EVERYWHERE = sorted((ROOT / "tracker").rglob("*.py"))
SCRIPTS = sorted((ADMIN / "static").glob("*.js"))

RUNS_TEXT = {"eval", "exec", "compile", "__import__"}
MAKES_OBJECTS = {"pickle", "marshal", "shelve", "dill", "yaml", "xml", "lxml"}
BETWEEN_OURSELVES = {"web_processes.py": {"pickle"}}
"""Used over a socket pair of a parent and its child process."""
GOES_OUT = {"subprocess", "urllib.request", "http.client", "ftplib", "smtplib", "requests", "httpx", "aiohttp.client"}


def imported(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def called(path: Path) -> Iterator[str]:
    """Names of called functions; of methods and functions of modules with the dot, and with the name before it."""
    for node in nodes_of(path):
        if isinstance(node, ast.Call):
            called = node.func
            yield f".{called.attr}" if isinstance(called, ast.Attribute) else ast.unparse(called)
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                yield f"{called.value.id}.{called.attr}"


def runs_input(path: Path) -> Iterator[str]:
    """Calls that evaluate text as code, deserialize objects, or run a shell."""
    yield from (RUNS_TEXT | {"os.system", "os.popen"}) & set(called(path))
    unpacks = {name.partition(".")[0] for name in imported(path)} & MAKES_OBJECTS
    yield from unpacks ^ BETWEEN_OURSELVES.get(path.name, set())
    words = [node for node in nodes_of(path) if isinstance(node, ast.keyword) and node.arg == "shell"]
    yield from ("shell=" for word in words if isinstance(word.value, ast.Constant))


def test_no_input_is_run_or_unpickled() -> None:
    assert not {str(path): found for path in EVERYWHERE if (found := list(runs_input(path)))}


def goes_out(path: Path) -> Iterator[str]:
    """Calls and imports that send requests or start programs."""
    yield from (
        name for name in imported(path) if name in GOES_OUT or name.startswith(tuple(f"{x}." for x in GOES_OUT))
    )
    yield from (name for name in called(path) if name.endswith(("ClientSession", "open_connection", ".connect")))


def test_the_admin_port_sends_no_requests_and_starts_no_programs() -> None:
    """So that no request can cause another request (SSRF) or a command."""
    assert not {str(path): found for path in sorted(ADMIN.rglob("*.py")) if (found := list(goes_out(path)))}


def test_templates_come_from_the_package_and_autoescape() -> None:
    """No template is built from input, and ``safe`` is applied to no input."""
    for path in ADMIN.rglob("*.py"):
        assert "from_string" not in path.read_text(encoding="utf-8"), path
    for path in (ADMIN / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"{{([^}]*)\|\s*safe\b", text) in ([], [" drawings[name] "]), path  # the drawings of icons
        assert "autoescape" not in text, path
        assert not re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", text), path
        assert not re.findall(r"""\s(?:on\w+|style)=""", text), path


def test_page_scripts_evaluate_no_text_and_store_no_secrets() -> None:
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        run = r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write"
        assert not re.findall(run, text), path
        assert not re.findall(r"sessionStorage|indexedDB|document\.cookie", text), path
        assert set(re.findall(r"""localStorage\.\w+\(["'](\w+)["']""", text)) <= {"theme"}, path


def test_vendored_files_are_unchanged() -> None:
    listed = re.findall(
        r"^\| `([\w.-]+)` \|.*\| `([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name for name, _ in listed} == {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")}
    assert not [name for name, sum_ in listed if hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() != sum_]
