// Live updates of the overview, from server-sent events. A hidden page closes the stream. A broken stream is reopened
// with growing delays, up to half a minute. When the session has ended, the browser goes to the sign-in page.
//
// A tracker that dies or hangs may leave the stream open and silent. The page therefore checks the age of its data:
// without new data for STALE ms it turns grey and shows since when; without any event for STALE ms readiness is
// unknown. A stream without any event for SILENT ms is reopened.

import { liveChart, chartOf } from "./charts.js";

const page = document.querySelector("[data-live-page]");
const MAX_WAIT = 30000;
const STALE = 5000;
const SILENT = 15000;
const title = document.title;
let stream = null;
let wait = 1000;
let timer = 0;
let lastEvent = performance.now();
let lastData = { at: lastEvent, clock: Date.now() };
let opened = lastEvent;
let range = document.querySelector("[data-range][aria-current]")?.dataset.range || "2m";

function state(tone, text) {
  const badge = document.querySelector("[data-stream]");
  badge.classList.toggle("bad", tone === "bad");
  badge.querySelector(".dot").className = `dot ${tone}`;
  const place = badge.querySelector("[data-stream-text]");
  if (place.textContent !== text) place.textContent = text;
}

function open() {
  clearTimeout(timer);
  stream?.close();
  opened = performance.now();
  stream = new EventSource(page.dataset.livePage);
  stream.addEventListener("figures", (event) => {
    wait = 1000;
    lastEvent = performance.now();
    lastData = { at: lastEvent, clock: Date.now() };
    age();
    state("good", "Live");
    show(JSON.parse(event.data));
  });
  stream.addEventListener("unavailable", (event) => {
    lastEvent = performance.now();
    if (!age()) state("bad", "Store unavailable");
    const data = JSON.parse(event.data);
    problems(data.problems, data.text);
    storeNotices(data.notices);
  });
  stream.addEventListener("signed-out", () => {
    stream.close();
    location.assign("/sign-in");
  });
  stream.addEventListener("error", () => {
    if (!age()) state("warn", "Connecting …");
    // CONNECTING: the browser retries by itself. CLOSED: the response was no stream.
    if (stream.readyState === EventSource.CLOSED) {
      timer = setTimeout(reopen, wait);
      wait = Math.min(wait * 2, MAX_WAIT);
    }
  });
}

// Marks the page as stale or current. Returns whether it is stale.
function age() {
  const now = performance.now();
  const stale = now - lastData.at >= STALE;
  page.classList.toggle("stale", stale);
  const wanted = stale ? `No data · ${title}` : title;
  if (document.title !== wanted) document.title = wanted;
  if (stale) state("bad", `No data since ${moment(lastData.clock)}`);
  if (now - lastEvent >= STALE) readiness("", "Readiness unknown");
  return stale;
}

function moment(clock) {
  const when = new Date(clock);
  const time = when.toLocaleTimeString([], { hour12: false });
  return when.toDateString() === new Date().toDateString() ? time : `${when.toLocaleDateString()} ${time}`;
}

setInterval(() => {
  if (document.hidden) return;
  age();
  if (performance.now() - Math.max(lastEvent, opened) >= SILENT && stream.readyState !== EventSource.CLOSED) open();
}, 1000);

async function reopen() {
  try {
    const response = await fetch("/history/requests.json?range=2m", { redirect: "manual", signal: AbortSignal.timeout(SILENT) });
    if (response.type === "opaqueredirect" || response.status === 401) {
      location.assign("/sign-in");
      return;
    }
  } catch {
    // No response yet: opening fails too, and waits again.
  }
  open();
}

function show(figures) {
  for (const element of page.querySelectorAll("span[data-live]")) {
    const text = figures.texts[element.dataset.live];
    if (text !== undefined && element.textContent !== text) element.textContent = text;
  }
  for (const tile of page.querySelectorAll("[data-tile]")) {
    for (const tone of ["good", "warn", "bad"]) tile.classList.toggle(tone, figures.tones[tile.dataset.tile] === tone);
  }
  for (const svg of page.querySelectorAll("[data-spark]")) spark(svg, figures.sparks[svg.dataset.spark] || []);
  if (range === "2m") {
    for (const [name, data] of Object.entries(figures.charts)) liveChart(name)?.show(data);
  }
  failures(figures.failures);
  problems(figures.problems);
  storeNotices(figures.notices);
  const welcome = page.querySelector("[data-until-requests]");
  if (welcome && figures.requests) welcome.remove();
}

function spark(svg, values) {
  const numbers = values.map((value) => value ?? 0);
  const largest = Math.max(...numbers, 1e-9);
  const step = 120 / Math.max(1, numbers.length - 1);
  const points = numbers.map((value, index) => `${(index * step).toFixed(1)} ${(27 - 25 * (value / largest)).toFixed(1)}`);
  const line = points.length ? `M${points.join("L")}` : "";
  svg.querySelector(".line").setAttribute("d", line);
  svg.querySelector(".area").setAttribute("d", line && `${line}L120 28L0 28Z`);
}

const whole = new Intl.NumberFormat("en");

function failures(rows) {
  const table = page.querySelector("[data-failures]");
  const body = table.querySelector("tbody");
  const key = JSON.stringify(rows);
  if (table.dataset.key === key) return;
  table.dataset.key = key;
  body.replaceChildren(...rows.map(([reason, recent, total]) => {
    const row = document.createElement("tr");
    const name = document.createElement("th");
    name.scope = "row";
    const link = document.createElement("a");
    link.href = `/failures?reason=${encodeURIComponent(reason)}`;
    link.textContent = reason;
    name.append(link);
    const cells = [recent, total].map((count) => {
      const cell = document.createElement("td");
      cell.className = "number";
      cell.textContent = whole.format(count);
      return cell;
    });
    row.append(name, ...cells);
    return row;
  }));
  table.querySelector("[data-no-failures]").hidden = rows.length > 0;
  table.querySelector("table").hidden = rows.length === 0;
}

// The badge says what /ready does: a tracker serves peers while the main store is unavailable.
function problems(list, otherwise = "") {
  const box = page.querySelector("[data-problems]");
  const text = list.join(" · ") || otherwise;
  if (box.textContent !== text) box.textContent = text;
  box.hidden = !text;
  if (list.length) readiness("bad", "Not ready");
  else readiness("good", "Ready");
}

function storeNotices(list) {
  const box = document.querySelector("[data-store-notices]");
  const place = box.querySelector("[data-store-notices-text]");
  const text = list.join(" · ");
  if (place.textContent !== text) place.textContent = text;
  box.hidden = !list.length;
}

function readiness(tone, text) {
  const ready = document.querySelector("[data-ready]");
  ready.className = `badge ${tone}`;
  ready.querySelector(".dot").className = `dot ${tone}`;
  ready.querySelector("[data-ready-text]").textContent = text;
}

// Changes the time range without loading the page.
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element && event.target.closest("a[data-range]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  range = link.dataset.range;
  history.replaceState(history.state, "", link.href);
  for (const each of document.querySelectorAll("a[data-range]")) {
    if (each === link) each.setAttribute("aria-current", "true");
    else each.removeAttribute("aria-current");
  }
  load();
});

function load() {
  for (const figure of page.querySelectorAll("figure[data-chart]")) chartOf(figure)?.load(figure.dataset.chart.replace(/range=\w+/, `range=${range}`));
}

// Longer time ranges change slowly.
setInterval(() => {
  if (range !== "2m" && !document.hidden) load();
}, 30000);

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    stream?.close();
    state("", "Paused");
  } else {
    age();
    open();
  }
});
addEventListener("pagehide", () => stream?.close());
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  age();
  open();
});

open();
