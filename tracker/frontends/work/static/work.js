// Adds finished items to the page as they come. The browser reconnects by itself, from the last event on.
"use strict";

const ROWS = 20;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function size(bytes) {
  const unit = bytes >= 1 ? Math.min(UNITS.length - 1, Math.floor(Math.log(bytes) / Math.log(1024))) : 0;
  return `${(bytes / 1024 ** unit).toFixed(Math.min(unit, 1))} ${UNITS[unit]}`;
}

new EventSource("live").addEventListener("done", (event) => {
  const entry = JSON.parse(event.data);
  const row = document.createElement("tr");
  for (const text of [entry.downloader, entry.item || "–", size(entry.bytes), `${(entry.seconds / 86400).toFixed(1)} d`]) {
    row.append(Object.assign(document.createElement("td"), { textContent: text }));
  }
  const table = document.getElementById("last");
  table.prepend(row);
  while (table.rows.length > ROWS) table.deleteRow(-1);
});
