// The overview, kept up to date by a stream of events. While the page is hidden the stream is closed; when it breaks,
// it is opened again, ever less often up to half a minute, and a session that ended leads to the sign-in page.

import { liveChart, chartOf } from "./charts.js";

const page = document.querySelector("[data-live-page]");
const LONGEST = 30000;
let stream = null;
let wait = 1000;
let timer = 0;
let view = document.querySelector("[data-view][aria-current]")?.dataset.view || "2m";

function state(tone, text) {
  const badge = document.querySelector("[data-stream]");
  badge.querySelector(".dot").className = `dot ${tone}`;
  const place = badge.querySelector("[data-stream-text]");
  if (place.textContent !== text) place.textContent = text;
}

function open() {
  clearTimeout(timer);
  stream?.close();
  stream = new EventSource(page.dataset.livePage);
  stream.addEventListener("figures", (event) => {
    wait = 1000;
    state("good", "live");
    show(JSON.parse(event.data));
  });
  stream.addEventListener("away", (event) => {
    state("bad", "store away");
    problems(JSON.parse(event.data).problems);
  });
  stream.addEventListener("signed-out", () => {
    stream.close();
    location.assign("/sign-in");
  });
  stream.addEventListener("error", () => {
    state("warn", "connecting …");
    // CONNECTING: the browser tries again by itself. CLOSED: the answer was no stream.
    if (stream.readyState === EventSource.CLOSED) {
      timer = setTimeout(comeBack, wait);
      wait = Math.min(wait * 2, LONGEST);
    }
  });
}

async function comeBack() {
  try {
    const answer = await fetch("/figures/requests.json?view=2m", { redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 401) {
      location.assign("/sign-in");
      return;
    }
  } catch {
    // Nobody answers yet: opening fails too, and waits again.
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
  if (view === "2m") {
    for (const [name, data] of Object.entries(figures.charts)) liveChart(name)?.show(data);
  }
  failures(figures.failures);
  problems(figures.problems);
  const welcome = page.querySelector("[data-until-requests]");
  if (welcome && figures.requests) welcome.remove();
}

function spark(svg, values) {
  const numbers = values.map((value) => value ?? 0);
  const most = Math.max(...numbers, 1e-9);
  const step = 120 / Math.max(1, numbers.length - 1);
  const points = numbers.map((value, index) => `${(index * step).toFixed(1)} ${(27 - 25 * (value / most)).toFixed(1)}`);
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
  body.replaceChildren(...rows.map(([reason, late, ever]) => {
    const row = document.createElement("tr");
    const name = document.createElement("th");
    name.scope = "row";
    name.textContent = reason;
    const cells = [late, ever].map((count) => {
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

function problems(list) {
  const box = page.querySelector("[data-problems]");
  const text = list.join(" · ");
  if (box.textContent !== text) box.textContent = text;
  box.hidden = !list.length;
  const ready = document.querySelector("[data-ready]");
  const tone = list.length ? "bad" : "good";
  ready.className = `badge ${tone}`;
  ready.querySelector(".dot").className = `dot ${tone}`;
  ready.querySelector("[data-ready-text]").textContent = list.length ? "Not ready" : "Ready";
}

// How far back: without a new page.
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element && event.target.closest("a[data-view]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  view = link.dataset.view;
  history.replaceState(history.state, "", link.href);
  for (const each of document.querySelectorAll("a[data-view]")) {
    if (each === link) each.setAttribute("aria-current", "true");
    else each.removeAttribute("aria-current");
  }
  load();
});

function load() {
  for (const figure of page.querySelectorAll("figure[data-chart]")) chartOf(figure)?.load(figure.dataset.chart.replace(/view=\w+/, `view=${view}`));
}

// The longer views change slowly.
setInterval(() => {
  if (view !== "2m" && !document.hidden) load();
}, 30000);

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    stream?.close();
    state("", "paused");
  } else {
    open();
  }
});
addEventListener("pagehide", () => stream?.close());
addEventListener("pageshow", (event) => { if (event.persisted) open(); });

open();
