// A training step on one time axis: forward, backward layer by layer, gradients that fill buckets,
// buckets on the network, the update. Below it: the wait for the network against the size of a bucket.
const { clamp, color, draw, inkOn, join, linear, logarithmic, make, newId, numbers, panel, player, sayBytes, sayNumber, sayPercent, sayPlural, saySeconds, slider, ticks, toggle, tries } = require("./core.js");
const { listWaits, simulateStep } = require("./step_model.js");

const LAYERS = 8, LANE = 34, SEND = 30, LEFT = 74, RIGHT = 16, CURVE = 110;
const TOPS = { compute: 4, buckets: 62, network: 128 }, FLOOR = 176, SMALLEST = 2e6;

const START = { bucket: 2.5e7, gradients: 1e8, workersLog: 3, bandwidth: 1.25e10, latency: 2e-5, speed: 1, overlap: true, time: 1 };
const TRIES = [
  { ask: "One big bucket: how much is hidden?", set: START, act: { bucket: 1e8 }, done: ({ bucket, gradients }) => bucket >= gradients,
    answer: "Nothing. The only bucket is full when the backward pass ends, so the whole all-reduce comes after it." },
  { ask: "Then why not the smallest buckets?", set: START, act: { bucket: 2e6 },
    answer: "Each bucket pays the latency of its own all-reduce, 14 messages in a row. With 50 buckets that adds 14 ms, as long as the data itself takes." },
  { ask: "A hundred times slower links: what still hides?", set: START, act: { bandwidth: 1.25e8 }, done: ({ bandwidth }) => bandwidth < 2e8,
    answer: "Only what fits behind the backward pass. The all-reduce now takes far longer than that, and the rest is waiting." }];

function piece(stage) {
  const controls = panel([
    slider(stage, { name: "bucket", label: "Bucket", min: SMALLEST, max: 4e8, log: true, say: sayBytes }),
    slider(stage, { name: "workersLog", label: "Workers", min: 0, max: 8, say: (n) => sayNumber(2 ** n) }),
    slider(stage, { name: "bandwidth", label: "Bandwidth", min: 1e8, max: 1e11, log: true, say: (n) => `${sayBytes(n)}/s` }),
    toggle(stage, { name: "overlap", label: "Send during backward" })], [
    slider(stage, { name: "gradients", label: "All gradients", min: 2e7, max: 4e8, log: true, say: sayBytes }),
    slider(stage, { name: "latency", label: "Latency", min: 1e-6, max: 1e-3, log: true, say: saySeconds }),
    slider(stage, { name: "speed", label: "Speed of a device", min: 0.25, max: 16, log: true, say: (n) => `\u00d7 ${sayNumber(n, 2)}` })]);
  const shown = numbers([{ name: "step", words: "a step" }, { name: "exposed", words: "waiting for the network", idea: "wait" },
    { name: "hidden", words: "of the all-reduce is hidden", idea: "all-reduce" }, { name: "kept", words: "of the devices' speed is left" }]);
  const key = make("ul", { class: "ex-key" }, ...[["forward", "forward"], ["backward", "backward, and gradients in buckets"],
    ["all-reduce", "all-reduce"], ["wait", "waits"], ["optimizer", "optimizer"]].map(([idea, words]) =>
    make("li", { style: `--idea: ${color(idea)}` }, make("i"), words)));
  const pattern = newId("hatch");
  const hatch = draw("pattern", { id: pattern, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    draw("rect", { width: 7, height: 7, fill: color("wait"), opacity: 0.12 }),
    draw("rect", { width: 2.2, height: 7, fill: color("wait"), opacity: 0.75 }));
  const layers = Object.fromEntries(["grid", "marks", "lanes", "blocks", "names", "hills", "threads", "sent", "numbers", "head"].map((name) => [name, draw("g")]));
  const svg = draw("svg", { role: "img", height: 10 }, draw("defs", {}, hatch), ...Object.values(layers));
  const curve = makeCurve();
  let now = null;
  const clock = player(stage, { name: "time", label: "Time of one step", seconds: () => 8,
    marks: () => [...new Set(now.buckets.flatMap((b) => [b.full, b.end]))].sort((a, b) => a - b).map((at) => at / now.step),
    say: (share) => saySeconds(share * now.step) });
  stage.root.append(tries(stage, TRIES), controls, clock.node, shown.node, svg, key, curve.node);
  return () => {
    const options = readStep(stage);
    now = simulateStep(options);
    const hidden = now.communication ? Math.max(0, Number((1 - now.exposed / now.communication).toFixed(6))) : 0;
    shown.write({ step: saySeconds(now.step), exposed: saySeconds(now.exposed),
      hidden: now.communication ? sayPercent(hidden) : "nothing sent", kept: sayPercent(now.efficiency) });
    const words = `A step of ${saySeconds(now.step)} on ${options.workers} workers: forward ${saySeconds(options.forward)}, backward ${saySeconds(options.backward)}, ` +
      `${sayPlural(now.buckets.length, "bucket")} whose all-reduce takes ${saySeconds(now.communication)}; the devices wait ${saySeconds(now.exposed)} for it, then update.`;
    svg.setAttribute("aria-label", words);
    stage.say(words);
    drawStep(stage, svg, layers, pattern, options, now);
    curve.update(stage, options, now);
  };
}

// The options as the model wants them: workers, and seconds at the chosen speed.
function readStep({ options, data }) {
  const seconds = Object.fromEntries(["forward", "backward", "update"].map((name) => [name, data[name] / options.speed]));
  return { ...options, ...seconds, workers: 2 ** options.workersLog, bucket: Math.min(options.bucket, options.gradients) };
}

function drawStep(stage, svg, layers, pattern, options, now) {
  const { glider, width } = stage, inner = width - 34, x = linear([0, now.step], [LEFT, inner - RIGHT]), head = stage.options.time * now.step;
  glider.to(svg, { height: FLOOR + 24, viewBox: `0 0 ${inner} ${FLOOR + 24}` }, 0);
  const done = (end, start) => (head >= end - 1e-12 ? 1 : head > start ? 0.7 : 0.2);
  const marks = ticks(0, now.step, clamp(Math.round(inner / 110), 2, 10)).map((at, k) => ({ at, k }));
  join(glider, layers.grid, marks, { key: (d) => d.k, tag: "line", end: (d) => ({ x1: x(d.at), x2: x(d.at), y1: 0, y2: FLOOR, stroke: color("line") }) });
  join(glider, layers.marks, marks, { key: (d) => d.k, tag: "text", text: (d) => (d.at ? saySeconds(d.at) : "0"),
    end: (d) => ({ x: Math.min(x(d.at), inner - 20), y: FLOOR + 17, "text-anchor": "middle" }) });
  join(glider, layers.lanes, Object.entries(TOPS), { key: (d) => d[0], tag: "text", text: (d) => d[0], seconds: 0,
    end: (d) => ({ x: 0, y: d[1] + LANE / 2 + 4 }) });
  drawCompute(glider, layers, pattern, options, now, x, done);
  drawBuckets(glider, layers, options, now, x, head, done);
  join(glider, layers.head, stage.options.time < 1 ? [0] : [], { key: String, tag: "line", seconds: 0,
    end: () => ({ x1: x(head), x2: x(head), y1: 0, y2: FLOOR, stroke: color("ink"), "stroke-width": 2 }) });
}

function drawCompute(glider, layers, pattern, { forward, backward }, now, x, done) {
  const slice = backward / LAYERS, y = TOPS.compute;
  const blocks = [{ id: "forward", from: 0, to: forward, idea: "forward", words: "forward" },
    ...[...Array(LAYERS).keys()].map((k) => ({ id: `layer ${k}`, from: forward + k * slice, to: forward + (k + 1) * slice,
      idea: "backward", words: String(LAYERS - k), long: `layer ${LAYERS - k}` })),
    { id: "wait", from: now.compute, to: now.reduced, idea: null, words: "waits" },
    { id: "update", from: now.reduced, to: now.step, idea: "optimizer", words: "update" }]
    .map((d) => ({ ...d, wide: x(d.to) - x(d.from) })).map((d) => (d.long && d.wide > 8 + 7 * d.long.length ? { ...d, words: d.long } : d));
  join(glider, layers.blocks, blocks, { key: (d) => d.id, tag: "rect",
    end: (d) => ({ x: x(d.from) + 0.5, y, width: Math.max(0, d.wide - 1), height: LANE, rx: 3,
      fill: d.idea ? color(d.idea) : `url(#${pattern})`, opacity: done(d.to, d.from) }) });
  const named = blocks.filter((d) => d.wide > 8 + 7 * d.words.length);
  join(glider, layers.names, named, { key: (d) => d.id, tag: "text", text: (d) => d.words,
    end: (d) => ({ x: (x(d.from) + x(d.to)) / 2, y: y + LANE / 2 + 4.5, "text-anchor": "middle",
      style: `font-weight: 600; fill: ${d.idea ? inkOn(d.idea) : color("ink")}`, opacity: done(d.to, d.from) < 1 ? 0 : 1 }) });
}

// A bucket fills up like a ramp, a thread leads from where it is full to where the network takes it.
function drawBuckets(glider, layers, options, now, x, head, done) {
  const { buckets } = now, foot = TOPS.buckets + LANE, most = Math.min(options.bucket, options.gradients), y = TOPS.network;
  const ramp = (d) => {
    const until = clamp(head, d.from, d.full), tall = (LANE * d.size) / most, share = (until - d.from) / (d.full - d.from || 1);
    return `M${x(d.from)} ${foot}L${x(until)} ${foot - tall * share}L${x(until)} ${foot}Z`;
  };
  join(glider, layers.hills, buckets, { key: (d) => d.number, tag: "path",
    end: (d) => ({ d: ramp(d), fill: color("backward"), "fill-opacity": 0.75, stroke: color("backward"), "stroke-width": 1 }) });
  join(glider, layers.threads, buckets, { key: (d) => d.number, tag: "path",
    end: (d) => ({ d: `M${x(d.full)} ${foot}L${x(d.start)} ${y}`, fill: "none", stroke: color("all-reduce"), "stroke-width": 1.4,
      opacity: head >= d.full ? 0.9 : 0 }) });
  const sent = buckets.filter((d) => d.end > d.start);
  join(glider, layers.sent, sent, { key: (d) => d.number, tag: "rect",
    end: (d) => ({ x: x(d.start) + 0.4, y, width: Math.max(0.4, x(d.end) - x(d.start) - 0.8), height: SEND, rx: 3, fill: color("all-reduce"), opacity: done(d.end, d.start) }) });
  const wide = sent.filter((d) => x(d.end) - x(d.start) > 8 + 7 * String(d.number + 1).length);
  join(glider, layers.numbers, wide, { key: (d) => d.number, tag: "text", text: (d) => d.number + 1,
    end: (d) => ({ x: (x(d.start) + x(d.end)) / 2, y: y + SEND / 2 + 4.5, "text-anchor": "middle", style: `font-weight: 600; fill: ${inkOn("all-reduce")}`,
      opacity: done(d.end, d.start) < 1 ? 0.4 : 1 }) });
}

// What is not hidden, against the size of a bucket: too small pays latency, too large hides nothing.
function makeCurve() {
  const layers = Object.fromEntries(["grid", "marks", "floor", "line", "dot", "words"].map((name) => [name, draw("g")]));
  const node = draw("svg", { role: "img", height: CURVE + 70, style: "margin-top: 14px" }, ...Object.values(layers));
  const update = ({ glider, width }, options, now) => {
    const inner = width - 34, top = 30, foot = top + CURVE, sizes = [];
    for (let k = 0; k <= 60; k++) sizes.push(SMALLEST * (options.gradients / SMALLEST) ** (k / 60));
    const waits = listWaits(options, sizes), most = Math.max(...waits, now.exposed, now.compute / 50), least = Math.min(...waits);
    const x = logarithmic([SMALLEST, options.gradients], [LEFT, inner - RIGHT]), y = linear([0, most], [foot, top]);
    const best = sizes[waits.indexOf(least)];
    glider.to(node, { viewBox: `0 0 ${inner} ${CURVE + 70}` }, 0);
    node.setAttribute("aria-label", `What a step waits for the network, against the size of a bucket: ${saySeconds(waits[0])} at ${sayBytes(sizes[0])}, ` +
      `least ${saySeconds(least)} at ${sayBytes(best)}, ${saySeconds(waits.at(-1))} with all gradients in one. Yours: ${saySeconds(now.exposed)} at ${sayBytes(options.bucket)}.`);
    const at = [2e6, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 4e8].filter((size) => size <= options.gradients && (inner > 560 || /^(1e|2e\+6)/.test(size.toExponential())));
    join(glider, layers.grid, at, { key: String, tag: "line", end: (d) => ({ x1: x(d), x2: x(d), y1: top, y2: foot, stroke: color("line") }) });
    join(glider, layers.marks, at, { key: String, tag: "text", text: sayBytes, end: (d) => ({ x: Math.min(x(d), inner - 26), y: foot + 17, "text-anchor": "middle" }) });
    join(glider, layers.floor, ticks(0, most, 3).map((value, k) => ({ value, k })), { key: (d) => d.k, tag: "line",
      end: (d) => ({ x1: LEFT, x2: inner - RIGHT, y1: y(d.value), y2: y(d.value), stroke: color(d.k ? "line" : "ink") }) });
    join(glider, layers.line, [0], { key: String, tag: "path",
      end: () => ({ d: `M${sizes.map((size, k) => `${x(size)} ${y(waits[k])}`).join("L")}`, fill: "none", stroke: color("wait"), "stroke-width": 3, "stroke-linejoin": "round" }) });
    join(glider, layers.dot, [0], { key: String, tag: "circle",
      end: () => ({ cx: x(options.bucket), cy: y(now.exposed), r: 7, fill: color("ink"), stroke: color("paper"), "stroke-width": 2 }) });
    const words = [{ id: "title", x: 0, y: 14, text: inner > 400 ? "Waiting for the network, by the size of a bucket" : "Waiting, by the size of a bucket", style: "font-weight: 700; font-size: 14px" },
      ...ticks(0, most, 3).map((value, k) => ({ id: k, x: LEFT - 8, y: y(value) + 4, text: value ? saySeconds(value) : "0", anchor: "end", style: "" })),
      { id: "axis", x: (LEFT + inner - RIGHT) / 2, y: foot + 35, text: "bytes in a bucket", anchor: "middle", style: "" }];
    join(glider, layers.words, words, { key: (d) => d.id, tag: "text", text: (d) => d.text,
      end: (d) => ({ x: d.x, y: d.y, "text-anchor": d.anchor ?? "start", style: d.style }) });
  };
  return { node, update };
}
module.exports = { TRIES, piece };
