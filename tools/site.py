"""A hook of mkdocs: adds pages from outside docs/ to the site."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "loadtest/bench/README.md", "redis.conf")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in OUTSIDE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Rewrites links between docs/ and those pages."""
    for name in OUTSIDE:
        markdown = markdown.replace(f"](../{name}", f"]({name}")
    return re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown)  # links from those pages into docs/
