// Before the first paint: the colours this browser was told to use. "auto" is what the system says.
"use strict";
(() => {
  let theme = "auto";
  try {
    theme = localStorage.getItem("theme") || "auto";
  } catch {
    // Storage is forbidden: the system decides.
  }
  if (theme === "light" || theme === "dark") {
    document.documentElement.dataset.theme = theme;
  }
})();
