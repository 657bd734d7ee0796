"""Reads settings from TRACKER_… variables, ``.env`` in the working directory, and a TOML file (``--config``).

The first source that gives a setting wins; the rest are defaults. No other module reads the environment. Every name
with our prefix is checked: a misspelt one would otherwise leave its default in force without a word.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import Any

from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic import ValidationError

from tracker.errors import SettingsError, plain
from tracker.settings.model import FIELDS, PREFIX, Settings, variable

ENV_FILE = Path(".env")
_VARIABLES = {variable(*field): field for field in FIELDS}
_DOTTED = [".".join(field) for field in FIELDS]

# What Kubernetes and Docker put into the environment for a service or a linked container named `tracker…`.
_FOREIGN = re.compile(
    r"TRACKER(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)"
)
_FOREIGN_VALUE = re.compile(r"(tcp|udp)://")

_Given = dict[tuple[str, ...], tuple[Any, str]]
"""By (section, name): the value of a setting, and how its source spells the name."""


def load(config: Path | None = None, env_file: Path = ENV_FILE) -> Settings:
    """The current settings. ``config`` is a TOML file that must exist; ``env_file`` may be missing. An empty variable
    counts as unset. Raises SettingsError, which lists every mistake."""
    problems: list[str] = []
    given = {} if config is None else _from_toml(config, problems)
    given |= _from_env_file(env_file, problems)
    given |= _from_variables(os.environ, "", problems)
    parts: dict[str, Any] = {}
    for section, part in Settings.model_fields.items():
        try:
            if values := {field[1]: value for field, (value, _) in given.items() if field[0] == section}:
                parts[section] = type(part.default).model_validate(values)
        except ValidationError as error:  # its own text shows the values, which may be secret
            lines: dict[tuple[str, ...], str] = {}  # one per setting
            for detail in error.errors(include_input=False, include_url=False, include_context=False):
                field = (section, *map(str, detail["loc"][:1]))
                _, name = given.get(field, (None, ".".join(field)))
                lines.setdefault(field, f"{name}: {plain(detail['msg'])}")
            problems += lines.values()
    settings = Settings.model_construct(None, **parts)
    problems += settings.contradictions()
    if problems:
        raise SettingsError(problems)
    return settings


def _from_env_file(path: Path, problems: list[str]) -> _Given:
    """Raises SettingsError also for lines that the library would skip silently, a setting among them."""
    if not _is_file(path):  # a directory named .env is often a Python environment
        return {}
    with _readable(path), path.open(encoding="utf-8") as file:
        bindings = list(parse_stream(file))
    bad = [b.original for b in bindings if b.error or (b.value is None and (b.key or "").startswith(PREFIX))]
    if bad:
        lines = [text.line + len(text.string) - len(text.string.lstrip("\n")) for text in bad]
        raise SettingsError(f"{path} line {line}: write NAME=value" for line in lines)
    return _from_variables(dotenv_values(path, encoding="utf-8"), f" in {path}", problems)


def _from_variables(present: Mapping[str, str | None], where: str, problems: list[str]) -> _Given:
    """Their names in any case; ``where`` follows a name in messages. Adds a line for each unknown name."""
    given = {name.upper(): value for name, value in present.items() if value}
    problems += [
        f"{name}{where} is not a setting{_nearest(name, sorted(_VARIABLES))}"
        for name, value in given.items()
        if name.startswith(PREFIX) and name not in _VARIABLES
        if not (_FOREIGN.fullmatch(name) or (name.endswith("_PORT") and _FOREIGN_VALUE.match(value)))
    ]
    return {field: (given[name], name + where) for name, field in _VARIABLES.items() if name in given}


def _from_toml(path: Path, problems: list[str]) -> _Given:
    """Adds a line for each unknown name."""
    if not _is_file(path):
        raise SettingsError([f"{path}: there is no such file"])
    with _readable(path):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    sections = {section: part for section, part in data.items() if section in Settings.model_fields}
    if invalid := [section for section, part in sections.items() if not isinstance(part, dict)]:
        raise SettingsError(f"{path}: {section} must be a table of settings, [{section}]" for section in invalid)
    given = {(section, name): value for section, part in sections.items() for name, value in part.items()}
    unknown = [section for section in data if section not in sections]
    unknown += [".".join(field) for field in given if field not in FIELDS]
    problems += [f"{dotted} in {path} is not a setting{_nearest(dotted, _DOTTED)}" for dotted in unknown]
    return {field: (value, f"{'.'.join(field)} in {path}") for field, value in given.items() if field in FIELDS}


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingsError([f"{path} cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"{path} is not UTF-8 text"]) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError([f"{path} is not TOML: {error}"]) from None


def _is_file(path: Path) -> bool:
    """Raises SettingsError if that cannot be found out, as in a folder that the tracker may not enter."""
    with _readable(path):
        try:
            return S_ISREG(path.stat().st_mode)  # is_file() hides such errors from Python 3.14 on
        except (FileNotFoundError, NotADirectoryError):
            return False


def _nearest(name: str, names: list[str]) -> str:
    # Compared without the prefix, which would make all names look alike.
    bare = {known.removeprefix(PREFIX): known for known in names}
    wrong = name.removeprefix(PREFIX)
    found = difflib.get_close_matches(wrong, bare, n=len(bare), cutoff=0.5)
    if not found:
        return "; `tracker settings` lists them all"
    # Of equally near names the first setting; TRACKER_LISTEN means the one of http.
    near = [f"HTTP__{wrong}"] if f"HTTP__{wrong}" in bare else filter(found.__contains__, bare)
    nearest = max(near, key=lambda known: difflib.SequenceMatcher(None, known, wrong).ratio())
    return f"; did you mean {bare[nearest]}?"
