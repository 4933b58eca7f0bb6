// Drawing: elements are made once for each host, rank or row, and changed in place. Texts from the cluster are set as text only.
import { bytes, clock, isTime, nanoseconds, rate, since } from "./format.js";

const id = (name) => document.getElementById(name);
const glyphs = { works: "", waits: "⋯", late: "!", deadlock: "×", "no answer": "?", behind: "+", joining: "+" };
const levels = { works: 0, waits: 0, behind: 1, joining: 1, late: 2, deadlock: 3, "no answer": 3 };
const narrow = matchMedia("(max-width: 48rem)");
const folds = new Map(); // by host, whether the user has unfolded or folded it
const hosts = new Map(); // by host, its elements
let redraw = () => {};
let unfoldAll = null;
let picked = ""; // the key of the call that the user has picked, or nothing for the newest
let shown = null; // that call, which stays when it is no longer sent

// make returns a new element with a class and children.
function make(tag, name, ...children) {
  const e = document.createElement(tag);
  if (name) e.className = name;
  e.append(...children);
  return e;
}

// text changes a text only if it differs, so that nothing is laid out in vain.
function text(e, value) {
  if (e.textContent !== value) e.textContent = value;
}

function attribute(e, name, value) {
  if (e.getAttribute(name) !== String(value)) e.setAttribute(name, value);
}

function age(e, time) {
  e.dataset.since = isTime(time) ? time : "";
}

function cell(state) {
  const e = make("span", "cell");
  e.dataset.state = state;
  e.textContent = glyphs[state] ?? "";
  e.setAttribute("aria-hidden", "true");
  return e;
}

export function start(again) {
  redraw = again;
  id("only").addEventListener("change", redraw);
  id("fold").addEventListener("click", () => {
    unfoldAll = id("fold").getAttribute("aria-pressed") !== "true";
    folds.clear();
    redraw();
  });
  id("call").addEventListener("change", () => {
    picked = id("call").value;
    shown = null;
    redraw();
  });
  for (const [state, words] of [["works", "works"], ["waits", "waits"], ["late", "late"], ["deadlock", "deadlock"], ["no answer", "no answer"], ["joining", "joining"]]) {
    id("key").append(make("span", "", cell(state), words));
  }
}

// all draws the parts of which the names are in changed, or everything.
export function all(parts, changed, now) {
  const has = (name) => !changed || changed.has(name);
  if (!parts.cluster) return;
  facts(parts.cluster);
  sentence(parts.cluster, now);
  if (has("rates")) spark(parts.rates ?? []);
  if (has("waits")) waits(parts.waits ?? []);
  drawHosts(parts, changed, now);
  drawCalls(parts);
  if (has("links")) links(parts.links);
  if (has("changes")) changes(parts.changes ?? []);
  times(now);
}

function facts(c) {
  text(id("size"), c.Formed ? String(c.Joined) : `${c.Joined} of ${c.World}`);
  text(id("places"), String(c.Hosts));
  text(id("epoch"), c.Epoch ? String(c.Epoch) : "–");
  text(id("memory"), c.Memory ? bytes(c.Memory) : "–");
  text(id("rate"), rate(c.Rate));
}

export function when(time) {
  text(id("when"), "as of " + clock(time));
  id("when").dataset.time = time;
}

// said is what a screen reader has been told last: it hears of a new state, not of each new number in it.
let said = "";

function say(kind, words) {
  if (kind === said) return;
  said = kind;
  text(id("said"), words);
}

export function sentence(c, now) {
  const words = c.Sentence;
  text(id("sentence"), words);
  attribute(id("verdict"), "data-level", c.Level);
  document.body.classList.toggle("stale", isTime(c.Silent));
  const more = [...(c.More ?? [])];
  if (isTime(c.Silent)) more.unshift(`For ${since(c.Silent, now) || "less than 1 s"}: ${c.Problem}`);
  rows(id("more"), more, (line) => make("li", "", line), (li, line) => text(li, line));
  text(document.querySelector("title"), (c.Level > 1 ? "● " : "") + words.slice(0, 80) + " – nexar");
  say(c.Level + words.replace(/[\d.]+/g, ""), words);
}

export function disconnected(time, c) {
  const words = "This page has lost its connection to nexar" + (time ? ` for ${time}` : "") + ", and connects again by itself.";
  text(id("sentence"), words);
  attribute(id("verdict"), "data-level", 3);
  document.body.classList.add("stale");
  rows(id("more"), c ? ["Before: " + c.Sentence] : [], (line) => make("li", "", line), (li, line) => text(li, line));
  say("lost", "This page has lost its connection to nexar.");
}

// rows makes the children of a list those of the values, and changes them in place.
function rows(list, values, create, update) {
  while (list.children.length > values.length) list.lastElementChild.remove();
  values.forEach((value, i) => {
    if (i === list.children.length) list.append(create(value));
    update(list.children[i], value);
  });
}

function spark(points) {
  const most = Math.max(1, ...points.map((p) => p.Bytes));
  const end = points.length ? Date.parse(points.at(-1).Time) : 0;
  const span = Math.max(60000, points.length ? end - Date.parse(points[0].Time) : 0);
  let line = "", area = "", last = 0, from = 0;
  const close = () => { if (line) area += `L${last} 40L${from} 40Z`; };
  points.forEach((p, i) => {
    const x = Number((300 - (end - Date.parse(p.Time)) / span * 300).toFixed(1)), y = Number((38 - p.Bytes / most * 36).toFixed(1));
    const gap = i === 0 || Date.parse(p.Time) - Date.parse(points[i - 1].Time) > 15000;
    if (gap) { close(); from = x; }
    line += `${gap ? "M" : "L"}${x} ${y}`;
    area += `${gap ? "M" : "L"}${x} ${y}`;
    last = x;
  });
  close();
  attribute(id("spark").querySelector(".line"), "d", line);
  attribute(id("spark").querySelector(".area"), "d", area);
  const minutes = Math.round(span / 60000);
  attribute(id("spark"), "aria-label", `Throughput of the last ${minutes === 1 ? "minute" : minutes + " minutes"}: at most ${rate(most)}`);
}

function waits(list) {
  id("waiting").hidden = list.length === 0;
  rows(id("waits"), list, () => make("li", "", make("b"), make("span"), make("span", "call"), make("span", "since")), (li, w) => {
    attribute(li, "data-level", w.Level);
    text(li.children[0], w.Who[0].toUpperCase() + w.Who.slice(1));
    text(li.children[1], (w.Who.startsWith("ranks") ? " wait for " : " waits for ") + (w.For || "others") + " in ");
    text(li.children[2], w.Call);
    li.children[3].dataset.prefix = ", for ";
    age(li.children[3], w.Since);
  });
}

// Hosts and ranks.

function drawHosts(parts, changed, now) {
  const table = id("hosts"), count = parts.cluster.Hosts;
  const few = parts.cluster.Joined <= (narrow.matches ? 4 : 32);
  const seen = new Set();
  let before = table.tHead, visible = 0, open = 0;
  // Of many hosts, those with a problem come first.
  const dense = count > 16;
  table.classList.toggle("dense", dense);
  const order = Array.from({ length: count }, (_, i) => i).filter((i) => parts["h" + i]);
  if (dense) order.sort((a, b) => (parts["h" + b].Level > 1) - (parts["h" + a].Level > 1) || a - b);
  for (const i of order) {
    const h = parts["h" + i];
    seen.add(h.Name);
    let e = hosts.get(h.Name);
    if (!e) {
      e = newHost(h.Name);
      hosts.set(h.Name, e);
    }
    if (e.body.previousElementSibling !== before) before.after(e.body);
    before = e.body;
    const hidden = id("only").checked && h.Level < 2;
    if (e.body.hidden !== hidden) e.body.hidden = hidden;
    if (!hidden) visible++;
    const unfolded = folds.get(h.Name) ?? unfoldAll ?? few;
    if (unfolded) open++;
    if (e.drawn === undefined || e.unfolded !== unfolded || !changed || changed.has("h" + i) || h.Ranks.some((r) => changed.has(r))) {
      drawHost(e, h, parts, unfolded);
    }
  }
  for (const [name, e] of hosts) {
    if (!seen.has(name)) {
      e.body.remove();
      hosts.delete(name);
      folds.delete(name);
    }
  }
  table.hidden = count === 0;
  id("none").hidden = visible > 0;
  text(id("none"), count === 0 ? "No rank has joined yet." : "No host has a problem.");
  attribute(id("fold"), "aria-pressed", open > 0 && open === count);
  text(id("fold"), open > 0 && open === count ? "Fold all" : "Unfold all");
  id("fold").hidden = count === 0;
}

function newHost(name) {
  const button = make("button", "", make("span", "name", name), make("span", "cells"), make("span", "words"));
  button.type = "button";
  const head = make("th", "", button);
  head.colSpan = 4;
  head.scope = "rowgroup";
  const pace = make("td", "num wide"), memory = make("td", "num wide");
  const body = make("tbody", "", make("tr", "host", head, pace, memory));
  button.addEventListener("click", () => {
    folds.set(name, button.getAttribute("aria-expanded") !== "true");
    redraw();
  });
  return { body, button, pace, memory, ranks: new Map() };
}

function drawHost(e, h, parts, unfolded) {
  const [, cells, words] = e.button.children;
  attribute(e.button, "aria-expanded", unfolded);
  attribute(e.button, "data-level", h.Level);
  text(words, h.Words);
  const names = h.Ranks.filter((name) => parts[name]), list = names.map((name) => parts[name]);
  const memory = list.reduce((sum, r) => sum + (r.Memory ?? 0), 0);
  text(e.pace, h.Rate > 0 ? rate(h.Rate) : "–");
  text(e.memory, memory > 0 ? bytes(memory) : "–");
  rows(cells, list, () => cell("works"), (c, r) => {
    if (c.dataset.state !== r.State) {
      c.dataset.state = r.State;
      text(c, glyphs[r.State] ?? "");
    }
    const title = `${r.Rank < 0 ? "no rank" : "rank " + r.Rank}: ${r.State}${r.Words ? ", " + r.Words : ""}`;
    if (c.title !== title) c.title = title;
  });
  attribute(cells, "aria-hidden", "true");
  const seen = new Set();
  let before = e.body.firstElementChild;
  if (unfolded) {
    for (const name of names) {
      seen.add(name);
      let row = e.ranks.get(name);
      if (!row) {
        row = newRank();
        e.ranks.set(name, row);
      }
      if (row.previousElementSibling !== before) before.after(row);
      before = row;
      drawRank(row, parts[name]);
    }
  }
  for (const [name, row] of e.ranks) {
    if (!seen.has(name)) {
      row.remove();
      e.ranks.delete(name);
    }
  }
  e.unfolded = unfolded;
  e.drawn = true;
}

function newRank() {
  const head = make("th", "", make("span"), " ", make("small"));
  head.scope = "row";
  return make("tr", "rank", head,
    make("td", "state", cell("works"), make("b"), make("small")),
    make("td", "call", make("span"), make("small")),
    make("td", "num"), make("td", "num wide"), make("td", "num wide"));
}

function drawRank(row, r) {
  const [head, state, call, time, pace, memory] = row.children;
  attribute(row, "data-level", levels[r.State] ?? 0);
  text(head.firstChild, r.Rank < 0 ? "–" : String(r.Rank));
  text(head.lastChild, r.PID ? "pid " + r.PID : "");
  const [square, word, why] = state.children;
  if (square.dataset.state !== r.State) {
    square.dataset.state = r.State;
    text(square, glyphs[r.State] ?? "");
  }
  text(word, r.State);
  text(why, r.Words && r.Words !== r.State ? r.Words : "");
  text(call.firstChild, r.Call ? (r.Busy ? r.Call : "last: " + r.Call) : "");
  attribute(call.firstChild, "class", r.Busy ? "" : "idle");
  text(call.lastChild, [r.Round && "round " + r.Round, r.Busy && r.Plan, r.Site && "at " + r.Site].filter(Boolean).join(" · "));
  age(time, r.Since);
  text(pace, r.Rate > 0 ? rate(r.Rate) : "–");
  text(memory, r.Memory ? bytes(r.Memory) : "–");
}

export function times(now) {
  for (const e of document.querySelectorAll("[data-since]")) {
    const words = since(e.dataset.since, now);
    text(e, words && (e.dataset.prefix ?? "") + words);
  }
}

// Calls.

function drawCalls(parts) {
  const list = [];
  for (let i = 0; i < parts.cluster.Calls; i++) if (parts["c" + i]) list.push(parts["c" + i]);
  id("calls").hidden = list.length === 0;
  if (!list.length) return;
  const select = id("call");
  const options = [["", "current: " + list[0].Title], ...list.slice(1).map((c) => [c.Key, "slow: " + c.Title])];
  if (picked && shown && !options.some(([key]) => key === picked)) options.push([picked, shown.Title]);
  if (document.activeElement !== select || select.options.length === 0) {
    rows(select, options, () => make("option"), (o, [key, title]) => {
      attribute(o, "value", key);
      text(o, title);
    });
    if (select.value !== picked) select.value = picked;
  }
  const call = list.find((c) => c.Key === picked) ?? (picked ? shown : null) ?? list[0];
  if (call === shown) return;
  shown = call;
  text(id("call-title"), call.Title);
  text(id("call-words"), call.Words);
  timeline(call);
}

function timeline(call) {
  const length = Math.max(call.Length, 1);
  const missing = call.Missing ?? [];
  // Without the missing ranks, all others wait.
  const last = missing.length ? Infinity : Math.max(...call.Spans.map((s) => s.Start));
  const place = (bar, from, to) => {
    bar.style.left = (from / length * 100).toFixed(2) + "%";
    bar.style.width = (Math.max(0, to - from) / length * 100).toFixed(2) + "%";
  };
  const children = [make("span", "label"), make("div", "track axis", make("span", "", "0"), make("span", "", nanoseconds(length)))];
  children[1].setAttribute("aria-hidden", "true");
  const rows = [...call.Spans, ...missing.map((rank) => ({ Rank: rank }))].sort((a, b) => a.Rank - b.Rank);
  for (const s of rows) {
    if (s.Length === undefined) {
      children.push(make("span", "label last", "rank " + s.Rank), make("div", "track missing", "has not called it"));
      continue;
    }
    const end = s.Start + s.Length;
    const label = make("span", "label" + (s.Start === last && last > length / 20 ? " last" : ""), "rank " + s.Rank);
    const track = make("div", "track");
    track.setAttribute("role", "img");
    track.setAttribute("aria-label", `rank ${s.Rank}: from ${nanoseconds(s.Start)} to ${nanoseconds(end)}${s.Outcome && s.Outcome !== "ok" ? ", " + s.Outcome : ""}`);
    track.title = track.getAttribute("aria-label");
    if (s.Start < last) {
      const wait = make("span", "bar wait");
      place(wait, s.Start, Math.min(last, end));
      track.append(wait);
    }
    if (end > last) {
      const bar = make("span", "bar" + (s.Outcome && s.Outcome !== "ok" ? " failed" : ""));
      place(bar, Math.max(last, s.Start), end);
      track.append(bar);
    }
    children.push(label, track);
  }
  if (call.Left > 0) children.push(make("span", "label"), make("div", "label", `${call.Left} ranks that began earlier are left out`));
  const scroll = id("timeline").scrollTop;
  id("timeline").replaceChildren(...children);
  id("timeline").scrollTop = scroll;
}

// Links and history.

function links(l) {
  const classes = l?.Classes ?? [], list = l?.Links ?? [];
  text(id("classes"), classes.length === 0 ? "No links yet." :
    classes.map((c) => `${c.Links} ${c.Links === 1 ? "link" : "links"} by ${c.Name}${c.Rate > 0 ? ", " + rate(c.Rate) : ""}${c.Stalled ? `, ${c.Stalled} stalled` : ""}`).join("; ") + ".");
  id("links").hidden = list.length === 0;
  rows(id("links").tBodies[0], list, () => make("tr", "", make("td"), make("td"), make("td"), make("td", "num"), make("td", "num")), (row, link) => {
    const [from, to, kind, pace, sent] = row.children;
    text(from, String(link.From));
    text(to, String(link.To));
    text(kind, link.Class + (link.Notes ? ": " + link.Notes : ""));
    attribute(row, "data-level", link.Notes ? 2 : 0);
    text(pace, rate(link.Rate));
    text(sent, bytes(link.Sent));
  });
}

function changes(list) {
  id("unchanged").hidden = list.length > 0;
  rows(id("changes"), list, () => make("li", "", make("time"), make("span")), (li, c) => {
    attribute(li, "data-level", c.Level);
    text(li.firstChild, clock(c.Time));
    text(li.lastChild, c.Words);
  });
}
