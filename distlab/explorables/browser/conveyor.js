// The conveyor: machines on a belt from the files to the accelerator. Boxes pile up in front of the
// slow machine, the accelerator is dark while it starves. Below: who needs how long for a batch, and
// what the accelerator did, on the same clock as the belt.
const { HALO, choice, clamp, color, draw, inkOn, join, linear, make, newId, numbers, panel, player, sayNumber, sayPercent, saySeconds, slider, ticks, tries } = require("./core.js");
const { simulateInput } = require("./conveyor_model.js");

// Places on the belt: name, words, words where it is narrow, whether a machine.
const PLACES = [["files", "files", "files"], ["read", "read", "read", true], ["afterRead", "queue", ""], ["map", "map", "map", true],
  ["afterMap", "queue", ""], ["shuffle", "shuffle", "shuffle"], ["batch", "batch", "batch"], ["ready", "prefetch", "ahead"],
  ["step", "accelerator", "step", true]];
const COLUMNS = 4, ROWS = 8, LEVEL = 34, ROW = 30;
const NAMES = { read: "reading", map: "the map", step: "the accelerator" };

const START = { readMs: 20, decodeMs: 30, augmentMs: 30, stepMs: 40, reads: 1, calls: 1, cores: 4, prefetch: 1, shuffle: 1, jitter: 0, cache: "nothing" };
const TRIES = [
  { ask: "Twice the cores: does it help?", set: START, act: { cores: 8 },
    answer: "Nothing changes: the map is called one element at a time, so it uses a single core. More cores help only if more calls run at once." },
  { ask: "Which setting feeds the accelerator?", set: { ...START, reads: 2 }, act: { calls: 4 },
    done: (options, data) => options.stepMs <= START.stepMs && runBelt({ data, options }).bottleneck === "step",
    answer: "More calls of the map at once: several cores decode and augment. (A full cache of what it makes does it too.) Now the accelerator takes longest, as it should." },
  { ask: "Take prefetch away: who waits?", set: { ...START, reads: 2, calls: 4 }, act: { prefetch: 0 },
    answer: "The accelerator. Without prefetch the next batch is made only when it's asked for, so making it and training on it take turns." }];

function piece(stage) {
  const { data } = stage, ms = (n) => saySeconds(n / 1000);
  const controls = panel([
    slider(stage, { name: "reads", label: "Files read at once", min: 1, max: 16 }),
    slider(stage, { name: "calls", label: "Calls of map at once", min: 1, max: 16 }),
    slider(stage, { name: "cores", label: "Cores", min: 1, max: 16 }),
    slider(stage, { name: "prefetch", label: "Prefetch, batches", min: 0, max: 4 })], [
    slider(stage, { name: "readMs", label: "Read a batch", min: 1, max: 1000, log: true, say: ms }),
    slider(stage, { name: "decodeMs", label: "Decode it", min: 1, max: 1000, log: true, say: ms }),
    slider(stage, { name: "augmentMs", label: "Augment it", min: 1, max: 1000, log: true, say: ms }),
    slider(stage, { name: "stepMs", label: "Training step", min: 1, max: 1000, log: true, say: ms }),
    slider(stage, { name: "shuffle", label: "Shuffle buffer", min: 1, max: 32, say: (n) => (n === 1 ? "none" : sayNumber(n * data.each)) }),
    slider(stage, { name: "jitter", label: "Jitter of a read", min: 0, max: 1, step: 0.1, say: sayPercent }),
    choice(stage, { name: "cache", label: "Full cache of", options: ["nothing", "decoded", "augmented"] })]);
  const shown = numbers([{ name: "rate", words: "examples a second" }, { name: "starved", words: "of the time the accelerator starves", idea: "wait" },
    { name: "bottleneck", words: "is the bottleneck", idea: "over" }]);
  const pattern = newId("hatch");
  const hatch = draw("pattern", { id: pattern, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    draw("rect", { width: 7, height: 7, fill: color("wait"), opacity: 0.12 }),
    draw("rect", { width: 2.2, height: 7, fill: color("wait"), opacity: 0.75 }));
  const layers = Object.fromEntries(["belt", "places", "glow", "names", "boxes", "grid", "marks", "steps", "level", "bars", "words", "head"].map((name) => [name, draw("g")]));
  const svg = draw("svg", { role: "img", height: 10 }, draw("defs", {}, hatch), ...Object.values(layers));
  const key = make("ul", { class: "ex-key" }, ...[["data", `${data.each} examples: hollow as read, full when mapped`], ["forward", "the accelerator computes"],
    ["wait", "the accelerator starves"], ["over", "the machine that needs longest"]].map(([idea, words]) =>
    make("li", { style: `--idea: ${color(idea)}` }, make("i"), words)));
  let run = null;
  const clock = player(stage, { name: "time", label: "Time of the belt", seconds: () => 16,
    marks: () => run.ends.map((end) => end / run.ends.at(-1)), say: (share) => saySeconds(share * run.ends.at(-1)) });
  stage.root.append(tries(stage, TRIES), controls, clock.node, shown.node, svg, key);
  return () => {
    run = runBelt(stage);
    const rate = (data.each * data.batch) / run.batchSeconds, words = `${sayNumber(Math.round(rate))} examples a second. A batch needs ${saySeconds(run.needs.read)} of reading, ` +
      `${saySeconds(run.needs.map)} of the map and ${saySeconds(run.needs.step)} of the accelerator, which starves ${sayPercent(run.starved)} of the time. The bottleneck is ${NAMES[run.bottleneck]}.`;
    shown.write({ rate: sayNumber(Math.round(rate)), starved: sayPercent(run.starved), bottleneck: NAMES[run.bottleneck] });
    svg.setAttribute("aria-label", `A belt from files to the accelerator. ${words}`);
    stage.say(words);
    drawBelt(stage, svg, layers, pattern, run);
    drawStrip(stage, layers, pattern, run);
    drawBars(stage, layers, run);
  };
}

// One run of the belt. A box is several examples, and so are its seconds.
function runBelt({ data, options }) {
  const seconds = (name) => options[`${name}Ms`] / 1000 / data.batch;
  const factors = data.draws.map((drawn) => [1 + options.jitter * (drawn - 1), 1]);
  return simulateInput({ ...options, read: seconds("read"), decode: seconds("decode"), augment: seconds("augment"), step: options.stepMs / 1000,
    batch: data.batch, batches: data.draws.length / data.batch }, factors, data.picks);
}

// Where every box is at `time`: [{id, place, slot, full}], those far from the belt left out.
function findBoxes(run, time, { reads, calls }, batch) {
  const emitted = [], boxes = [], queues = {};
  run.order.forEach((element, k) => { emitted[element] = k; });
  const put = (id, place, slot, full) => boxes.push({ id, place, slot: slot ?? (queues[place] = (queues[place] ?? -1) + 1), full });
  for (let n = 0; n < run.reads.length; n++) {
    const k = emitted[n], j = Math.floor(k / batch);
    if (time >= run.ends[j]) continue;
    if (time >= run.starts[j]) put(n, "step", k % batch, true);
    else if (time >= run.ready[j]) put(n, "ready", null, true);
    else if (time >= run.emitted[k]) put(n, "batch", k % batch, true);
    else if (time >= run.pulled[n]) put(n, "shuffle", null, true);
    else if (time >= run.maps[n][1]) put(n, "afterMap", null, true);
    else if (time >= run.maps[n][0]) put(n, "map", n % calls, true);
    else if (time >= run.reads[n][1]) put(n, "afterRead", null, false);
    else if (time >= run.reads[n][0]) put(n, "read", n % reads, false);
    else if ((queues.files ?? -1) < 31) put(n, "files", null, false);
  }
  return boxes;
}

// Where things stand: the belt's place is `floor`, below it the accelerator's strip and the bars.
function layOut({ width }) {
  const inner = width - 34, gap = inner / PLACES.length, side = clamp((gap - 10) / COLUMNS - 2, 5, 17), cell = side + 2;
  const tall = ROWS * cell + 8, floor = tall + 26, strip = floor + 102;
  return { inner, gap, side, cell, tall, floor, wide: COLUMNS * cell + 8, strip, bars: strip + LEVEL + 46 };
}

function drawBelt(stage, svg, layers, pattern, run) {
  const { glider, options, data } = stage, { inner, gap, side, cell, wide, tall, floor, bars } = layOut(stage), narrow = gap < 76;
  const x = (k) => (k + 0.5) * gap, height = bars + 3 * ROW + 22, step = { x: x(8) - wide / 2, y: floor - tall }, time = options.time * run.ends.at(-1);
  glider.to(svg, { height, viewBox: `0 0 ${inner} ${height}` }, 0);
  const places = PLACES.map(([name, words, few, machine], k) => ({ name, k, machine, words: narrow ? few : words,
    idle: (options.cache !== "nothing" && ["files", "read"].includes(name)) || (options.cache === "augmented" && name === "map") || (name === "ready" && !options.prefetch) }));
  join(glider, layers.belt, [0], { key: String, tag: "rect", end: () => ({ x: 0, y: floor + 2, width: inner, height: 7, rx: 3, fill: color("track") }) });
  join(glider, layers.places, places, { key: (d) => d.name, tag: "rect",
    end: (d) => ({ x: x(d.k) - wide / 2, y: floor - tall, width: wide, height: tall, rx: 6, fill: color("paper"), opacity: d.idle ? 0.35 : 1,
      stroke: d.name === run.bottleneck ? color("over") : color(d.machine ? "edge" : "line"), "stroke-width": d.name === run.bottleneck ? 4 : d.machine ? 2 : 1.2,
      "stroke-dasharray": d.machine ? "none" : "4 3" }) });
  const busy = run.starts.some((start, j) => time >= start && time < run.ends[j]);
  join(glider, layers.glow, [0], { key: String, tag: "rect", seconds: 0.12,
    end: () => ({ ...step, width: wide, height: tall, rx: 6, fill: busy ? color("forward") : `url(#${pattern})`, "fill-opacity": busy ? 0.55 : 1 }) });
  const named = places.filter((d) => d.words), size = gap < 60 ? 10.5 : narrow ? 12 : 13;
  const labels = [...named.map((d) => ({ id: d.name, x: x(d.k), y: floor + 26, text: d.words, weight: d.machine ? 700 : 400 })),
    { id: "slow", x: clamp(x(PLACES.findIndex(([name]) => name === run.bottleneck)), 36, inner - 36), y: floor - tall - 8, text: "bottleneck", weight: 700, fill: color("over") }];
  join(glider, layers.names, labels, { key: (d) => d.id, tag: "text", text: (d) => d.text,
    end: (d) => ({ x: d.x, y: d.y, "text-anchor": "middle", style: `font-size: ${size}px; font-weight: ${d.weight}${d.fill ? `; fill: ${d.fill}` : ""}` }) });
  const at = Object.fromEntries(PLACES.map(([name], k) => [name, x(k) - wide / 2 + 4]));
  join(glider, layers.boxes, findBoxes(run, time, options, data.batch), { key: (d) => d.id, tag: "rect", start: () => ({ opacity: 0 }),
    end: (d) => ({ x: at[d.place] + (d.slot % COLUMNS) * cell + 1, y: floor - 4 - cell * (1 + Math.min(ROWS - 1, Math.floor(d.slot / COLUMNS))), width: side, height: side, rx: side / 5,
      fill: d.full ? color("data") : color("paper"), stroke: color("data"), "stroke-width": 2 }) });
}

// What the accelerator did, and how many batches were ready for it, over the whole run.
function drawStrip(stage, layers, pattern, run) {
  const { glider, options } = stage, { inner, strip } = layOut(stage), end = run.ends.at(-1), x = linear([0, end], [2, inner - 2]);
  const top = strip - 36, time = options.time * end, tall = 22;
  const steps = run.starts.flatMap((start, j) => [{ id: `step ${j}`, from: start, to: run.ends[j], fill: color("forward") },
    { id: `wait ${j}`, from: j ? run.ends[j - 1] : 0, to: start, fill: `url(#${pattern})` }]);
  join(glider, layers.steps, steps, { key: (d) => d.id, tag: "rect",
    end: (d) => ({ x: x(d.from), y: top, width: Math.max(0, x(d.to) - x(d.from) - (d.id[0] === "s" ? 0.6 : 0)), height: tall, fill: d.fill, opacity: time >= d.from ? 1 : 0.4 }) });
  const most = Math.max(2, options.prefetch + 1), y = linear([0, most], [strip + LEVEL, strip + 2]);
  const changes = [...run.ready.map((at) => [at, 1]), ...run.starts.map((at) => [at, -1])].sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  let level = 0, path = `M${x(0)} ${y(0)}`;
  for (const [at, way] of changes) { path += `L${x(at)} ${y(level)}L${x(at)} ${y((level += way))}`; }
  join(glider, layers.level, [0], { key: String, tag: "path",
    end: () => ({ d: `${path}L${x(end)} ${y(0)}Z`, fill: color("data"), "fill-opacity": 0.55, stroke: color("data"), "stroke-width": 1.4 }) });
  const marks = ticks(0, end, clamp(Math.round(inner / 120), 2, 9)).map((at, k) => ({ at, k }));
  join(glider, layers.grid, marks, { key: (d) => d.k, tag: "line", end: (d) => ({ x1: x(d.at), x2: x(d.at), y1: top, y2: strip + LEVEL, stroke: color("line") }) });
  const words = [...marks.map((d) => ({ id: d.k, x: clamp(x(d.at), 4, inner - 20), y: strip + LEVEL + 15, text: d.at ? saySeconds(d.at) : "0", anchor: d.k ? "middle" : "start" })),
    { id: "title", x: 0, y: top - 6, text: inner > 560 ? "The accelerator over time, and below it the batches that are ready for it" : "The accelerator, and the batches ready for it", anchor: "start", bold: true }];
  join(glider, layers.marks, words, { key: (d) => d.id, tag: "text", text: (d) => d.text,
    end: (d) => ({ x: d.x, y: d.y, "text-anchor": d.anchor, style: d.bold ? "font-weight: 600" : "" }) });
  join(glider, layers.head, options.time < 1 ? [0] : [], { key: String, tag: "line", seconds: 0,
    end: () => ({ x1: x(time), x2: x(time), y1: top - 2, y2: strip + LEVEL, stroke: color("ink"), "stroke-width": 2 }) });
}

// Seconds of a batch in each machine, and the line at what a batch really takes.
function drawBars(stage, layers, run) {
  const { glider } = stage, { inner, bars: top } = layOut(stage), left = 96, x = linear([0, Math.max(run.batchSeconds, ...Object.values(run.needs))], [left, inner - 84]);
  const rows = Object.entries(run.needs).map(([name, seconds], k) => ({ id: name, seconds, y: top + k * ROW, slow: name === run.bottleneck }));
  join(glider, layers.bars, [...rows, { id: "whole", seconds: run.batchSeconds, y: top, whole: true }], { key: (d) => d.id, tag: "rect",
    end: (d) => d.whole ? { x: x(d.seconds) - 1.5, y: top - 4, width: 3, height: 3 * ROW, fill: color("ink") }
      : { x: left, y: d.y, width: Math.max(1, x(d.seconds) - left), height: 21, rx: 4, fill: color(d.slow ? "over" : d.id === "step" ? "forward" : "data") } });
  const words = rows.flatMap((d) => {
    const inside = x(d.seconds) - left > 90;
    return [{ id: `name ${d.id}`, x: 0, y: d.y + 15, text: d.id === "step" ? "accelerator" : d.id, style: "font-weight: 600" },
      { id: `time ${d.id}`, x: x(d.seconds) + (inside ? -10 : 8), y: d.y + 15, text: saySeconds(d.seconds), anchor: inside ? "end" : "start",
        style: `font-weight: 700; ${inside ? `fill: ${inkOn(d.slow ? "over" : d.id === "step" ? "forward" : "data")}` : HALO}` }];
  });
  words.push({ id: "whole", x: x(run.batchSeconds) + (x(run.batchSeconds) > inner / 2 ? 4 : 0), y: top + 3 * ROW + 12,
    text: `a batch every ${saySeconds(run.batchSeconds)}`, anchor: x(run.batchSeconds) > inner / 2 ? "end" : "start", style: "font-weight: 700" });
  join(glider, layers.words, words, { key: (d) => d.id, tag: "text", text: (d) => d.text,
    end: (d) => ({ x: d.x, y: d.y, "text-anchor": d.anchor ?? "start", style: d.style }) });
}
module.exports = { TRIES, piece };
