// On every page: the menu, the theme switch, copy buttons, confirmations and error notices.

const root = document.documentElement;

function chosenTheme() {
  return root.dataset.theme || "auto";
}

function showTheme() {
  for (const button of document.querySelectorAll("[data-theme-choice]")) {
    button.setAttribute("aria-pressed", String(button.dataset.themeChoice === chosenTheme()));
  }
}

function chooseTheme(theme) {
  if (theme === "auto") {
    delete root.dataset.theme;
  } else {
    root.dataset.theme = theme;
  }
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // Storage is blocked: the choice lasts for this page only.
  }
  showTheme();
  document.dispatchEvent(new CustomEvent("theme"));
}

export function showNotice(text, tone = "") {
  const place = document.getElementById("notices");
  if (!place) return;
  const notice = document.createElement("p");
  notice.className = `notice ${tone}`;
  notice.textContent = text;
  place.replaceChildren(notice);
}

async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    flash(button, "Copied");
  } catch {
    // Browsers allow clipboard writes only over TLS or on localhost. Select the text instead, for Ctrl+C.
    const code = button.parentElement.querySelector("code");
    if (code) getSelection().selectAllChildren(code);
    flash(button, "Press Ctrl+C");
  }
}

function flash(button, text) {
  const message = document.createElement("span");
  message.className = "said";
  message.setAttribute("role", "status");
  message.textContent = text;
  button.querySelector(".said")?.remove();
  button.append(message);
  setTimeout(() => message.remove(), 1600);
}

function closeBoxes(except) {
  for (const box of document.querySelectorAll("details.confirm[open]")) {
    if (!except || !box.contains(except)) box.open = false;
  }
}

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  if (!target) return;
  closeBoxes(target);
  const menu = target.closest("[data-menu]");
  if (menu) {
    const open = menu.getAttribute("aria-expanded") !== "true";
    menu.setAttribute("aria-expanded", String(open));
    document.body.classList.toggle("menu-open", open);
  }
  const theme = target.closest("[data-theme-choice]");
  if (theme) chooseTheme(theme.dataset.themeChoice);
  const copied = target.closest("[data-copy]");
  if (copied) copy(copied);
  const close = target.closest("[data-close]");
  if (close) {
    const box = close.closest("details");
    box.open = false;
    box.querySelector("summary").focus();
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    const box = document.querySelector("details.confirm[open]");
    if (box) {
      box.open = false;
      box.querySelector("summary").focus();
    }
  }
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

// A form is sent once, however often its button is clicked.
document.addEventListener("submit", (event) => {
  if (event.target.method === "post" && !event.defaultPrevented) {
    setTimeout(() => event.target.querySelectorAll("button").forEach((button) => { button.disabled = true; }));
  }
});
addEventListener("pageshow", () => document.querySelectorAll("form button:disabled").forEach((button) => { button.disabled = false; }));

// Filters table rows by the typed words; all rows are on the page.
document.addEventListener("input", (event) => {
  const list = event.target instanceof HTMLInputElement && event.target.dataset.filters;
  if (!list) return;
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of document.querySelectorAll(`#${list} [data-row]`)) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    if (!row.hidden) shown += 1;
  }
  for (const group of document.querySelectorAll(`#${list} [data-group]`)) {
    group.hidden = !group.querySelector("[data-row]:not([hidden])");
  }
  const none = document.querySelector(`[data-none="${list}"]`);
  if (none) none.hidden = shown > 0;
});

// The checkboxes of a list: one for all rows, and how many are chosen.
function showSelected(form) {
  const boxes = [...form.querySelectorAll("td.pick input")];
  const chosen = boxes.filter((box) => box.checked).length;
  const all = form.querySelector("[data-select-all]");
  all.hidden = false;
  all.checked = chosen > 0 && chosen === boxes.length;
  all.indeterminate = chosen > 0 && chosen < boxes.length;
  const text = form.querySelector("[data-selected]");
  text.dataset.text ||= text.textContent;
  text.textContent = chosen ? `${chosen} selected:` : text.dataset.text;
}

function findSelectable(within) {
  for (const form of within.querySelectorAll("[data-selectable]:has(.bulk)")) showSelected(form);
}

document.addEventListener("change", (event) => {
  const form = event.target.closest("[data-selectable]");
  if (!form || !event.target.closest(".pick")) return;
  if (event.target.matches("[data-select-all]")) {
    for (const box of form.querySelectorAll("td.pick input")) box.checked = event.target.checked;
  }
  showSelected(form);
});
document.addEventListener("htmx:load", () => findSelectable(document));

// A self-refreshing list waits while a confirmation is open or an element in it has the focus.
document.addEventListener("htmx:beforeRequest", (event) => {
  const list = event.detail.elt;
  if (!list.matches("[data-keeps-open]")) return;
  if (document.hidden || list.querySelector("details[open]") || list.contains(document.activeElement)) event.preventDefault();
});

for (const form of document.querySelectorAll("[data-submits-itself]")) {
  form.addEventListener("change", () => form.requestSubmit());
}
for (const button of document.querySelectorAll("[data-without-scripts]")) button.hidden = true;
for (const input of document.querySelectorAll("input[data-filters]")) {
  if (input.value) input.dispatchEvent(new Event("input", { bubbles: true }));
}

document.addEventListener("htmx:responseError", (event) => {
  const response = event.detail.xhr;
  if (response.status === 401) {
    location.assign("/sign-in");
    return;
  }
  let text = `The tracker returned HTTP status ${response.status}.`;
  try {
    const problem = JSON.parse(response.responseText);
    text = problem.detail || problem.title || text;
  } catch {
    // No problem details: show the status.
  }
  showNotice(text, "bad");
});
document.addEventListener("htmx:sendError", () => showNotice("The tracker does not respond. Is it running?", "bad"));
document.addEventListener("htmx:timeout", () => showNotice("The tracker took too long to respond.", "bad"));

showTheme();
findSelectable(document);
