// Texts of numbers and times.

export function bytes(n) {
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (n >= size) return (n / size).toPrecision(3).replace(/\.?0+$/, (zeros) => zeros.startsWith(".") ? "" : zeros) + " " + unit;
  }
  return Math.round(n) + " B";
}

export const rate = (n) => n < 0 ? "–" : bytes(n) + "/s";

// since is the time from a moment until now: "14 s", "3 min 5 s", "2 h 3 min", or nothing below a second.
export function since(time, now) {
  const seconds = Math.floor((now - Date.parse(time)) / 1000);
  if (!isTime(time) || seconds < 1) return "";
  if (seconds < 60) return seconds + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + seconds % 60 + " s";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h " + Math.floor(seconds % 3600 / 60) + " min";
  return Math.floor(seconds / 86400) + " d " + Math.floor(seconds % 86400 / 3600) + " h";
}

export const isTime = (time) => Boolean(time) && !time.startsWith("0001-");

// nanoseconds formats a duration with about three digits.
export function nanoseconds(n) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (n >= size) return Number((n / size).toPrecision(3)) + " " + unit;
  }
  return n + " ns";
}

export const clock = (time) => isTime(time) ? new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }) : "";
