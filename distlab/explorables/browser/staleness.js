// The staleness race: workers of unequal speed write updates to a server. Lanes show who computes; below,
// on the same axis, the version that each gradient was computed from against the server's; then how stale
// the updates are, and the loss of four ways to train on one clock.
const { choice, clamp, color, draw, inkOn, join, linear, logarithmic, make, newId, numbers, panel, player, replica, sayNumber, slider, ticks, toggle, tries } = require("./core.js");
const { MODES, descendStale, race } = require("./staleness_model.js");

const NAMES = { asynchronous: "Asynchronous", bounded: "Bounded staleness", backup: "Backup workers", synchronous: "Synchronous" };
const LINES = { asynchronous: "data", bounded: "optimizer", backup: "forward", synchronous: "all-reduce" };
const SERVER = "color-mix(in srgb, var(--ex-ink) 16%, transparent)";
const UNTIL = 24, LEFT = 70, LANE = 24, GAP = 4, STAIRS = 170, AXIS = 26, LOW = 1e-4, HIGH = 1e2;

const START = { workers: 4, slow: 1, rate: 0.2, bound: 2, backup: 1, vary: false, time: 1 };
const TRIES = [
  { ask: "One worker gets 4 times slower: who waits?", set: { ...START, mode: "synchronous" }, act: { slow: 4 },
    answer: "All of them. Each round ends with its slowest worker, so a quarter as many gradients are used." },
  { ask: "And if nobody waits?", set: { ...START, mode: "synchronous", slow: 4 }, act: { mode: "asynchronous" },
    answer: "The fast workers go on, and many more gradients are used. But they're stale: the slow worker writes what it worked out from parameters that are many versions old." },
  { ask: "Keep the speed without the oldest gradients?", set: { ...START, mode: "synchronous", slow: 4 }, act: { mode: "backup" },
    answer: "A backup worker: the round takes the first three gradients and drops the late one. Nothing is stale, and the slow worker's steps are wasted." }];

function piece(stage) {
  const controls = panel([
    choice(stage, { name: "mode", label: "Way to train", options: MODES.map((mode) => [mode, NAMES[mode]]), list: true }),
    slider(stage, { name: "workers", label: "Workers", min: 2, max: 8 }),
    slider(stage, { name: "slow", label: "Slow worker", min: 1, max: 6, step: 0.5, say: (n) => `${sayNumber(n)} \u00d7` }),
    slider(stage, { name: "rate", label: "Learning rate", min: 0.02, max: 2, log: true, say: (n) => sayNumber(n, 2) })], [
    slider(stage, { name: "bound", label: "Steps ahead (bounded)", min: 0, max: 6 }),
    slider(stage, { name: "backup", label: "Backup workers", min: 1, max: 3 }),
    toggle(stage, { name: "vary", label: "Steps vary" })]);
  const shown = numbers([{ name: "used", words: "gradients used", idea: "all-reduce" }, { name: "mean", words: "mean staleness", idea: "over" },
    { name: "most", words: "at most" }, { name: "late", words: "thrown away", idea: "wait" }, { name: "loss", words: "loss" }]);
  const clock = player(stage, { name: "time", label: "Time of the race", seconds: () => 12, say: (share) => `${sayNumber(share * UNTIL)} steps`,
    marks: () => [...new Set(runs[stage.options.mode].updates.map((one) => one.at / UNTIL))].filter((at) => at <= 1) });
  const parts = [makeLanes(stage), makeHistogram(stage), makeLosses(stage)];
  const pair = make("div", { style: "display: grid; gap: 10px 26px" }, parts[1].node, parts[2].node);
  const key = make("ul", { class: "ex-key" }, ...[["replica-0", "a step: its number is the staleness of its update"], ["server", "the server's version"],
    ["over", "dropped: came too late"], ["wait", "waits"]].map(([idea, words]) => make("li", { style: `--idea: ${idea === "server" ? SERVER : color(idea)}` }, make("i"), words)));
  stage.root.append(tries(stage, TRIES), controls, clock.node, shown.node, parts[0].node, key, pair);
  let runs = {}, made = "";
  return () => {
    const { time, mode, width, ...rest } = { ...stage.options, width: stage.width };
    const wanted = JSON.stringify(rest);
    if (wanted !== made) { runs = Object.fromEntries(MODES.map((name) => [name, prepare(stage, name)])); made = wanted; }
    const run = runs[mode], now = time * UNTIL;
    const told = measure(run, now);
    const beside = width > Math.min(760, 0.9 * stage.tall);
    pair.style.gridTemplateColumns = beside ? "minmax(0, 2fr) minmax(0, 3fr)" : "minmax(0, 1fr)";
    shown.write(told);
    const words = `${NAMES[mode]}, ${rest.workers} workers, ${rest.slow > 1 ? `one ${sayNumber(rest.slow)} times slower` : "equally fast"}. After ${sayNumber(now)} steps of a fast worker: ${told.used} gradients used, ${told.late} thrown away, mean staleness ${told.mean}, at most ${told.most}, loss ${told.loss}.`;
    parts[0].update(run, now, words);
    const half = beside ? (width - 60) / 5 : (width - 34) / 5;
    parts[1].update(run, now, beside ? 2 * half : 5 * half);
    parts[2].update(runs, now, beside ? 3 * half : 5 * half);
    stage.say(words);
  };
}

function prepare({ options, data }, mode) {
  const { workers, slow, vary, bound, rate } = options;
  const seconds = [...Array(workers).keys()].map((k) => (k === workers - 1 ? slow : 1));
  const run = race({ mode, seconds, factors: vary ? data.factors : [1], bound, backup: Math.min(options.backup, workers - 1), until: UNTIL });
  return { ...run, mode, workers, losses: descendStale(run.updates.map((one) => one.staleness), rate) };
}

const sayLoss = (loss) => (loss > 1e6 ? "diverged" : sayNumber(loss, 2));

function measure(run, now) {
  const done = run.updates.filter((one) => one.at <= now + 1e-9), stale = done.map((one) => one.staleness);
  const used = done.reduce((sum, one) => sum + one.workers.length, 0);
  return { used: sayNumber(used), late: sayNumber(run.steps.filter((one) => one.late && one.ended <= now + 1e-9).length),
    mean: stale.length ? sayNumber(stale.reduce((a, b) => a + b, 0) / stale.length) : "0", most: sayNumber(Math.max(0, ...stale)), loss: sayLoss(run.losses[done.length]) };
}

// ---- lanes of steps, and the versions below

function makeLanes(stage) {
  const pattern = newId("idle");
  const hatch = draw("pattern", { id: pattern, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    draw("rect", { width: 7, height: 7, fill: color("wait"), opacity: 0.12 }), draw("rect", { width: 2.2, height: 7, fill: color("wait"), opacity: 0.75 }));
  const layers = Object.fromEntries(["grid", "axis", "names", "idle", "blocks", "words", "stairs", "reads", "dots", "head"].map((name) => [name, draw("g")]));
  const clip = newId("race"), frame = draw("rect", { x: LEFT, y: 0 });
  const moving = draw("g", { "clip-path": `url(#${clip})` }, layers.idle, layers.blocks, layers.words, layers.stairs, layers.reads, layers.dots);
  const title = draw("text", { x: LEFT, style: "font-weight: 600" });
  const svg = draw("svg", { role: "img", height: 10 }, draw("defs", {}, hatch, draw("clipPath", { id: clip }, frame)), layers.grid, layers.axis, layers.names, moving, title, layers.head);
  const update = (run, now, words) => { svg.setAttribute("aria-label", words); drawLanes(stage, { svg, layers, frame, title, pattern }, run, now); };
  return { node: svg, update };
}

function drawLanes(stage, { svg, layers, frame, title, pattern }, run, now) {
  const { glider } = stage, inner = stage.width - 34, right = inner - 8;
  const x = linear([0, UNTIL], [LEFT, right]), y = (lane) => 2 + lane * (LANE + GAP), top = y(run.workers) + 26, floor = top + Math.min(STAIRS, 0.18 * stage.tall);
  const steps = run.steps.filter((step) => step.begun < UNTIL), updates = run.updates.filter((one) => one.at <= UNTIL);
  const height = linear([0, Math.max(updates.length, 4)], [floor, top]);
  glider.to(svg, { height: floor + AXIS, viewBox: `0 0 ${inner} ${floor + AXIS}` }, 0);
  glider.to(frame, { width: right - LEFT + 3, height: floor + 3 }, 0);
  const word = inner > 600 ? "The version each gradient was computed from, and the server's: the gap is its staleness" : "Version read, and the server's";
  glider.to(title, { y: top - 8, text: word }, 0);
  drawRaceAxis(glider, layers, { x, height, floor, right, count: updates.length });
  join(glider, layers.names, [...Array(run.workers).keys()], { key: String, tag: "text", text: (lane) => `worker ${lane}`, end: (lane) => ({ x: 0, y: y(lane) + LANE / 2 + 4 }) });
  drawSteps(glider, layers, { steps, run, x, y, now, pattern });
  drawVersions(glider, layers, { steps, updates, x, height, now });
  join(glider, layers.head, now < UNTIL ? [0] : [], { key: String, tag: "line", seconds: 0, end: () => ({ x1: x(now), x2: x(now), y1: 0, y2: floor, stroke: color("ink"), "stroke-width": 2 }) });
}

function drawRaceAxis(glider, layers, { x, height, floor, right, count }) {
  const across = ticks(0, UNTIL, 8), up = ticks(0, Math.max(count, 4), 4).filter(Number.isInteger);
  join(glider, layers.grid, across, { key: String, tag: "line", end: (d) => ({ x1: x(d), x2: x(d), y1: 0, y2: floor, stroke: color("line") }) });
  const words = [...across.map((d) => ({ id: `x${d}`, x: x(d), y: floor + 18, anchor: "middle", text: d === across.at(-1) && right > 560 ? `${d} steps` : `${d}` })),
    ...up.map((d) => ({ id: `y${d}`, x: LEFT - 8, y: height(d) + 4, anchor: "end", text: d ? `${d}` : "version 0" }))];
  join(glider, layers.axis, words, { key: (d) => d.id, tag: "text", text: (d) => d.text, end: (d) => ({ x: d.id.startsWith("x") && d.text.includes("s") ? d.x - 14 : d.x, y: d.y, "text-anchor": d.anchor }) });
}

function drawSteps(glider, layers, { steps, run, x, y, now, pattern }) {
  const order = Array(run.workers).fill(0), ends = Array(run.workers).fill(0), gaps = [];
  const blocks = [...steps].sort((a, b) => a.begun - b.begun).map((step) => {
    if (step.begun - ends[step.worker] > 1e-9) gaps.push({ id: `${step.worker} ${order[step.worker]}`, lane: step.worker, from: ends[step.worker], to: step.begun });
    ends[step.worker] = step.ended;
    const done = step.ended <= now + 1e-9, update = run.updates[step.update];
    return { ...step, id: `${step.worker} ${order[step.worker]++}`, wide: x(step.ended) - x(step.begun), opacity: done ? 1 : step.begun < now ? 0.7 : 0.22,
      text: step.late ? "\u2715" : update ? `${update.staleness}` : "" };
  });
  ends.forEach((end, lane) => { if (end < UNTIL) gaps.push({ id: `${lane} last`, lane, from: end, to: UNTIL }); });
  join(glider, layers.idle, gaps, { key: (d) => d.id, tag: "rect", end: (d) => ({ x: x(d.from), y: y(d.lane), width: x(d.to) - x(d.from), height: LANE, rx: 4, fill: `url(#${pattern})` }) });
  join(glider, layers.blocks, blocks, { key: (d) => d.id, tag: "rect", end: (d) => ({ x: x(d.begun) + 0.7, y: y(d.worker), width: Math.max(0.5, d.wide - 1.4), height: LANE, rx: 4,
    fill: d.late ? color("over") : replica(d.worker), opacity: d.opacity }) });
  join(glider, layers.words, blocks.filter((d) => d.text && d.wide > 15), { key: (d) => d.id, tag: "text", text: (d) => d.text,
    end: (d) => ({ x: x(d.begun) + d.wide / 2, y: y(d.worker) + LANE / 2 + 5, "text-anchor": "middle", opacity: d.opacity < 0.5 ? 0 : 1,
      style: `font-weight: 700; font-size: 13px; fill: ${d.late ? inkOn("over") : color("on-replica")}` }) });
}

// A staircase of the server's versions; from each step its reading, held level until it is written, and
// then up to the server's version: that is how stale it is.
function drawVersions(glider, layers, { steps, updates, x, height, now }) {
  const past = updates.filter((one) => one.at <= now + 1e-9);
  const path = past.reduce((text, one, k) => `${text}H${x(one.at)}V${height(k + 1)}`, `M${x(0)} ${height(0)}`);
  join(glider, layers.stairs, [0], { key: String, tag: "path", seconds: 0, end: () => ({ d: `${path}H${x(now)}V${height(0)}Z`, fill: SERVER }) });
  const reads = steps.filter((step) => step.begun <= now && step.update >= 0 && step.update < updates.length).map((step) => ({ ...step, id: `${step.worker} ${step.begun.toFixed(4)}`, over: step.ended <= now + 1e-9 }));
  join(glider, layers.reads, reads, { key: (d) => d.id, tag: "path", seconds: 0, end: (d) => ({ d: `M${x(d.begun)} ${height(d.version)}H${x(Math.min(d.ended, now))}${d.over ? `V${height(d.update)}` : ""}`,
    fill: "none", stroke: replica(d.worker), "stroke-width": 2.2 }) });
  join(glider, layers.dots, reads.filter((d) => d.over), { key: (d) => d.id, tag: "circle", seconds: 0, end: (d) => ({ cx: x(d.ended), cy: height(d.update), r: 3.4, fill: replica(d.worker), stroke: color("panel") }) });
}

// ---- how stale the updates are

function makeHistogram(stage) {
  const layers = Object.fromEntries(["bars", "words"].map((name) => [name, draw("g")])), svg = draw("svg", { role: "img", height: 10 }, ...Object.values(layers));
  const node = make("div", {}, make("strong", { text: "Updates by their staleness" }), svg);
  return { node, update: (run, now, wide) => drawHistogram(stage, svg, layers, run, now, wide) };
}

function drawHistogram({ glider, tall: room }, svg, layers, run, now, wide) {
  const tall = Math.min(170, 0.24 * room), floor = tall - 24, most = Math.max(4, ...run.updates.map((one) => one.staleness)), counts = new Map();
  for (const { at, staleness, workers } of run.updates) if (at <= now + 1e-9) {
    const who = workers.length > 1 ? "all" : workers[0], id = `${staleness} ${who}`;
    counts.set(id, { id, staleness, who, count: (counts.get(id)?.count ?? 0) + 1 });
  }
  const totals = Array(most + 1).fill(0), bars = [...counts.values()].sort((a, b) => (a.who < b.who ? -1 : 1)).map((bar) => ({ ...bar, from: totals[bar.staleness], to: (totals[bar.staleness] += bar.count) }));
  const y = linear([0, Math.max(6, ...totals)], [floor, 18]), slot = wide / (most + 1);
  glider.to(svg, { height: tall, viewBox: `0 0 ${wide} ${tall}` }, 0);
  join(glider, layers.bars, bars, { key: (d) => d.id, tag: "rect", start: (d) => ({ y: floor, height: 0 }), end: (d) => ({ x: d.staleness * slot + 2, y: y(d.to), width: Math.max(2, slot - 4), height: y(d.from) - y(d.to),
    fill: d.who === "all" ? color("all-reduce") : replica(d.who), opacity: 1 }) });
  const every = Math.ceil((most + 1) / (wide / 26)), words = totals.flatMap((total, k) => [...(k % every ? [] : [{ id: `x${k}`, at: k, y: floor + 17, text: k }]), ...(total && (slot > 16 || total > 3) ? [{ id: `n${k}`, at: k, y: y(total) - 4, text: total }] : [])]);
  join(glider, layers.words, words, { key: (d) => d.id, tag: "text", text: (d) => d.text, end: (d) => ({ x: (d.at + 0.5) * slot, y: d.y, "text-anchor": "middle", "font-weight": d.id[0] === "n" ? 700 : 400 }) });
  svg.setAttribute("aria-label", `Updates by staleness: ${totals.map((n, k) => [n, k]).filter(([n]) => n).map(([n, k]) => `${n} with staleness ${k}`).join(", ") || "none yet"}.`);
}

// ---- the loss of the four ways

function makeLosses(stage) {
  const layers = Object.fromEntries(["grid", "lines", "words"].map((name) => [name, draw("g")]));
  const clip = newId("loss"), frame = draw("rect", { x: 0, y: 0 });
  const svg = draw("svg", { role: "img", height: 10 }, draw("defs", {}, draw("clipPath", { id: clip }, frame)), layers.grid, draw("g", { "clip-path": `url(#${clip})` }, layers.lines), layers.words);
  const node = make("div", {}, make("strong", { text: "Loss of a quadratic valley, on the same clock (log scale)" }), svg);
  return { node, update: (runs, now, wide) => drawLosses(stage, svg, layers, frame, runs, now, wide) };
}

function drawLosses({ glider, options, tall: room }, svg, layers, frame, runs, now, wide) {
  const tall = Math.min(170, 0.24 * room), left = 54, right = wide - 136, floor = tall - 22, x = linear([0, UNTIL], [left, right]), scale = logarithmic([LOW, HIGH], [floor, 8]);
  const y = (loss) => clamp(scale(Math.max(loss, LOW / 10)), -40, floor + 20);
  glider.to(svg, { height: tall, viewBox: `0 0 ${wide} ${tall}` }, 0);
  glider.to(frame, { width: wide, height: floor + 2 }, 0);
  const marks = [-4, -2, 0, 2];
  join(glider, layers.grid, marks, { key: String, tag: "line", end: (d) => ({ x1: left, x2: right, y1: y(10 ** d), y2: y(10 ** d), stroke: color("line") }) });
  const curves = MODES.map((mode) => {
    const run = runs[mode], past = run.updates.filter((one) => one.at <= now + 1e-9);
    const path = past.reduce((text, one, k) => `${text}H${x(one.at)}V${y(run.losses[k + 1])}`, `M${x(0)} ${y(run.losses[0])}`);
    return { mode, loss: run.losses[past.length], d: `${path}H${x(now)}` };
  }).sort((a, b) => (a.mode === options.mode) - (b.mode === options.mode));
  join(glider, layers.lines, curves, { key: (d) => d.mode, tag: "path", seconds: 0, end: (d) => ({ d: d.d, fill: "none", stroke: color(LINES[d.mode]), "stroke-width": d.mode === options.mode ? 4 : 1.8, opacity: d.mode === options.mode ? 1 : 0.85 }) });
  const ends = curves.map((d) => ({ ...d, y: clamp(y(d.loss), 10, floor - 2) })).sort((a, b) => a.y - b.y);
  for (let k = 1; k < ends.length; k++) ends[k].y = Math.max(ends[k].y, ends[k - 1].y + 15);
  const over = Math.max(0, ends.at(-1).y - floor), text = (d) => (d.loss > HIGH ? `${NAMES[d.mode]} \u2191` : NAMES[d.mode]);
  const words = [...ends.map((d) => ({ id: d.mode, x: right + 8, y: d.y + 4 - over, anchor: "start", text: text(d), weight: d.mode === options.mode ? 800 : 400 })),
    ...marks.map((d) => ({ id: `m${d}`, x: left - 6, y: y(10 ** d) + 4, anchor: "end", text: sayNumber(10 ** d), weight: 400 }))];
  join(glider, layers.words, words, { key: (d) => d.id, tag: "text", text: (d) => d.text, end: (d) => ({ x: d.x, y: d.y, "text-anchor": d.anchor, style: `font-weight: ${d.weight}` }) });
  svg.setAttribute("aria-label", `Loss after ${sayNumber(now)} steps: ${ends.map((d) => `${NAMES[d.mode]} ${sayLoss(d.loss)}`).join(", ")}.`);
}
module.exports = { TRIES, piece };
