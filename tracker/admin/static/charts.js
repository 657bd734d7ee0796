// Charts: draws every figure.chart from the JSON at its data-chart URL, in the colours of the page. Redraws it when
// the colours or the width change. The JSON: {"x": [epoch seconds], "series": [{"name": …, "values": [number or null]}],
// "incomplete": whether the last slice has not ended; it is drawn dashed}.
//
//   data-kind    "rate" fills the first series, "lines" none, "steps" holds each value until the next
//   data-unit    shown after each value, "B/s" with binary prefixes;  data-height  in pixels;  data-scale="log" for values that span decades
//   data-live    the name of the chart in the live updates (live.js)
//   data-zoom    the page that shows the part that was dragged across, by its parameters since and until (epoch seconds)

const charts = new Map();
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);

function colour(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

function faded(text, alpha) {
  const parts = text.match(/[\d.]+/g) || [0, 0, 0];
  return `rgba(${parts[0]}, ${parts[1]}, ${parts[2]}, ${alpha})`;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

const POWERS = Array.from({ length: 60 }, (none, power) => 2 ** power);
const PREFIXES = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

function bytes(value, unit) {
  const power = value < 1024 ? 0 : Math.min(PREFIXES.length - 1, Math.floor(Math.log2(value) / 10));
  return `${short.format(value / 1024 ** power)} ${PREFIXES[power]}${unit}`;
}

function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit.startsWith("B")) return bytes(value, unit);
  const text = Math.abs(value) >= 100000 ? compact.format(value) : Math.abs(value) < 10 ? short.format(value) : Math.abs(value) >= 1000 ? whole.format(value) : plain.format(value);
  return text + unit;
}

function at(seconds, span) {
  const when = new Date(seconds * 1000);
  const clock = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...(span < 900 ? { second: "2-digit" } : {}), hour12: false });
  return span > 86400 ? `${when.toLocaleDateString([], { day: "numeric", month: "short" })} ${clock}` : clock;
}

const two = (number) => String(number).padStart(2, "0");

function timeTicks(self, splits) {
  const span = self.scales.x.max - self.scales.x.min;
  let day = null;
  return splits.map((seconds) => {
    // A label is centred below its tick; at the right edge it would be cut off.
    if (self.valToPos(seconds, "x") > self.bbox.width / devicePixelRatio - 16) return "";
    const when = new Date(seconds * 1000);
    if (span > 86400 * 1.5) {
      const today = when.toDateString();
      const turned = today !== day;
      day = today;
      if (turned || (when.getHours() === 0 && when.getMinutes() === 0)) return when.toLocaleDateString([], { day: "numeric", month: "short" });
    }
    return span < 900 ? `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}` : `${two(when.getHours())}:${two(when.getMinutes())}`;
  });
}

// The steps 1, 2, 5, 10 … from the last one <= `low` to the first one >= `high`.
function decadesBetween(low, high) {
  const steps = [];
  for (let exponent = Math.floor(Math.log10(low)) - 1; exponent <= Math.ceil(Math.log10(high)); exponent += 1) {
    steps.push(...[1, 2, 5].map((digit) => Number(`${digit}e${exponent}`)));
  }
  const first = steps.findLastIndex((step) => step <= low * 1.0001);
  const last = steps.findIndex((step) => step >= high * 0.9999);
  return steps.slice(Math.max(0, first), (last < 0 ? steps.length : last) + 1);
}

// The indices of values that no line reaches.
function lonely(values, spanGaps) {
  const found = values.flatMap((value, index) => (value === null ? [] : [index]));
  if (spanGaps) return found.length < 2 ? found : [];
  return found.filter((index) => (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null);
}

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.place = figure.querySelector(".plot");
    this.unit = figure.dataset.unit || "";
    this.kind = figure.dataset.kind || "lines";
    this.log = figure.dataset.scale === "log";
    this.data = null;
    this.plot = null;
    this.legend = document.createElement("div");
    this.legend.className = "legend";
    this.legend.setAttribute("aria-hidden", "true");
    this.place.after(this.legend);
    new ResizeObserver(() => this.resize()).observe(this.place);
  }

  async load(source) {
    this.figure.dataset.chart = source;
    this.source = source;
    try {
      const response = await fetch(source, { headers: { Accept: "application/json" }, redirect: "error" });
      if (!response.ok) throw new Error(String(response.status));
      const data = await response.json();
      if (this.source === source) this.show(data);
    } catch {
      this.showMessage("Could not load this chart");
    }
  }

  show(data) {
    const same = this.data && this.plot && this.data.series.map((s) => s.name).join() === data.series.map((s) => s.name).join();
    this.data = data;
    const span = data.x.length ? data.x[data.x.length - 1] - data.x[0] : 0;
    const resized = same && (span > 900) === (this.span > 900);
    this.span = span;
    if (!data.x.length || data.series.every((s) => s.values.every((value) => value === null))) {
      this.plot?.destroy();
      this.plot = null;
      this.showMessage(this.figure.dataset.empty || "No data yet");
      return;
    }
    if (resized) {
      this.plot.setData(this.columns());
    } else {
      this.draw();
    }
    this.updateLegend(null);
    this.describe();
  }

  // The values of each series, and those of its dashed end.
  columns() {
    // A logarithmic scale cannot show 0.
    const clean = this.log ? (value) => (value === null || value <= 0 ? null : value) : (value) => value;
    const all = this.data.series.map((series) => series.values.map(clean));
    const last = this.data.x.length - 1;
    const solid = this.data.incomplete ? all.map((values) => values.with(last, null)) : all;
    const dashed = all.map((values) => values.map((value, index) => (this.data.incomplete && index >= last - 1 ? value : null)));
    return [this.data.x, ...solid, ...dashed];
  }

  draw() {
    this.plot?.destroy();
    this.place.replaceChildren();
    this.plot = new uPlot(this.options(), this.columns(), this.place);
  }

  options() {
    const axis = { stroke: colour("--faint"), font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: colour("--line"), width: 1 } };
    const paths = this.kind === "steps" ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    const spanGaps = this.kind !== "rate";
    const series = this.data.series.map((each, index) => {
      const stroke = colour(`--series-${(index % 5) + 1}`);
      const filled = this.kind === "rate" && index === 0;
      return { label: each.name, stroke, width: 1.6, paths, spanGaps, points: { show: true, size: 5, filter: (plot, index) => lonely(plot.data[index], spanGaps) }, ...(filled ? { fill: faded(stroke, 0.12) } : {}) };
    });
    const dashed = series.map((each) => ({ ...each, fill: undefined, dash: [4, 4] }));
    return {
      width: Math.max(120, this.place.clientWidth),
      height: Number(this.figure.dataset.height) || 220,
      padding: [8, 6, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: Boolean(this.figure.dataset.zoom), y: false, setScale: false }, points: { size: 7 }, focus: { prox: -1 } },
      scales: {
        x: { time: true, range: (self, low, high) => (low === high ? [low - 3600, high + 3600] : [low, high]) },
        y: this.log ? { distr: 3, range: (self, low, high) => this.decades(low, high) } : { range: (self, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 0, 0.5) * 1.08] },
      },
      axes: [
        { ...axis, grid: { show: false }, space: 76, values: timeTicks, size: 30, gap: 8 },
        { ...axis, size: (self, values) => 14 + 6.6 * Math.max(3, ...(values || []).map((text) => (text ?? "").length)), space: 36, values: (self, splits) => splits.map((value) => (value === null ? "" : this.unit.startsWith("B") ? bytes(value, "") : Math.abs(value) >= 10000 ? compact.format(value) : short.format(value))), ...(this.unit.startsWith("B") ? { incrs: POWERS } : {}), ...(this.log ? { splits: (self, index, low, high) => decadesBetween(low, high) } : {}) },
      ],
      series: [{}, ...series, ...dashed],
      hooks: { setCursor: [(self) => this.updateLegend(self.cursor.idx)], setSelect: [(self) => this.zoom(self)] },
    };
  }

  // Opens the page of the part that was dragged across. A click selects nothing.
  zoom(self) {
    if (self.select.width < 8) return;
    const [since, until] = [self.select.left, self.select.left + self.select.width].map((place) => Math.round(self.posToVal(place, "x")));
    const page = new URL(this.figure.dataset.zoom, location.href);
    page.searchParams.set("since", since);
    page.searchParams.set("until", until);
    location.assign(page);
  }

  decades(low, high) {
    if (!(low > 0) || !(high > 0)) return [0.1, 10];
    const steps = decadesBetween(low, high);
    return steps.length > 1 ? [steps[0], steps[steps.length - 1]] : [steps[0] / 2, steps[0] * 2];
  }

  // The legend: the values under the pointer, or the newest ones.
  updateLegend(index) {
    const last = this.data.x.length - 1;
    const pointed = index !== null && index !== undefined && index <= last;
    const shownAt = pointed ? index : last;
    const parts = this.data.series.map((series, number) => {
      const part = document.createElement("span");
      part.className = `s${(number % 5) + 1}`;
      const value = document.createElement("b");
      value.textContent = shown(series.values[shownAt], this.unit);
      part.append(document.createElement("i"), `${series.name} `, value);
      return part;
    });
    const when = document.createElement("span");
    when.className = "at";
    when.textContent = at(this.data.x[shownAt], this.span) + (this.data.incomplete && shownAt === last ? " so far" : "");
    this.legend.replaceChildren(...parts, when);
  }

  // A summary for screen readers: the time range; min, max and newest value of each series.
  describe() {
    const x = this.data.x;
    const sentences = this.data.series.map((series) => {
      const values = series.values.filter((value) => value !== null);
      if (!values.length) return `${series.name}: no data.`;
      return `${series.name}: from ${shown(Math.min(...values), this.unit)} to ${shown(Math.max(...values), this.unit)}, last ${shown(values[values.length - 1], this.unit)}.`;
    });
    const text = this.figure.querySelector("[data-chart-text]");
    if (text) text.textContent = `From ${at(x[0], this.span)} to ${at(x[x.length - 1], this.span)}. ${sentences.join(" ")}${this.data.incomplete ? " The last slice has not ended." : ""}`;
  }

  showMessage(text) {
    const said = document.createElement("p");
    said.className = "nothing";
    said.textContent = text;
    this.place.replaceChildren(said);
    this.legend.replaceChildren();
  }

  resize() {
    if (this.plot && this.place.clientWidth) this.plot.setSize({ width: this.place.clientWidth, height: Number(this.figure.dataset.height) || 220 });
  }

  repaint() {
    if (this.plot) this.draw();
  }
}

export function chartOf(figure) {
  return charts.get(figure);
}

export function liveChart(name) {
  for (const [figure, chart] of charts) if (figure.dataset.live === name) return chart;
  return null;
}

export function drawIn(root) {
  for (const figure of root.querySelectorAll("figure[data-chart]")) {
    if (charts.has(figure)) continue;
    const chart = new Chart(figure);
    charts.set(figure, chart);
    chart.load(figure.dataset.chart);
  }
  for (const figure of charts.keys()) if (!figure.isConnected) charts.delete(figure);
}

function repaint() {
  for (const chart of charts.values()) chart.repaint();
}

drawIn(document);
document.addEventListener("htmx:load", (event) => drawIn(event.detail.elt));
document.addEventListener("theme", repaint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
