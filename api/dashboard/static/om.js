// Live pages: events as they come, the parts of the page that follow them, elapsed times, sources on demand.
"use strict";

const KINDS = [
  "observation-start", "observation-end", "observation-failed",
  "buffering-start", "buffering-end", "buffering-failed",
  "activation", "thread-update", "status",
].map((kind) => `data-om-${kind}`);
const KEPT = 60;

function elapsed(since) {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(since)) / 1000));
  return seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}

function showElapsed() {
  for (const place of document.querySelectorAll("[data-since]")) {
    place.textContent = `for ${elapsed(place.dataset.since)}`;
  }
}

function addNewEvents(list, fresh) {
  const known = new Set([...list.children].map((item) => item.dataset.id));
  for (const item of [...fresh.children].reverse()) {
    if (!known.has(item.dataset.id)) list.prepend(document.importNode(item, true));
  }
  if (list.children.length > 1) list.querySelector('[data-id=""]')?.remove();
  while (list.children.length > KEPT) list.lastElementChild.remove();
}

function follow(root) {
  const live = document.getElementById("live");
  const now = document.getElementById("now");
  let asked = false;
  let again = false;
  async function refresh() {
    if (asked) { again = true; return; }
    asked = true;
    try {
      const answer = await fetch(root.dataset.now, { redirect: "error" });
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        // A person who is about to press a button keeps it.
        if (!now.contains(document.activeElement)) now.replaceChildren(...fresh.getElementById("now").childNodes);
        addNewEvents(document.getElementById("events"), fresh.getElementById("events"));
        showElapsed();
      }
    } catch { /* the badge of the stream says whether the service answers */ }
    asked = false;
    if (again) { again = false; refresh(); }
  }
  const source = new EventSource(root.dataset.live);
  source.onopen = () => { live.textContent = "live"; live.classList.add("on"); refresh(); };
  source.onerror = () => { live.textContent = "connecting again"; live.classList.remove("on"); };
  for (const kind of KINDS) source.addEventListener(kind, refresh);
  setInterval(refresh, 15000);
}

async function load(details) {
  if (!details.open || details.dataset.loaded) return;
  details.dataset.loaded = "yes";
  const answer = await fetch(details.dataset.load, { redirect: "error" });
  if (!answer.ok) { delete details.dataset.loaded; return; }
  const place = document.createElement("div");
  place.innerHTML = await answer.text();
  details.append(place);
}

for (const root of document.querySelectorAll("[data-live]")) follow(root);
for (const details of document.querySelectorAll("details[data-load]")) {
  details.addEventListener("toggle", () => load(details));
}
showElapsed();
setInterval(showElapsed, 1000);
