// Drag and drop for upload forms. Without JavaScript their file input works alone.

for (const form of document.querySelectorAll("form[data-upload]")) {
  const place = form.querySelector("[data-drop]");
  const input = place.querySelector("input[type=file]");
  let depth = 0;
  place.querySelector("[data-drop-hint]").hidden = false;

  const mark = (on) => place.classList.toggle("over", on);
  const hasFiles = (event) => [...event.dataTransfer.types].includes("Files");

  place.addEventListener("dragenter", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    depth += 1;
    mark(true);
  });
  place.addEventListener("dragover", (event) => {
    if (hasFiles(event)) event.preventDefault();
  });
  place.addEventListener("dragleave", () => {
    depth = Math.max(0, depth - 1);
    if (!depth) mark(false);
  });
  place.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    depth = 0;
    mark(false);
    input.files = event.dataTransfer.files;
    form.requestSubmit();
  });
}
