// The page of the past: refreshes a range that ends now, and zooms by keys while the focus is on a link of the range.

import { chartOf } from "./charts.js";

const KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "earlier", ArrowRight: "later" };

document.addEventListener("keydown", (event) => {
  const links = event.target instanceof Element && event.target.closest("[data-zoom-links]");
  if (!links || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  document.getElementById(`zoom-${KEYS[event.key]}`)?.click();
});

// A chart changes once per slice; a range of minutes every second or two.
let waited = 0;
setInterval(() => {
  const range = document.querySelector("[data-history][data-ends-now]");
  waited += 2;
  if (!range || document.hidden || waited < Math.min(30, Number(range.dataset.history))) return;
  waited = 0;
  for (const figure of range.querySelectorAll("figure[data-chart]")) chartOf(figure)?.load(figure.dataset.chart);
}, 2000);
