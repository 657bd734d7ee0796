"""A hook of mkdocs: pages that lie outside docs/, because people look for them elsewhere, are on the site as well."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = ("CHANGELOG.md", "bench/README.md", "redis.conf")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in OUTSIDE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """What is beside docs/ in the repository is inside the site."""
    for name in OUTSIDE:
        markdown = markdown.replace(f"](../{name}", f"]({name}")
    return markdown.replace("](../docs/", "](../")  # from those outside to the others
