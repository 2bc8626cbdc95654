// The page works without this. With it, a view follows what happens: the relay says that something has moved, and the
// view is asked for again and put in place of what there is, so that focus, selection and scrolling stay.
"use strict";

const main = document.getElementById("main");
const live = document.getElementById("live");
const pause = document.getElementById("pause");

// --- times: as people say them, and true ---

function spoken(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 120) return s + "s";
  if (s < 3600) return Math.floor(s / 60) + "m";
  const [large, small, l, m] = s < 86400 ? [3600, 60, "h", "m"] : [86400, 3600, "d", "h"];
  const rest = Math.floor((s % large) / small);
  return Math.floor(s / large) + l + (rest ? rest + m : "");
}

function tellTimes(root) {
  const now = Date.now();
  for (const t of root.querySelectorAll("time[data-rel]")) {
    const ago = (now - Date.parse(t.dateTime)) / 1000;
    const how = t.dataset.rel;
    const text = how === "in" ? spoken(-ago) : spoken(ago) + (how === "ago" ? " ago" : "");
    if (t.textContent !== text) t.textContent = text;
  }
}

// --- putting a view in place of another ---

function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
}

function attributes(from, to) {
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !(from.nodeName === "DETAILS" && name === "open")) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
}

// become makes one element like another, and keeps of it what it can.
function become(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  if (from.nodeName === "TIME" && from.dateTime === to.dateTime) return;
  if (from.contains(document.activeElement) && /^(INPUT|SELECT|TEXTAREA)$/.test(from.nodeName)) return; // somebody types
  attributes(from, to);
  children(from, to);
}

function children(from, to) {
  let at = from.firstChild;
  for (let next = to.firstChild; next; ) {
    const wanted = next;
    next = next.nextSibling;
    const has = wanted.id && [...from.children].find((c) => same(c, wanted));
    if (has && has !== at) from.insertBefore(has, at);
    const found = has || (at && same(at, wanted) ? at : null);
    if (found) {
      if (found === at) at = at.nextSibling;
      become(found, wanted);
    } else {
      from.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// --- asking for the view again ---

let paused = false;
let heard = 0; // the latest move that the relay has told of
let asking = false;
let again = 0; // a timer
let last = 0; // when the view was asked for last
const atMost = 1000; // ms between two

async function ask(address) {
  asking = true;
  last = Date.now();
  try {
    const answer = await fetch(address, { headers: { Accept: "text/html" }, redirect: "error" });
    const there = new DOMParser().parseFromString(await answer.text(), "text/html");
    const view = there.getElementById("main");
    if (!view) throw new Error("no view");
    if (address !== here()) return;
    become(main, view);
    become(document.getElementById("head"), there.getElementById("head"));
    document.title = there.title;
    tellTimes(main);
    say(following ? "live" : "every 10 s");
  } catch {
    say("not reachable", true);
  } finally {
    asking = false;
  }
  if (heard > Number(main.dataset.moves)) soon(); // what came was made before that
}

function here() {
  return location.pathname + location.search;
}

function soon() {
  if (paused || document.hidden || asking) return;
  clearTimeout(again);
  again = setTimeout(() => ask(here()), Math.max(0, last + atMost - Date.now()));
}

function say(text, lost) {
  if (paused) text = "paused";
  if (live.textContent !== text) live.textContent = text;
  live.classList.toggle("lost", Boolean(lost) && !paused);
}

// --- hearing what moves ---

let source = null;
let following = false;

function listen() {
  if (source) source.close();
  source = new EventSource("/ui/live");
  source.addEventListener("moved", (e) => {
    following = true;
    const moves = Number(e.data);
    if (moves < heard) main.dataset.moves = "-1"; // another process
    heard = moves;
    say("live");
    if (heard !== Number(main.dataset.moves)) soon();
  });
  source.onerror = () => {
    following = false;
    if (source.readyState !== EventSource.CLOSED) return say("not reachable", true); // the browser tries again by itself
    ask(here()); // too many pages are open, and this one works all the same
    setTimeout(() => { if (!paused && !document.hidden) listen(); }, 15000);
  };
}

function stop() {
  if (source) source.close();
  source = null;
  clearTimeout(again);
}

pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Resume" : "Pause";
  if (paused) {
    stop();
    say("paused");
  } else {
    listen();
    ask(here());
  }
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden) stop();
  else if (!paused) {
    listen();
    soon();
  }
});

// --- filters that act as they are changed ---

let typing = 0;

function filtered(form) {
  const wanted = new URLSearchParams();
  for (const [key, value] of new FormData(form)) if (value !== "") wanted.append(key, value);
  const query = wanted.toString();
  const address = new URL(form.action).pathname + (query ? "?" + query : "");
  if (address === here()) return;
  history.replaceState(null, "", address);
  ask(address);
}

document.addEventListener("input", (e) => {
  const form = e.target.form;
  if (!form || !form.hasAttribute("data-live")) return;
  clearTimeout(typing);
  typing = setTimeout(() => filtered(form), e.target.type === "search" ? 200 : 0);
});
document.addEventListener("submit", (e) => {
  if (!e.target.hasAttribute("data-live")) return;
  e.preventDefault();
  clearTimeout(typing);
  filtered(e.target);
});

tellTimes(main);
setInterval(() => tellTimes(main), 1000);
setInterval(soon, 10000); // some things change without a move: a certificate comes near its end
listen();
