// The page keeps the newest parts of the state, which the stream of events replaces one by one, and draws those that have changed.
// Nothing else is kept: it needs as much memory after a day as after a minute.
import * as draw from "./draw.js";
import { since } from "./format.js";

let parts = {};
let stream = null;
let lost = 0; // since when there is no connection
let ahead = 0; // the clock of the server minus that of the browser

function connect() {
  if (stream) return;
  stream = new EventSource("events");
  stream.onopen = () => { lost = 0; };
  stream.onerror = () => {
    lost ||= Date.now();
    // An answer other than a stream ends it. Without a valid session the form for a ticket must be shown.
    if (stream && stream.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(check, 1000);
    }
    tick();
  };
  stream.onmessage = (event) => take(JSON.parse(event.data));
}

async function check() {
  try {
    const answer = await fetch("page.css", { cache: "no-store" });
    if (answer.status === 401) return location.reload();
  } catch { /* Not reached yet. */ }
  connect();
}

function take(message) {
  if (message.from === 0) parts = {};
  Object.assign(parts, message.parts);
  lost = 0;
  ahead = message.now - Date.now();
  draw.all(parts, message.from === 0 ? null : new Set(Object.keys(message.parts)), now());
  tick();
}

const now = () => Date.now() + ahead;

// tick draws what changes with the time alone.
function tick() {
  const cluster = parts.cluster;
  if (lost && Date.now() - lost > 700) {
    draw.disconnected(since(new Date(lost).toISOString(), Date.now()), cluster);
  } else if (cluster) {
    draw.sentence(cluster, now());
  }
  if (cluster) draw.when(cluster.Time);
  draw.times(now());
}

setInterval(tick, 1000);
draw.start(() => draw.all(parts, null, now()));
// A page that nobody sees for a minute asks for nothing.
let hiding = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (!document.hidden) return connect();
  hiding = setTimeout(() => { stream?.close(); stream = null; }, 60000);
});
connect();
