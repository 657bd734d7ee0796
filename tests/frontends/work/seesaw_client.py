"""Runs one item through a pipeline of seesaw 0.10.3, in a process of its own: get an item, count it, report it. With
`file`: get an item, write that file, count its bytes, upload it where the tracker says, report the item.

Called with a JSON object: url, name, version, domains (bytes by name), id, report (of another item), attempts. Prints
the item's log; ends when the item is complete, or after so many attempts that failed.
"""

import collections
import collections.abc
import json
import sys
from pathlib import Path
from typing import Any

for _name in collections.abc.__all__:  # moved there by Python 3.10
    setattr(collections, _name, getattr(collections.abc, _name))

from seesaw.item import Item, ItemValue  # type: ignore[import-not-found]  # noqa: E402
from seesaw.pipeline import Pipeline  # type: ignore[import-not-found]  # noqa: E402
from seesaw.task import SimpleTask  # type: ignore[import-not-found]  # noqa: E402
from seesaw.tracker import (  # type: ignore[import-not-found]  # noqa: E402
    GetItemFromTracker,
    PrepareStatsForTracker,
    SendDoneToTracker,
    TrackerRequest,
    UploadWithTracker,
)
from tornado.ioloop import IOLoop  # type: ignore[import-not-found]  # noqa: E402

RETRY_SECONDS = 0.05
"""Instead of a minute, and 10 s more after each failure."""


class Count(SimpleTask):  # type: ignore[misc]
    """Writes what is reported; ``report`` names another item."""

    def __init__(self, options: dict[str, object]) -> None:
        super().__init__("Count")
        self._options = options

    def process(self, item: Item) -> None:
        options = self._options
        item["stats"] = {
            "downloader": options["name"],
            "version": options["version"],
            "item": options.get("report") or item["item_name"],
            "bytes": options["domains"],
            "id": options["id"],
        }


class Write(SimpleTask):  # type: ignore[misc]
    """Writes what was downloaded."""

    def __init__(self, file: str) -> None:
        super().__init__("Write")
        self._file = file

    def process(self, item: Item) -> None:
        Path(self._file).write_text(f"data of {item['item_name']}", encoding="utf-8")


def uploading(options: dict[str, Any]) -> list[Any]:
    """The tasks of a pipeline as projects have them."""
    url, name, version, file = (options[field] for field in ("url", "name", "version", "file"))
    defaults = {"downloader": name, "version": version}
    return [
        Write(file),
        PrepareStatsForTracker(defaults=defaults, file_groups={"data": [file]}),
        UploadWithTracker(url, name, files=[file], version=version),
    ]


def main() -> None:
    options = json.loads(sys.argv[1])
    TrackerRequest.DEFAULT_RETRY_DELAY = RETRY_SECONDS
    TrackerRequest.increment_retry_delay = lambda _self, max_delay=300: None
    pipeline = Pipeline(
        GetItemFromTracker(options["url"], options["name"], options["version"]),
        *(uploading(options) if "file" in options else [Count(options)]),
        SendDoneToTracker(options["url"], ItemValue("stats")),
    )
    item = Item(pipeline, "1", 1)
    failures = 0

    def on_output(_item: Item, text: str) -> None:
        nonlocal failures
        sys.stdout.write(text)
        failures += "Retrying" in text
        if failures >= options["attempts"]:
            IOLoop.instance().stop()

    item.on_output.handle(on_output)
    pipeline.on_finish_item.handle(lambda _pipeline, _item: IOLoop.instance().stop())
    IOLoop.instance().add_callback(pipeline.enqueue, item)
    IOLoop.instance().start()
    sys.stdout.write(json.dumps({"state": item.item_state, "properties": item.properties}))


if __name__ == "__main__":
    main()
