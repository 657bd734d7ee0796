// Keeps everything on the page up to date: it begins with figures.json, and adds each finished item of the stream. The
// browser reconnects by itself, from the last event on.
"use strict";

const ROWS = 20;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const SVG = "http://www.w3.org/2000/svg";
const WINDOW = 7200; // seconds over which the rate is averaged
const MAX_POINTS = 2000;

const columns = document.body.dataset.columns.split(" ");
let figures;
let showsAll = false;
let isDue = false;

function size(bytes) {
  const unit = bytes >= 1 ? Math.min(UNITS.length - 1, Math.floor(Math.log(bytes) / Math.log(1024))) : 0;
  return `${(bytes / 1024 ** unit).toFixed(Math.min(unit, 1))} ${UNITS[unit]}`;
}

function amount(column, number) {
  if (column === "bytes") return size(number);
  return column === "seconds" ? `${(number / 86400).toFixed(1)} d` : number.toLocaleString("en");
}

function rowOf(texts) {
  const row = document.createElement("tr");
  for (const text of texts) row.append(Object.assign(document.createElement("td"), { textContent: text }));
  return row;
}

function finishedRow(entry) {
  const amounts = columns.filter((column) => column !== "items").map((column) => amount(column, entry[column]));
  return rowOf([entry.downloader, entry.title || entry.item || "–", ...amounts]);
}

function addTo(series, at, number) {
  const last = series.length ? series[series.length - 1][1] : 0;
  series.push([at, last + number]);
  if (series.length > MAX_POINTS) series.splice(1, 1);
}

// Shows the leaderboards of these periods, without an earlier one; a new week or month begins empty.
function turnTo(periods) {
  if (String(periods) > String(Object.keys(figures.ranks))) {
    figures.ranks = Object.fromEntries(periods.map((period) => [period, figures.ranks[period] || []]));
  }
}

// Adds a finished item to all sums, leaderboards and figures.
function add(entry) {
  turnTo(entry.periods);
  const more = { items: 1, bytes: entry.bytes, seconds: entry.seconds };
  for (const column of ["items", "bytes"]) figures.totals[column] += more[column];
  for (const [domain, bytes] of Object.entries(entry.domain_bytes)) {
    figures.domain_bytes[domain] = (figures.domain_bytes[domain] || 0) + bytes;
  }
  for (const ranks of entry.periods.flatMap((period) => (figures.ranks[period] ? [figures.ranks[period]] : []))) {
    let rank = ranks.find((each) => each.name === entry.downloader);
    if (!rank) ranks.push((rank = { name: entry.downloader, items: 0, bytes: 0, seconds: 0 }));
    for (const column of ["items", "bytes", "seconds"]) rank[column] += more[column];
    ranks.sort((a, b) => b[columns[0]] - a[columns[0]]);
  }
  addTo(figures.items_done_chart, entry.at, 1);
  addTo(figures.bytes_chart, entry.at, entry.bytes);
  addTo((figures.downloader_items_chart[entry.downloader] ||= []), entry.at, 1);
  addTo((figures.downloader_chart[entry.downloader] ||= []), entry.at, entry.bytes);
  const last = document.getElementById("last");
  last.prepend(finishedRow(entry));
  while (last.rows.length > ROWS) last.deleteRow(-1);
}

function line(series, begin, end, top, color) {
  const path = document.createElementNS(SVG, "polyline");
  const points = series.filter(([at]) => at >= begin).map(([at, number]) => {
    return `${((at - begin) / (end - begin)) * 600},${200 - (number / top) * 196}`;
  });
  path.setAttribute("points", points.join(" "));
  path.setAttribute("fill", "none");
  path.setAttribute("stroke", color);
  path.setAttribute("stroke-width", "2");
  return path;
}

function drawChart(id, total, series, names) {
  const times = total.map(([at]) => at);
  const begin = Math.min(...times);
  const end = Math.max(...times, begin + 1);
  const top = Math.max(1, ...total.map(([, number]) => number));
  const lines = [line(total, begin, end, top, "currentColor")];
  names.forEach((name, i) => lines.push(line(series[name] || [], begin, end, top, colorOf(i))));
  document.getElementById(id).replaceChildren(...(times.length ? lines : []));
}

function colorOf(i) {
  return `hsl(${i * 67} 70% 50%)`;
}

// Items per hour, over the last two hours of the chart.
function rate(series) {
  if (series.length < 2) return "–";
  const [end, last] = series[series.length - 1];
  const [begin, first] = series.find(([at]) => at >= end - WINDOW);
  return end > begin ? (((last - first) * 3600) / (end - begin)).toFixed(0) : "–";
}

function draw() {
  isDue = false;
  for (const name of ["todo", "out", "done"]) {
    document.getElementById(name).textContent = figures.counts[name].toLocaleString("en");
  }
  document.getElementById("bytes").textContent = size(figures.totals.bytes);
  document.getElementById("rate").textContent = rate(figures.items_done_chart);
  const domains = Object.entries(figures.domain_bytes).sort((a, b) => b[1] - a[1]);
  document.getElementById("domains").replaceChildren(...domains.map(([name, bytes]) => rowOf([name, size(bytes)])));
  const spans = Object.keys(figures.ranks);
  document.querySelectorAll("[data-span]").forEach((table, i) => {
    const ranks = figures.ranks[spans[i]].slice(0, showsAll ? undefined : ROWS);
    const section = table.closest("section");
    table.dataset.span = spans[i];
    section.querySelector("h2").textContent = `Leaderboard: ${spans[i] || "all time"}`;
    section.hidden = !ranks.length;
    table.replaceChildren(...ranks.map((rank) => rowOf([rank.name, ...columns.map((each) => amount(each, rank[each]))])));
  });
  document.getElementById("all").hidden = showsAll || Object.values(figures.ranks).every((each) => each.length <= ROWS);
  const names = figures.ranks[""].slice(0, 5).map((rank) => rank.name);
  drawChart("chart-items", figures.items_done_chart, figures.downloader_items_chart, names);
  drawChart("chart-bytes", figures.bytes_chart, figures.downloader_chart, names);
  const labels = names.map((name, i) => {
    const label = Object.assign(document.createElement("span"), { textContent: `${name} ` });
    label.style.color = colorOf(i);
    return label;
  });
  document.getElementById("legend").replaceChildren("all ", ...labels);
}

function redraw() {
  if (!isDue) requestAnimationFrame(draw);
  isDue = true;
}

async function begin() {
  for (const url of document.querySelectorAll(".url")) url.textContent = new URL(".", location).href.replace(/\/$/, "");
  figures = await (await fetch("figures.json")).json();
  document.getElementById("last").replaceChildren(...figures.last.map(finishedRow));
  document.getElementById("all").addEventListener("click", () => {
    showsAll = true;
    redraw();
  });
  const stream = new EventSource(`live?after=${figures.id}`);
  stream.addEventListener("done", (event) => {
    add(JSON.parse(event.data));
    redraw();
  });
  stream.addEventListener("counts", (event) => {
    figures.counts = JSON.parse(event.data);
    turnTo(figures.counts.periods);
    redraw();
  });
  redraw();
}

begin();
