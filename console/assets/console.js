// The console's page: asks the daemon for what is new once a second, and draws it. It only reads; all text that comes from the
// daemon is set as text, never as HTML.
"use strict";

const POINTS_MAX = 600; // as many as the daemon keeps
const TICK_MS = 1000;
const SERIES_MAX = 8; // as many as there are colours that can be told apart
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [], [6, 3], [2, 3], [8, 3, 2, 3]];
const POWERS = Array.from({ length: 50 }, (_, at) => 2 ** at);
const WORK = ["front", "layers", "order", "verify", "other", "reply"];
const DISK = ["index", "write", "flush", "read"];

const view = { points: [], last: null, paused: false, lost: 0 };
const charts = {};
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Numbers for people.
function duration(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= size) return `${digits(ns / size)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}
function digits(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
function count(value) {
  return value >= 100 ? Math.round(value).toLocaleString("en") : trim(digits(value));
}
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 ? Math.round(value) : trim(digits(value))} ${units[at]}`;
}
const percent = (share) => `${trim((100 * share).toFixed(share < 0.1 ? 1 : 0))}%`;

// Text and tables.
function say(id, text) {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
}
function make(kind, text, name) {
  const element = document.createElement(kind);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}
function list(id, texts) {
  $(id).replaceChildren(...texts.map((text) => make("li", text)));
}
// Columns are texts; one that begins with "<" is aligned to the left. A cell is a text, or an element.
function table(id, columns, rows, nothing) {
  const head = document.createElement("tr");
  for (const column of columns) {
    const cell = make("th", column.replace("<", ""), column.startsWith("<") ? "left" : "");
    cell.scope = "col";
    head.append(cell);
  }
  const line = (row) => {
    const element = document.createElement("tr");
    row.forEach((value, at) => {
      const cell = document.createElement(at === 0 ? "th" : "td");
      if (at === 0) cell.scope = "row";
      if (columns[at].startsWith("<")) cell.className = "left";
      if (value instanceof Element) {
        cell.className = "bar";
        cell.append(value);
      } else {
        cell.textContent = value;
      }
      element.append(cell);
    });
    return element;
  };
  const lines = rows.length ? rows.map(line) : [line([nothing, ...columns.slice(1).map(() => "")])];
  const thead = document.createElement("thead");
  const tbody = document.createElement("tbody");
  thead.append(head);
  tbody.append(...lines);
  const element = $(id);
  element.querySelectorAll("thead, tbody").forEach((old) => old.remove());
  element.append(thead, tbody);
}
function bar(share) {
  const element = document.createElement("i");
  // What there is shows, however little of it.
  element.style.width = `${share > 0 ? Math.max(0.5, Math.min(1, share) * 100) : 0}%`;
  return element;
}
// The choices of a select; what is chosen stays, also while the list is open.
function choices(id, names, fixed) {
  const select = $(id);
  const chosen = select.value;
  const wanted = [...fixed, ...names];
  if (chosen !== "" && !wanted.includes(chosen)) wanted.push(chosen);
  const have = [...select.options].map((option) => option.value);
  if (wanted.length === have.length && wanted.every((name, at) => name === have[at])) return;
  select.replaceChildren(...wanted.map((name) => new Option(name === "" ? "all" : name, name)));
  if (wanted.includes(chosen)) select.value = chosen;
}

// Charts over time.
const span = () => Number($("span").value);
const now = () => (view.points.length ? view.points[view.points.length - 1].at : 0);
const shown = () => view.points.filter((point) => point.at >= now() - span());
// The first second that the charts show: no more than there is, but at least half a minute.
const first = () => Math.max(now() - span(), Math.min(view.points.length ? view.points[0].at : 0, now() - 30));

// The names with the largest sums, at most as many as there are colours, in an order that stays while they do.
function leading(points, values) {
  const sums = new Map();
  for (const point of points) {
    for (const [name, value] of Object.entries(values(point))) sums.set(name, (sums.get(name) || 0) + value);
  }
  const names = [...sums.keys()].sort((one, other) => sums.get(other) - sums.get(one));
  return names.slice(0, SERIES_MAX).sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
}
// Columns for uPlot. Where the daemon was not looked at, the line ends; what a second lacks is `none`.
function columns(points, names, values, none) {
  const data = [[], ...names.map(() => [])];
  let before = null;
  for (const point of points) {
    if (before !== null && point.at - before > 2.5) {
      data[0].push(before + 1);
      names.forEach((_, at) => data[at + 1].push(null));
    }
    const all = values(point);
    data[0].push(point.at);
    names.forEach((name, at) => data[at + 1].push(all[name] || none));
    before = point.at;
  }
  return data;
}
const ago = (seconds) => (seconds >= 60 ? `−${trim(digits(seconds / 60))} min` : `−${Math.round(seconds)} s`);

function lines(id, values, style) {
  const points = shown();
  const names = leading(points, values);
  const key = `${names.join("|")}|${document.documentElement.className}`;
  const data = columns(points, names, values, style.isLog ? null : 0);
  const box = $(id);
  let chart = charts[id];
  if (!chart || chart.key !== key) {
    if (chart) chart.plot.destroy();
    chart = { key, plot: new uPlot(options(box, names, style), data, box) };
    charts[id] = chart;
  } else {
    chart.plot.setData(data);
  }
  const latest = points.length ? values(points[points.length - 1]) : {};
  const texts = names.map((name) => `${name} ${style.format(latest[name] || 0)}`);
  box.setAttribute("aria-label", texts.length ? `Now: ${texts.join(", ")}` : "No figures yet");
  legend(`${id}-legend`, texts);
}
function legend(id, texts) {
  const items = texts.map((text, at) => {
    const item = make("li");
    item.append(make("i", undefined, `swatch s${at + 1}`), text);
    return item;
  });
  $(id).replaceChildren(...(items.length ? items : [make("li", "nothing yet")]));
}
function options(box, names, { format, top, steps, isLog }) {
  const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  return {
    width: box.clientWidth,
    height: box.clientHeight,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: {
      x: { time: false, range: () => [first(), now()] },
      y: isLog ? { distr: 3, range: decades } : { range: (_, __, most) => [0, top || (most > 0 ? most * 1.1 : 1)] },
    },
    axes: [
      { ...axis, size: 28, values: (_, ticks) => ticks.map((tick) => ago(now() - tick)), splits: (plot) => splits(plot.width) },
      { ...axis, size: 76, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : format(tick))), ...(steps ? { incrs: steps } : {}) },
    ],
    series: [
      {},
      ...names.map((name, at) => ({
        label: name,
        stroke: css(`--s${at + 1}`),
        width: 1.75,
        dash: DASHES[at],
        points: { show: false },
      })),
    ],
  };
}
// Whole powers of ten around all values.
function decades(_, least, most) {
  if (least === null || !(least > 0)) return [1e3, 1e7];
  return [10 ** Math.floor(Math.log10(least)), 10 ** Math.ceil(Math.log10(most * 1.01))];
}
// Places of the labels of time: as many as there is room for.
function splits(width) {
  const parts = width < 480 ? 3 : 6;
  const step = (now() - first()) / parts;
  return Array.from({ length: parts - 1 }, (_, at) => first() + (at + 1) * step);
}

// The map of latencies: a column per second, a row per half power of two.
const rowStart = (row) => 2 ** ((row - 1) / 2);
function rowsOf(point, operation) {
  const rows = new Map();
  for (const [name, one] of Object.entries(point.operations)) {
    if (operation !== "" && name !== operation) continue;
    for (const [row, number] of Object.entries(one.rows)) rows.set(Number(row), (rows.get(Number(row)) || 0) + number);
  }
  return rows;
}
function heat() {
  const operation = $("heat-operation").value;
  const points = shown();
  const maps = points.map((point) => ({ at: point.at, rows: rowsOf(point, operation) }));
  const used = maps.flatMap((map) => [...map.rows.keys()]);
  const low = used.length ? Math.min(...used) - 1 : 20;
  const high = Math.max(used.length ? Math.max(...used) + 1 : 30, low + 8);
  const most = Math.max(1, ...maps.flatMap((map) => [...map.rows.values()]));
  drawHeat(maps, low, high, most);
  heatTable(maps.slice(-10));
}
function drawHeat(maps, low, high, most) {
  const box = $("heat");
  const canvas = box.firstChild || box.appendChild(document.createElement("canvas"));
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [box.clientWidth, box.clientHeight];
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const [left, bottom] = [76, 24];
  const x = (at) => left + ((at - first()) / (now() - first())) * (width - left);
  const y = (row) => (height - bottom) * (1 - (row - low) / (high - low));
  const colours = document.documentElement.classList.contains("dark")
    ? [[29, 55, 90], [44, 118, 172], [126, 196, 232], [248, 232, 110]]
    : [[205, 222, 241], [120, 172, 214], [38, 110, 178], [6, 40, 96]];
  const cell = Math.max(1, (width - left) / (now() - first())) + 0.5;
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width - left, height - bottom);
  pen.clip();
  for (const { at, rows } of maps) {
    for (const [row, number] of rows) {
      pen.fillStyle = shade(colours, Math.log1p(number) / Math.log1p(most));
      pen.fillRect(x(at) - cell, y(row), cell, y(row - 1) - y(row) + 0.5);
    }
  }
  pen.restore();
  heatAxes(pen, { low, high, x, y, left, width, height });
}
function shade(colours, share) {
  const at = Math.min(colours.length - 2, Math.floor(share * (colours.length - 1)));
  const part = share * (colours.length - 1) - at;
  return `rgb(${colours[at].map((from, n) => Math.round(from + (colours[at + 1][n] - from) * part)).join(",")})`;
}
function heatAxes(pen, { low, high, x, y, left, width, height }) {
  pen.font = "12px system-ui";
  pen.fillStyle = css("--quiet");
  pen.strokeStyle = css("--line");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (let power = 0; power < 12; power += 1) {
    const row = 2 * Math.log2(10 ** power);
    if (row < low || row > high) continue;
    pen.fillText(duration(10 ** power).replace(/\.0+ /, " "), left - 6, y(row));
    pen.beginPath();
    pen.moveTo(left, Math.round(y(row)) + 0.5);
    pen.lineTo(width, Math.round(y(row)) + 0.5);
    pen.stroke();
  }
  pen.textAlign = "center";
  pen.textBaseline = "alphabetic";
  for (const at of splits(width)) pen.fillText(ago(now() - at), x(at), height - 6);
}
function heatTable(maps) {
  const sums = new Map();
  for (const { rows } of maps) {
    for (const [row, number] of rows) sums.set(row, (sums.get(row) || 0) + number);
  }
  const all = [...sums.values()].reduce((sum, number) => sum + number, 0);
  const rows = [...sums.keys()].sort((one, other) => one - other);
  const told = rows.map((row) => [
    `${duration(rowStart(row))} to ${duration(rowStart(row + 1))}`,
    sums.get(row).toLocaleString("en"),
    percent(sums.get(row) / all),
  ]);
  table("heat-table", ["took", "requests", "share"], told, "no requests");
  const common = rows.reduce((best, row) => (best === null || sums.get(row) > sums.get(best) ? row : best), null);
  const words = common === null
    ? "No requests in the last 10 seconds"
    : `Most requests of the last 10 seconds took ${duration(rowStart(common))} to ${duration(rowStart(common + 1))}`;
  $("heat").setAttribute("aria-label", words);
}

// The last seconds.
function verdict({ explanation, titles }) {
  const { verdict: found } = explanation;
  say("sentence", found.sentence);
  list("evidence", found.evidence);
  say("next", found.next ? `Next: ${found.next}.` : "");
  const others = explanation.others.map((other, at) =>
    `${titles[at]}: ${other.resource}, about ${percent(other.gain)} more requests without it. ${other.evidence.join("; ")}.`);
  const missing = explanation.missing.map((what) => `Not known: ${what}.`);
  const accounted = explanation.accounted === null
    ? [] : [`Requests accounted for: ${percent(explanation.accounted)} (rate times time over those in flight).`];
  list("others", [...others, ...missing, ...accounted]);
}
function operations({ explanation }) {
  const band = (one, name) => {
    const found = one.waterfall.find((candidate) => candidate.name === name);
    return found ? duration(found.duration_ns) : "";
  };
  const rows = explanation.operations.map((one) => [
    one.name, count(one.per_second), band(one, "mean"), band(one, "p50"), band(one, "p99"), band(one, "max"),
  ]);
  table("operations", ["operation", "per second", "mean", "p50", "p99", "max"], rows, "no requests");
}
const kind = (stage) => (WORK.includes(stage) ? "work" : DISK.includes(stage) ? "disk" : "wait");
function stages({ explanation }) {
  const sampled = explanation.operations.filter((one) => one.waterfall.length);
  choices("stages-operation", sampled.map((one) => one.name), []);
  const chosen = $("stages-operation").value;
  const bands = (sampled.find((one) => one.name === chosen) || { waterfall: [] }).waterfall;
  $("bars").replaceChildren(...bands.map(drawBand));
  const names = [];
  for (const band of bands) {
    for (const [stage] of band.stages) if (!names.includes(stage)) names.push(stage);
  }
  const times = (stage) => bands.map((band) => {
    const found = band.stages.find(([name]) => name === stage);
    return found ? `${duration(found[1])}  ${percent(found[1] / band.duration_ns)}` : "";
  });
  const rows = names.map((stage) => [stage, { work: "works", wait: "waits", disk: "device" }[kind(stage)], ...times(stage)]);
  if (rows.length) rows.push(["all", "", ...bands.map((band) => duration(band.duration_ns))]);
  table("stages", ["stage", "<kind", ...bands.map((band) => band.name)], rows, "no request in the sample");
}
function drawBand(band) {
  const line = make("div", undefined, "band");
  const track = make("div", undefined, "track");
  const seen = { work: 0, wait: 0, disk: 0 };
  for (const [stage, ns] of band.stages) {
    const of = kind(stage);
    seen[of] += 1;
    const share = ns / Math.max(1, band.duration_ns);
    const part = make("span", share > 0.07 ? stage : "", `${of}-${(seen[of] % 2) + 1}`);
    part.style.flex = `${share} 1 0`;
    part.title = `${stage} ${duration(ns)}, ${percent(share)}`;
    track.append(part);
  }
  line.append(make("span", band.name), track, make("span", duration(band.duration_ns), "total"));
  return line;
}
function tables({ io, locks, pools, slowest }) {
  table("transfers", ["for", "<verb", "per second", "data", "mean", "p50", "p99"],
    io.map((row) => [row.purpose, row.verb, count(row.rate), row.verb === "flush" ? "" : `${bytes(row.bytes)}/s`, ...row.took_ns.map(duration)]),
    "no transfers");
  table("pools", ["pool", "threads", "waiting jobs", "jobs per second", "mean wait", "p99 wait"],
    pools.map((row) => [row.name, String(row.threads), String(row.queued), count(row.rate), ...row.wait_ns.map(duration)]),
    "no pools");
  table("locks", ["lock", "per second", "contended", "mean wait", "mean hold", "of requests' time"],
    locks.map((row) => [row.name, count(row.rate), percent(row.contended), ...row.mean_ns.map(duration), percent(row.share)]),
    "no locks");
  const mostly = (one) => [...one.stages].sort((a, b) => b[1] - a[1]).slice(0, 4)
    .map(([stage, ns]) => `${stage} ${duration(ns)}`).join(", ");
  table("slow", ["operation", "took", "ended", "inode", "user", "thread", "<mostly in"],
    slowest.map((one) => [one.name, duration(one.duration_ns), ago(Math.max(0, now() - (one.end_ns - view.started) / 1e9)),
      String(one.ino), String(one.uid), String(one.thread), mostly(one)]),
    "no requests");
}
function segments({ space, liveness }) {
  const state = space.is_read_only ? " The brick takes no changes, since a write or a flush failed." : "";
  say("space", `${bytes(space.free_bytes)} of ${bytes(space.size_bytes)} are free for clients; files have ` +
    `${bytes(space.live_bytes)} of data.${state}`);
  const all = [["free", space.free_segments], ["emptied, free soon", space.emptied_segments],
    ...liveness.map((number, tenth) => [`${tenth * 10} to ${tenth * 10 + 10}% live`, number])];
  const most = Math.max(1, ...all.map(([, number]) => number));
  table("segments", ["segments", "number", "<of the most frequent"],
    all.map(([name, number]) => [name, number.toLocaleString("en"), bar(number / most)]), "none");
}

function draw() {
  const each = (value) => (point) => Object.fromEntries(Object.entries(point.operations).map(([name, one]) => [name, value(one)]));
  lines("rates", each((one) => one.rate), { format: count });
  lines("p99", each((one) => one.p99_ns), { format: duration, isLog: true });
  lines("cores", (point) => Object.fromEntries(point.cores.map(([run], at) => [`core ${at}`, run])), { format: percent, top: 1 });
  lines("io", (point) => point.io, { format: (value) => `${bytes(value)}/s`, steps: POWERS });
  const names = [...new Set(shown().flatMap((point) => Object.keys(point.operations)))].sort();
  choices("heat-operation", names, [""]);
  heat();
  if (!view.last) return;
  verdict(view.last);
  operations(view.last);
  stages(view.last);
  tables(view.last);
  segments(view.last);
}

async function ask() {
  const reply = await fetch(`/view?after=${now()}`, { signal: AbortSignal.timeout(5000) });
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}
function take(told) {
  // Another daemon's clock began anew.
  if (view.started !== told.started) view.points = [];
  view.started = told.started;
  view.points = [...view.points, ...told.points].slice(-POINTS_MAX);
  view.last = told.last;
  view.lost = 0;
  say("brick", told.brick);
  say("version", told.version);
  document.title = `Sinter ${told.brick}`;
  const late = view.points.length === 0;
  $("state").className = "";
  say("state", late ? "the first figures come in two seconds" : "live");
}
async function turn() {
  if (!view.paused && !document.hidden) {
    try {
      take(await ask());
      draw();
    } catch (error) {
      view.lost += 1;
      $("state").className = "lost";
      say("state", `no answer from the daemon (${view.lost} tries); what is shown is old`);
    }
  }
  setTimeout(turn, TICK_MS);
}

function theme(dark) {
  document.documentElement.classList.toggle("dark", dark);
  say("theme", dark ? "Light" : "Dark");
  $("theme").setAttribute("aria-label", dark ? "Switch to the light theme" : "Switch to the dark theme");
}
function chosenTheme() {
  try {
    return localStorage.getItem("theme");
  } catch (error) {
    return null;
  }
}
function begin() {
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  const stored = chosenTheme();
  theme(stored ? stored === "dark" : prefers.matches);
  prefers.addEventListener("change", () => {
    if (!chosenTheme()) theme(prefers.matches);
    draw();
  });
  $("theme").addEventListener("click", () => {
    const dark = !document.documentElement.classList.contains("dark");
    theme(dark);
    try {
      localStorage.setItem("theme", dark ? "dark" : "light");
    } catch (error) {
      // Then it lasts as long as the page.
    }
    draw();
  });
  $("pause").addEventListener("click", () => {
    view.paused = !view.paused;
    $("pause").setAttribute("aria-pressed", String(view.paused));
    say("state", view.paused ? "paused" : "live");
  });
  for (const id of ["span", "heat-operation", "stages-operation"]) $(id).addEventListener("change", draw);
  new ResizeObserver(() => {
    for (const [id, chart] of Object.entries(charts)) {
      chart.plot.setSize({ width: $(id).clientWidth, height: $(id).clientHeight });
    }
    if (view.points.length) heat();
  }).observe(document.querySelector("main"));
  turn();
}
begin();
