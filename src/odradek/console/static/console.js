"use strict";
// Keys, dialogs, confirmations, and streams of records. Pages work without it, except for streams.

const editable = (target) => target.closest("input, textarea, select, [contenteditable]");

// In a narrow window the pages' row scrolls: show the name of this page.
document.querySelector("nav.main [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });

// --- dialogs ---
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-open]");
  if (opener) document.getElementById(opener.dataset.open)?.showModal();
  if (event.target.closest("[data-close]")) event.target.closest("dialog")?.close();
});

// --- typed confirmations: the button works once the name is right; the server checks it, too ---
const check = (field) => {
  const button = field.form.querySelector("button.danger");
  if (button) button.disabled = field.value !== field.dataset.confirm;
};
document.querySelectorAll("[data-confirm]").forEach(check);
document.addEventListener("input", (event) => {
  if (event.target.matches("[data-confirm]")) check(event.target);
});

// --- keys ---
let went = false;
const rows = () => [...document.querySelectorAll(".rows tbody tr, .record")];
const step = (by) => {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("here"));
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  all[at]?.classList.remove("here");
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || editable(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (went) {
    went = false;
    const target = document.querySelector(`nav.main [data-key="${CSS.escape(event.key)}"]`);
    if (target) { event.preventDefault(); target.click(); return; }
  }
  const here = document.querySelector(".here");
  switch (event.key) {
    case "g": went = true; setTimeout(() => { went = false; }, 1500); break;
    case "/": { const field = document.querySelector("[data-search]"); if (field) { event.preventDefault(); field.focus(); field.select(); } break; }
    case "j": step(1); break;
    case "k": step(-1); break;
    case "?": document.getElementById("keys")?.showModal(); break;
    case "Enter": if (here && event.target === document.body) { (here.querySelector("th a, td a") ?? here.querySelector("summary"))?.click(); } break;
  }
});

// --- streams of records: the server renders and escapes each one ---
const stream = document.querySelector("[data-stream]");
if (stream) {
  const list = document.getElementById("records");
  const status = document.getElementById("status");
  const stop = document.getElementById("stop");
  const newest = stream.dataset.newest === "yes";
  const limit = 1000;
  const source = new EventSource(stream.dataset.stream);
  const end = (text) => { source.close(); if (text) status.textContent = text; stop.hidden = true; };
  source.addEventListener("record", (event) => {
    list.insertAdjacentHTML(newest ? "afterbegin" : "beforeend", event.data);
    while (newest && list.children.length > limit) list.lastElementChild.remove();
  });
  source.addEventListener("progress", (event) => { status.textContent = event.data; });
  source.addEventListener("end", (event) => end(event.data));
  source.addEventListener("error", () => end("The connection ended."));
  stop.hidden = false;
  stop.addEventListener("click", () => end(`Stopped. ${status.textContent}`));
  window.addEventListener("pagehide", () => source.close());
}
