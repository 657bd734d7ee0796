// Files may be dropped on the form that uploads them; without scripts its own input does.

for (const form of document.querySelectorAll("form[data-upload]")) {
  const place = form.querySelector("[data-drop]");
  const input = place.querySelector("input[type=file]");
  let depth = 0;
  place.querySelector("[data-drop-hint]").hidden = false;

  const mark = (on) => place.classList.toggle("over", on);
  const holdsFiles = (event) => [...event.dataTransfer.types].includes("Files");

  place.addEventListener("dragenter", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    depth += 1;
    mark(true);
  });
  place.addEventListener("dragover", (event) => {
    if (holdsFiles(event)) event.preventDefault();
  });
  place.addEventListener("dragleave", () => {
    depth = Math.max(0, depth - 1);
    if (!depth) mark(false);
  });
  place.addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    depth = 0;
    mark(false);
    input.files = event.dataTransfer.files;
    form.requestSubmit();
  });
}
