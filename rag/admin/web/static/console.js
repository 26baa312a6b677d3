// What moves by itself. Every page works without this.
"use strict";

// A part that is live is shown anew whenever its events say so: the same page, made by the server.
for (const part of document.querySelectorAll("[data-live]:not([data-ended])")) {
  const events = new EventSource(part.dataset.live);
  const showAnew = async () => {
    const reply = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!reply.ok) return;
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const fresh = page.getElementById(part.id);
    if (fresh && !part.contains(document.activeElement)) part.replaceChildren(...fresh.childNodes);
    nameCells();
  };
  events.addEventListener("message", showAnew);
  events.addEventListener("end", () => {
    events.close();
    if (part.contains(document.activeElement)) document.activeElement.blur();
    showAnew();
  });
}

// Files can be dropped on the field that chooses them.
for (const area of document.querySelectorAll(".drop")) {
  const input = area.querySelector("input[type=file]");
  const mark = (on) => (event) => {
    event.preventDefault();
    area.classList.toggle("over", on);
  };
  area.addEventListener("dragover", mark(true));
  area.addEventListener("dragleave", mark(false));
  area.addEventListener("drop", (event) => {
    mark(false)(event);
    if (event.dataTransfer.files.length) input.files = event.dataTransfer.files;
  });
}

// On a phone a row of a table is a block of lines, and each names its column.
const nameCells = () => {
  for (const table of document.querySelectorAll(".scroll table")) {
    const headings = [...table.tHead.rows[0].cells].map((cell) => (cell.querySelector(".unseen") ? "" : cell.textContent));
    for (const row of [...table.tBodies[0].rows, ...(table.tFoot?.rows ?? [])]) {
      for (const cell of row.cells) cell.dataset.heading = headings[cell.cellIndex];
    }
    table.classList.add("named");
  }
};
nameCells();

// Who names a reader means that reader.
for (const [name, value] of [["user", "one"], ["groups", "one"], ["allow", "restricted"]]) {
  for (const input of document.querySelectorAll(`form.fields input[name=${name}]`)) {
    const choice = input.form.querySelector(`input[type=radio][name=who][value=${value}]`);
    if (choice) input.addEventListener("input", () => { choice.checked ||= input.value !== ""; });
  }
}
