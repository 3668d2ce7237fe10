// The cockpit of a job: one axis of time, a row for each process. The kernel sends what happened a
// few times a second; in between, the picture moves on by the clock, a moment late.
const { make, button, toggle, slider, readColors, sizeCanvas, isStill, ticks, clamp, sayNumber } = require("./core.js");

const LAG = 0.35, FRAME_MS = 33, ROW = 58, LOSS = 64, AXIS = 20, SLOWEST_MS = 1000;
// kind -> [color, strength, words in a wide block]
const KINDS = {
  start: ["wait", 0.14, "starts"],
  restart: ["over", 0.2, "starts again"],
  compute: ["forward", 0.85, ""],
  wait: ["wait", 0.4, "waits"],
  send: ["all-reduce", 1, ""],
  paused: ["data", 0.6, "paused"],
  down: ["over", 0.4, "killed"],
};
// share of the time -> [color, strength]; the lanes' own
const SHARES = {
  useful: ["forward", 0.85], waiting: ["wait", 0.4], restarting: ["over", 0.4], repeated: ["ink", 0.85], rest: ["line", 0.35],
};
const STOPS = new Set(["paused", "down"]);
const KEY = [["forward", "computes"], ["all-reduce", "all-reduce"], ["wait", "waits"], ["data", "paused"],
  ["over", "killed, restarting"], ["ink", "trained again later"], ["variables", "checkpoint"]];
const NOT_WITH_SERVERS = new Set(["all-reduce", "wait"]);  // nobody waits for a sum
const CLASS_KEY = KEY.filter(([idea]) => idea !== "data").map(([idea, words]) => [idea, words.replace("killed", "lost")]);

function piece(stage) {
  const parts = build(stage);
  let colors, clock = { told: 0, at: 0 }, frame = 0, drawn = 0, seen = true;
  const moving = () => seen && !stage.data.finished && !isStill();
  const paint = () => {
    const { told, at } = clock;
    const now = moving() ? Math.max(0, told - LAG + (performance.now() - at) / 1000) : told;
    paintAll(parts, stage.data, now, colors);
  };
  const run = (time) => {
    frame = 0;
    if (time - drawn >= FRAME_MS) { drawn = time; paint(); }
    if (moving()) frame = requestAnimationFrame(run);
  };
  const eye = new IntersectionObserver(([entry]) => { seen = entry.isIntersecting; if (seen) stage.redraw(); });
  eye.observe(stage.root);
  stage.ends.push(() => { eye.disconnect(); cancelAnimationFrame(frame); });
  return () => {
    colors = readColors(stage.root);
    if (stage.data.clock !== clock.told) clock = { told: stage.data.clock, at: performance.now() };
    write(stage, parts);
    paint();
    frame ||= moving() ? requestAnimationFrame(run) : 0;
  };
}

// ---- elements

function build(stage) {
  const parts = { rows: new Map() };
  let pressed = stage.options.press?.count ?? 0;
  parts.send = (action, task = "") => stage.set("press", { count: ++pressed, action, task });
  parts.status = make("p", { class: "ck-status" });
  parts.stop = button("Stop the job", () => parts.send("stop"), { class: "ex-main" });
  parts.begin = button("", () => parts.send("begin"), { class: "ex-main" });
  parts.chaos = toggle(stage, { name: "chaos", label: "Chaos: let a worker fail every few seconds" });
  parts.message = make("p", { class: "ck-message", role: "status" });
  parts.shares = make("div", { class: "ck-shares", "aria-hidden": "true" }, ...Object.entries(SHARES).map(([kind, [idea, strength]]) =>
    make("i", { "data-kind": kind, style: `--idea: var(--ex-${idea}); --strength: ${100 * strength}%` })));
  parts.scoreWords = make("span");
  parts.score = make("div", { class: "ck-score" }, parts.shares, parts.scoreWords);
  parts.loss = makeBand("loss", "");
  parts.axis = makeBand("", "");
  parts.list = make("div", { class: "ck-rows" });
  parts.lines = make("pre");
  parts.log = make("pre");
  parts.logWords = make("summary");
  parts.logBox = make("details", {}, parts.logWords, parts.log);
  const watched = !!stage.data.watchOnly, served = stage.data.lanes.some((lane) => lane.name.startsWith("ps "));
  const ideas = watched ? CLASS_KEY : served ? KEY.filter(([idea]) => !NOT_WITH_SERVERS.has(idea)) : KEY;
  const key = make("ul", { class: "ex-key" }, ...ideas.map(([idea, words]) =>
    make("li", { style: `--idea: var(--ex-${idea})`, class: idea === "ink" ? "ck-again" : "" }, make("i"), make("span", { text: words }))));
  stage.root.classList.add("ck");
  stage.root.classList.toggle("ck-watched", watched);
  stage.root.append(
    make("div", { class: "ck-head" }, parts.status, parts.chaos, parts.begin, parts.stop), parts.message,
    parts.score, parts.loss.node, parts.list, parts.axis.node, key,
    make("details", {}, make("summary", { text: watched ? "What the laptops print" : "What the tasks print" }), parts.lines), parts.logBox);
  return parts;
}

function makeBand(name, label) {
  const words = make("div", { class: "ck-about", text: name });
  const canvas = make("canvas", label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" });
  return { node: make("div", { class: "ck-row ck-band" }, words, make("div", { class: "ck-time" }, canvas), make("div")), canvas, words };
}

function makeRow(stage, parts, lane) {
  const { name } = lane, row = { lane };
  const about = make("div", { class: "ck-about" }, make("b", { text: name }));
  for (const part of ["words", "facts", "bytes"]) about.append((row[part] = make("span", { class: `ck-${part}` })));
  row.canvas = make("canvas", { role: "img" });
  const press = (action) => button("", () => parts.send(action(), name));
  row.kill = press(() => "kill");
  row.pause = press(() => row.lane.pause);
  row.restart = press(() => "restart");
  const hand = make("div", { class: "ck-hand" }, make("div", { class: "ck-buttons" }, row.kill, row.pause, row.restart));
  if (lane.can.slow !== null) {
    const option = `slow ${name}`;
    stage.options[option] ??= 0;
    const node = slider(stage, { name: option, label: "Slow down", min: 0, max: SLOWEST_MS, step: 50, say: (ms) => (ms ? `+${ms} ms a step` : "no") });
    row.slow = node.querySelector("input");
    row.slow.setAttribute("aria-label", `Slow down ${name}`);
    hand.append(node);
  }
  hand.hidden = !!stage.data.watchOnly;
  row.node = make("div", { class: "ck-row", role: "group", "aria-label": name }, about, make("div", { class: "ck-time" }, row.canvas), hand);
  return row;
}

function setText(node, text) { if (node.textContent !== text) node.textContent = text; }

function setButton(node, words, name, able) {
  setText(node, words);
  node.setAttribute("aria-label", `${words} ${name}`);
  node.disabled = !able;
}

function write(stage, parts) {
  const { data } = stage, names = data.lanes.map((lane) => lane.name);
  setText(parts.status, data.status);
  setText(parts.message, data.message);
  setText(parts.lines, data.lines);
  setText(parts.log, data.log);
  setText(parts.logWords, data.logWords);
  parts.score.hidden = !data.score?.words;
  if (!parts.score.hidden) {
    setText(parts.scoreWords, data.score.words);
    data.score.parts.forEach(([, percent], k) => { parts.shares.children[k].style.flexGrow = percent; });
  }
  parts.logBox.hidden = !data.log;
  parts.loss.node.hidden = !data.losses.length;
  parts.stop.disabled = data.finished;
  if (data.watchOnly) setText(parts.stop, data.stopWords);
  setText(parts.begin, data.beginWords ?? "");
  parts.begin.hidden = !data.beginWords;
  parts.chaos.hidden = !!data.watchOnly;
  parts.chaos.querySelector("input").disabled = data.finished;
  if (names.join() !== [...parts.rows.keys()].join()) {
    parts.rows = new Map(data.lanes.map((lane) => [lane.name, makeRow(stage, parts, lane)]));
    parts.list.replaceChildren(...[...parts.rows.values()].map((row) => row.node));
    stage.shows.forEach((show) => show());
  }
  for (const lane of data.lanes) writeRow(parts.rows.get(lane.name), lane);
}

function writeRow(row, lane) {
  row.lane = lane;
  if (row.node.dataset.state !== lane.state) row.node.dataset.state = lane.state;
  for (const part of ["words", "facts", "bytes"]) setText(row[part], lane[part]);
  const label = `${lane.name}: ${lane.words}. ${lane.facts}. ${lane.notes}`;
  if (row.canvas.getAttribute("aria-label") !== label) row.canvas.setAttribute("aria-label", label);
  setButton(row.kill, "Kill", lane.name, lane.can.kill);
  setButton(row.pause, lane.pause === "pause" ? "Pause" : "Resume", lane.name, lane.can.pause);
  setButton(row.restart, "Restart", lane.name, lane.can.restart);
  if (row.slow) row.slow.disabled = !lane.can.slow;
}

// ---- painting

function paintAll(parts, data, now, colors) {
  const width = parts.axis.canvas.parentElement.clientWidth || parts.width || 300;  // 0 while JupyterLab hides it
  parts.width = width;
  const span = clamp(width / 45, 9, 20), from = Math.max(0, now - span);
  const x = (time) => ((time - from) / span) * width;
  const scene = { data, now, from, width, x, colors };
  for (const [name, row] of parts.rows) paintRow(row.canvas, data.lanes.find((lane) => lane.name === name), scene);
  if (data.losses.length) paintLoss(parts.loss, scene);
  paintAxis(parts.axis.canvas, scene);
}

function paintRow(canvas, lane, scene) {
  const { x, now, width, colors, data } = scene, top = 14, height = ROW - top - 4;
  const pen = sizeCanvas(canvas, width, ROW);
  pen.fillStyle = colors("line");
  pen.globalAlpha = 0.35;
  pen.fillRect(0, top, width, height);
  // What stops a task stands before what it was doing meanwhile.
  for (const [start, end, kind] of [...lane.spans.filter((span) => !STOPS.has(span[2])), ...lane.spans.filter((span) => STOPS.has(span[2]))]) {
    const until = end >= data.clock ? now : Math.min(end, now);
    const told = kind === "start" && start > 0 && !data.watchOnly ? "restart" : kind;
    if (until > scene.from && start < now) paintSpan(pen, scene, told, x(Math.max(start, scene.from)), x(until), top, height);
  }
  pen.globalAlpha = 1;
  for (const [start, end] of lane.lost) if (end > scene.from) hatch(pen, colors("ink"), Math.max(0, x(start)), Math.min(x(end), width), top, height);
  for (const flag of lane.flags) if (flag[0] > scene.from && flag[0] <= now) paintFlag(pen, scene, flag);
  for (const [time, kind] of lane.marks) if (time > scene.from - 1 && time <= now) paintMark(pen, scene, time, kind, top, height);
}

function paintSpan(pen, { colors, data }, kind, left, right, top, height) {
  const [idea, strength, told] = KINDS[kind], wide = right - left;
  const words = kind === "down" && data.watchOnly ? "lost" : told;
  pen.globalAlpha = strength;
  pen.fillStyle = colors(idea);
  if (STOPS.has(kind)) {
    pen.globalAlpha = 1;
    pen.fillStyle = colors("panel");
    pen.fillRect(left, top, wide, height);
    pen.globalAlpha = strength;
    pen.fillStyle = colors(idea);
  }
  const inset = kind === "wait" ? height * 0.3 : kind === "send" ? height * 0.12 : 0;
  pen.fillRect(left, top + inset, Math.max(wide - (kind === "compute" ? 1 : 0), 0.8), height - 2 * inset);
  if (words && wide > 7 * words.length + 18) {
    pen.globalAlpha = 1;
    label(pen, colors, words, left + wide / 2, top + height / 2, "center");
  }
}

function label(pen, colors, words, x, y, align = "left") {
  pen.font = "600 12px system-ui, sans-serif";
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.lineWidth = 4;
  pen.lineJoin = "round";
  pen.strokeStyle = colors("panel");
  pen.strokeText(words, x, y);
  pen.fillStyle = colors("ink");
  pen.fillText(words, x, y);
}

function hatch(pen, color, left, right, top, height) {
  if (right <= left) return;
  pen.save();
  pen.beginPath();
  pen.rect(left, top, right - left, height);
  pen.clip();
  pen.strokeStyle = color;
  pen.lineWidth = 2.5;
  pen.beginPath();
  for (let at = Math.floor((left - height) / 9) * 9; at < right; at += 9) { pen.moveTo(at, top + height); pen.lineTo(at + height, top); }
  pen.stroke();
  pen.restore();
  pen.strokeStyle = color;
  pen.lineWidth = 1.5;
  pen.strokeRect(left, top, right - left, height);
}

function paintFlag(pen, { x, colors, now, data }, [time, step, used]) {
  const at = x(time), size = used ? 13 : 9;
  const glow = used && !isStill() && !data.finished ? 0.5 + 0.5 * Math.sin(now * 5) : 1;
  pen.strokeStyle = pen.fillStyle = colors("variables");
  if (used) { pen.globalAlpha = 0.35 * glow; pen.beginPath(); pen.arc(at + 5, 7, 13, 0, 7); pen.fill(); pen.globalAlpha = 1; }
  pen.lineWidth = used ? 3 : 2;
  pen.beginPath(); pen.moveTo(at, 0); pen.lineTo(at, ROW - 4); pen.stroke();
  pen.beginPath(); pen.moveTo(at, 0); pen.lineTo(at + size, size / 2); pen.lineTo(at, size); pen.fill();
  pen.font = `${used ? 700 : 400} 11px system-ui, sans-serif`;
  pen.textAlign = "left"; pen.textBaseline = "top";
  pen.fillStyle = colors("ink");
  pen.fillText(`${step}`, at + size + 3, 0);
}

function paintMark(pen, { x, colors, now }, time, kind, top, height) {
  const at = x(time), age = now - time, idea = { end: "over", pause: "data", back: "forward" }[kind];
  if (kind === "end" && age < 1.1 && !isStill()) {
    pen.globalAlpha = 0.75 * (1 - age / 1.1);
    pen.fillStyle = colors("over");
    pen.beginPath(); pen.arc(at, top + height / 2, 12 + 90 * age, 0, 7); pen.fill();
    pen.globalAlpha = 1;
  }
  pen.fillStyle = colors(idea);
  pen.fillRect(at - 1, top - 2, 2.5, height + 4);
  const symbol = { end: "\u2715", pause: "\u275a\u275a", back: "\u21bb" }[kind];
  pen.beginPath(); pen.arc(at, top + height / 2, 10, 0, 7); pen.fill();
  pen.fillStyle = colors(`on-${idea}`);
  pen.font = "700 12px system-ui, sans-serif"; pen.textAlign = "center"; pen.textBaseline = "middle";
  pen.fillText(symbol, at, top + height / 2 + 1);
}

function paintLoss({ canvas, words }, { data, x, now, from, width, colors }) {
  const pen = sizeCanvas(canvas, width, LOSS);
  const shown = data.losses.map((run) => run.filter(([time]) => time >= from && time <= now));
  const values = shown.flat().map(([, loss]) => loss);
  if (!values.length) return;
  const low = Math.min(...values), high = Math.max(...values), y = (loss) => 8 + ((LOSS - 16) * (high - loss)) / (high - low || 1);
  pen.strokeStyle = pen.fillStyle = colors("ink");
  pen.lineWidth = 2; pen.lineJoin = "round";
  for (const run of shown) {
    pen.beginPath();
    run.forEach(([time, loss], k) => (k ? pen.lineTo(x(time), y(loss)) : pen.moveTo(x(time), y(loss))));
    pen.stroke();
  }
  const last = shown.flat().at(-1);
  pen.beginPath(); pen.arc(x(last[0]), y(last[1]), 4, 0, 7); pen.fill();
  label(pen, colors, sayNumber(high), 2, 8);
  label(pen, colors, sayNumber(low), 2, LOSS - 8);
  setText(words, `loss ${sayNumber(last[1])}`);
}

function paintAxis(canvas, { x, from, width, colors }) {
  const pen = sizeCanvas(canvas, width, AXIS);
  pen.fillStyle = colors("ink");
  pen.font = "12px system-ui, sans-serif"; pen.textAlign = "center"; pen.textBaseline = "top";
  const until = from + clamp(width / 45, 9, 20);
  for (const tick of ticks(from, until, 6)) {
    if (x(tick) > 12 && x(tick) < width - 20) { pen.fillRect(x(tick), 0, 1, 5); pen.fillText(`${tick} s`, x(tick), 7); }
  }
}
module.exports = { piece };
