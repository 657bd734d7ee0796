"""Where settings come from, first wins: TRACKER_… variables, a ``.env`` file in the working directory, a
TOML file (``--config``), the defaults. The only reader of the environment.

A misspelt name would leave its default in force without a word, so every name with our prefix is looked at.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dotenv.parser import parse_stream
from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tracker.errors import SettingsError
from tracker.settings import FIELDS, PREFIX, Settings, variable

ENV_FILE = Path(".env")


class _Names(Settings, BaseSettings):
    """What pydantic-settings looks for; never made, for ``load`` also has to see the names that nobody knows."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        env_file_encoding="utf-8",
        enable_decoding=False,  # lists are split by Section
        dotenv_filtering="only_existing",
        extra="ignore",
    )


_VARIABLES = {variable(*field): field for field in FIELDS}
_DOTTED = [".".join(field) for field in FIELDS]

# What Kubernetes and Docker put into the environment for a service or a linked container named `tracker…`.
_FOREIGN = re.compile(
    r"TRACKER(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)"
)
_FOREIGN_VALUE = re.compile(r"(tcp|udp)://")


@dataclass(frozen=True, slots=True)
class _Source:
    """What one place says: the values, its unknown names as problems, and how it writes a setting's name."""

    values: Mapping[str, Mapping[str, Any]]
    unknown: Sequence[str]
    name: Callable[[str, str], str]


def load(config: Path | None = None, env_file: Path = ENV_FILE) -> Settings:
    """The settings in force; raises SettingsError, which names all that is wrong with them.

    ``config`` is a TOML file that must exist; ``env_file`` may be missing. An empty variable counts as unset.
    """
    sources = [] if config is None else [_from_toml(config)]
    sources += [_from_env_file(env_file), _from_environment()]
    unknown = [line for source in sources for line in source.unknown]
    merged: dict[str, dict[str, Any]] = {section: {} for section in Settings.model_fields}
    names: dict[tuple[str, ...], str] = {}
    for source in sources:
        for section, values in source.values.items():
            merged[section].update(values)
            names |= {(section, name): source.name(section, name) for name in values}
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        raise SettingsError([*unknown, *_invalid(error, names)]) from None  # its own text shows the values
    if unknown:
        raise SettingsError(unknown)
    return settings


def _from_environment() -> _Source:
    source = EnvSettingsSource(_Names)
    return _Source(_known(source()), _unknown_variables(source.env_vars, ""), variable)


def _from_env_file(path: Path) -> _Source:
    where = f" in {path}"
    if not _is_file(path):  # a directory of that name is somebody's virtual environment
        return _Source({}, (), variable)
    _check_env_file(path)
    source = DotEnvSettingsSource(_Names, env_file=path)
    unknown = _unknown_variables(source.env_vars, where)
    return _Source(_known(source()), unknown, lambda section, name: variable(section, name) + where)


def _from_toml(path: Path) -> _Source:
    if not _is_file(path):
        raise SettingsError([f"{path}: there is no such file"])
    with _readable(path):
        data = TomlConfigSettingsSource(_Names, path).toml_data
    sections = {section: part for section, part in data.items() if section in Settings.model_fields}
    if odd := [section for section, part in sections.items() if not isinstance(part, dict)]:
        raise SettingsError(f"{path}: {section} must be a table of settings, [{section}]" for section in odd)
    unknown = [section for section in data if section not in sections]
    unknown += [f"{s}.{name}" for s, part in sections.items() for name in part if (s, name) not in FIELDS]
    lines = [f"{dotted} in {path} is not a setting{_nearest(dotted, _DOTTED)}" for dotted in unknown]
    return _Source(_known(data), lines, lambda section, name: f"{section}.{name} in {path}")


def _known(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        section: {name: value for name, value in part.items() if (section, name) in FIELDS}
        for section, part in data.items()
        if section in Settings.model_fields and isinstance(part, dict)
    }


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
    """Raises SettingsError where nobody can tell, as in a directory that we may not enter."""
    with _readable(path):
        return path.is_file()


def _check_env_file(path: Path) -> None:
    """The library skips lines that it does not understand; a setting lost so would be missed too late."""
    with _readable(path), path.open(encoding="utf-8") as file:
        bindings = list(parse_stream(file))
    odd = [b.original for b in bindings if b.error or (b.value is None and (b.key or "").startswith(PREFIX))]
    if odd:
        lines = [text.line + len(text.string) - len(text.string.lstrip("\n")) for text in odd]
        raise SettingsError(f"{path} line {line}: write NAME=value" for line in lines)


def _unknown_variables(present: Mapping[str, str | None], where: str) -> list[str]:
    """A line for each name that begins with the prefix, holds something, and is no setting."""
    return [
        f"{name}{where} is not a setting{_nearest(name, list(_VARIABLES))}"
        for name, value in ((name.upper(), value) for name, value in present.items())
        if value and name.startswith(PREFIX) and name not in _VARIABLES and not _foreign(name, value)
    ]


def _foreign(name: str, value: str) -> bool:
    return bool(_FOREIGN.fullmatch(name) or (name.endswith("_PORT") and _FOREIGN_VALUE.match(value)))


def _nearest(name: str, names: list[str]) -> str:
    # Without the prefix, which would make everything look alike.
    bare = {known.removeprefix(PREFIX): known for known in names}
    found = difflib.get_close_matches(name.removeprefix(PREFIX), bare, n=1, cutoff=0.5)
    return f"; did you mean {bare[found[0]]}?" if found else "; `tracker settings` lists them all"


def _invalid(error: ValidationError, names: Mapping[tuple[str, ...], str]) -> list[str]:
    """One line for each setting, without the value: it may be a secret."""
    lines: dict[tuple[str, ...], str] = {}
    for detail in error.errors(include_input=False, include_url=False, include_context=False):
        field = tuple(str(part) for part in detail["loc"][:2])
        text = re.sub(r"^(Input|String) should ", "must ", detail["msg"]).removeprefix("Value error, ")
        lines.setdefault(field, f"{names.get(field, '.'.join(field))}: {text}")
    return list(lines.values())
