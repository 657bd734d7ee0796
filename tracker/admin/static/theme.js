// Sets the chosen theme before the first paint. "auto" follows the system.
"use strict";
(() => {
  let theme = "auto";
  try {
    theme = localStorage.getItem("theme") || "auto";
  } catch {
    // Storage is blocked: follow the system.
  }
  if (theme === "light" || theme === "dark") {
    document.documentElement.dataset.theme = theme;
  }
})();
