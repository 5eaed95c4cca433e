// Live parts, charts and ages of figures.
"use strict";

const REFRESH_MS = 2000; // the server renders a part no more often than that
const live = document.getElementById("live");
let isPaused = false;
let isAsking = false;

// --- live parts

function refresh() {
  if (!live || document.hidden || isPaused || isAsking) {
    return;
  }
  isAsking = true;
  htmx
    .ajax("GET", live.dataset.live, { target: live, swap: "innerHTML show:none" })
    .catch(() => showLost())
    .finally(() => {
      isAsking = false;
    });
}

function showLost() {
  if (!document.getElementById("lost")) {
    const note = document.createElement("p");
    note.id = "lost";
    note.className = "problem";
    note.setAttribute("role", "alert");
    note.textContent =
      "The page does not answer: the command may have ended. Start it again and open its link; " +
      "the figures below are old.";
    live.prepend(note);
  }
}

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status === 401) {
    location.assign("/"); // the session has ended
    event.detail.shouldSwap = false;
  }
});

// What a person has opened, scrolled to or focused stays so.
let kept = null;
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target === live) {
    kept = {
      open: [...live.querySelectorAll("details[open]")].map((each) => each.id),
      focus: live.contains(document.activeElement) ? document.activeElement.id : "",
      wasPauseFocused: document.activeElement?.matches?.("[data-pause]") ?? false,
    };
  }
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target !== live || !kept) {
    return;
  }
  for (const id of kept.open.filter(Boolean)) {
    document.getElementById(id)?.setAttribute("open", "");
  }
  if (kept.focus) {
    document.getElementById(kept.focus)?.focus({ preventScroll: true });
  } else if (kept.wasPauseFocused) {
    live.querySelector("[data-pause]")?.focus({ preventScroll: true });
  }
  showPause();
  drawCharts();
});

document.addEventListener("click", (event) => {
  if (event.target.matches("[data-pause]")) {
    isPaused = !isPaused;
    showPause();
    refresh();
  }
});

function showPause() {
  for (const button of document.querySelectorAll("[data-pause]")) {
    button.textContent = isPaused ? "Resume updates" : "Pause updates";
    button.setAttribute("aria-pressed", String(isPaused));
  }
}

document.addEventListener("visibilitychange", refresh);
setInterval(refresh, REFRESH_MS);

// --- a page that could not be read comes back with the store

const RETRY_MS = 3000; // the store has as long to answer

if (document.querySelector("[data-retry]")) {
  setInterval(() => {
    if (document.hidden || isAsking) {
      return;
    }
    isAsking = true;
    fetch(location.href)
      .then((answer) => {
        if (answer.ok || answer.status === 401) {
          location.reload();
        }
      })
      .catch(() => {}) // the command may have ended; it is asked again
      .finally(() => {
        isAsking = false;
      });
  }, RETRY_MS);
}

// --- ages

const loadedAt = performance.now();
let lastSwap = loadedAt;
document.addEventListener("htmx:afterSwap", () => {
  lastSwap = performance.now();
});
setInterval(() => {
  const seconds = Math.round((performance.now() - lastSwap) / 1000);
  for (const each of document.querySelectorAll("[data-ago]")) {
    each.textContent = seconds < 3 ? "levels read now" : `levels read ${seconds} s ago`;
  }
}, 1000);

// --- charts

const charts = new Map(); // by element, so that a chart that is replaced can be freed

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function drawCharts() {
  for (const [element, chart] of charts) {
    if (!element.isConnected) {
      chart.destroy();
      charts.delete(element);
    }
  }
  for (const element of document.querySelectorAll("[data-chart]")) {
    if (!charts.has(element)) {
      charts.set(element, draw(element, JSON.parse(element.dataset.chart)));
    }
  }
}

function draw(element, data) {
  const step = data.unit === "hour" ? 3600 : 86400;
  const bars = uPlot.paths.bars({ size: [0.75, 40], align: 1 });
  const day = (seconds) => new Date(seconds * 1000).toISOString().slice(5, 10);
  const hour = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);
  const moments = (self, values) =>
    values.map((value, at) => {
      const isNewDay = at === 0 || day(value) !== day(values[at - 1]);
      return data.unit === "day" ? day(value) : isNewDay ? `${hour(value)}\n${day(value)}` : hour(value);
    });
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const short = (self, values) =>
    values.map((value) =>
      value >= 1e6 ? `${value / 1e6} M` : value >= 1e3 ? `${value / 1e3} k` : `${value}`,
    );
  const total = data.admitted.map((value, at) => value + data.rejected[at]);
  const number = (value) => (value === null ? "" : value.toLocaleString("en"));
  const series = [
    { label: data.unit, value: "{YYYY}-{MM}-{DD} {HH}:{mm}" },
    { label: "rejected", paths: bars, fill: colour("--bad"), stroke: colour("--bad"), width: 0, points: { show: false }, value: (self, value, series, at) => (at === null ? "" : number(data.rejected[at])) },
    { label: "admitted", paths: bars, fill: colour("--accent"), stroke: colour("--accent"), width: 0, points: { show: false }, value: (self, value) => number(value) },
  ];
  // The rejected calls stand on the admitted ones: the sum is drawn first, behind them.
  const numbers = [data.times, total, data.admitted];
  if (data.shadowed.some((count) => count > 0)) {
    // Shadow rejections are narrow bars of their own: some of these calls were admitted as well.
    const narrow = uPlot.paths.bars({ size: [0.25, 12], align: 1 });
    series.push({ label: "shadow rejections", paths: narrow, fill: colour("--warn-back"), stroke: colour("--warn"), width: 2, points: { show: false }, value: (self, value, series, at) => (at === null ? "" : number(data.shadowed[at])) });
    numbers.push(data.shadowed.map((count) => count || null)); // an hour without any has no outline
  }
  return new uPlot(
    {
      width: element.clientWidth,
      height: 220,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      cursor: { drag: { x: false, y: false } },
      scales: { x: { range: (self, low, high) => [low, high + step] }, y: { range: (self, low, high) => [0, Math.max(high, 1) * 1.05] } },
      series,
      axes: [{ ...axis, values: moments }, { ...axis, values: short, size: 60 }],
    },
    numbers,
    element,
  );
}

addEventListener("resize", () => {
  for (const [element, chart] of charts) {
    chart.setSize({ width: element.clientWidth, height: 220 });
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [element, chart] of charts) {
    chart.destroy();
    charts.delete(element);
  }
  drawCharts();
});

// --- forms

document.addEventListener("change", async (event) => {
  const into = event.target.dataset?.into;
  if (into && event.target.files.length) {
    document.getElementById(into).value = await event.target.files[0].text();
  }
});

document.addEventListener("DOMContentLoaded", drawCharts);
if (document.readyState !== "loading") {
  drawCharts();
}
