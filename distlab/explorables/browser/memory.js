// The memory machine: devices as glasses with a red line at what they can hold, filled with weights,
// gradients, optimizer state and activations; below them what crosses the wires in a step.
const { button, choice, clamp, color, draw, inkOn, join, make, numbers, panel, sayBytes, sayCount, sayNumber, slider, toggle, tries } = require("./core.js");
const { findDevice, findShape, findWires } = require("./memory_model.js");

const PARTS = [["weights", "variables", "weights"], ["gradients", "backward", "gradients"],
  ["optimizer", "optimizer", "optimizer state"], ["activations", "forward", "activations"]];
const WIRES = [["data", "between replicas"], ["tensor", "inside a layer (tensor)"], ["pipeline", "between stages"]];
const DEEP = 260, TOP = 66, FOOT = 50;

const START = { parameters: 7e9, batch: 1, sequenceLog: 12, dataLog: 3, tensorLog: 0, pipelineLog: 0, micros: 1, zero: 0,
  precision: "mixed", recompute: false, scores: false, sequenceParallel: false, capacity: 80 };
const TRIES = [
  { ask: "7 billion parameters on 80 GB: can it fit?", set: START, act: { zero: 1 },
    done: (options) => options.parameters >= START.parameters && options.capacity <= 80 && findMachine(readOptions(options), 8).need <= options.capacity * 1e9,
    answer: "Yes. Weights, gradients and optimizer state take 16 bytes per parameter, 112 GB. ZeRO 1 shards the optimizer's 12 bytes over the 8 replicas, which leaves 38.5 GB, and room for the activations." },
  { ask: "Twice the sequence: what grows?", set: { ...START, zero: 1 }, act: { sequenceLog: 13 },
    answer: "Only the activations, and they double. Without FlashAttention (under More) the scores would grow fourfold." },
  { ask: "ZeRO 3 saves most: what does it cost?", set: { ...START, zero: 1 }, act: { zero: 3 },
    answer: "Half as much traffic again between the replicas: each layer's weights are gathered for the forward pass, and once more for the backward pass." }];

function piece(stage) {
  const pow = (name, label, most) => slider(stage, { name: `${name}Log`, label, min: 0, max: Math.log2(most), say: (n) => sayNumber(2 ** n) });
  const presets = make("div", { class: "ex-row ex-presets", role: "group", "aria-label": "Presets" },
    ...stage.data.presets.map(({ name, options }) => button(name, () => {
      for (const [key, value] of Object.entries(options)) stage.set(key, value);
    })));
  const controls = panel([
    slider(stage, { name: "parameters", label: "Parameters", min: 1e7, max: 1e12, log: true, say: sayCount }),
    pow("data", "Data parallel", 1024),
    choice(stage, { name: "zero", label: "ZeRO shares", options: [[0, "nothing"], [1, "1: optimizer"], [2, "2: + gradients"], [3, "3: + weights"]] }),
    pow("sequence", "Sequence, tokens", 32768)], [
    slider(stage, { name: "batch", label: "Micro-batch size", min: 1, max: 64 }),
    pow("tensor", "Tensor parallel", 16), pow("pipeline", "Pipeline stages", 32),
    slider(stage, { name: "micros", label: "Micro-batches a step", min: 1, max: 64 }),
    slider(stage, { name: "capacity", label: "Memory of a device", min: 8, max: 192, step: 8, say: (n) => `${n} GB` }),
    choice(stage, { name: "precision", label: "Precision", options: [["mixed", "mixed 16-bit"], ["float32", "float32"]] }),
    toggle(stage, { name: "recompute", label: "Recompute activations" }),
    toggle(stage, { name: "scores", label: "Store attention's scores (no FlashAttention)" }),
    toggle(stage, { name: "sequenceParallel", label: "Sequence parallelism" }),
    presets]);
  const shown = numbers([{ name: "need", words: "on the fullest device" }, { name: "fits", words: "of its memory" },
    { name: "devices", words: "devices" }, { name: "shape", words: "layers × width" }]);
  const key = make("ul", { class: "ex-key" }, ...PARTS.map(([, idea, words]) => make("li", { style: `--idea: ${color(idea)}` }, make("i"), words)));
  const layers = Object.fromEntries(["backs", "parts", "spill", "glass", "line", "words", "wires"].map((name) => [name, draw("g")]));
  const svg = draw("svg", { role: "img", height: 10 }, ...Object.values(layers));
  stage.root.append(tries(stage, TRIES), controls, shown.node, key, svg);
  return () => {
    const options = readOptions(stage.options), now = findMachine(options, stage.width < 600 ? 5 : 8);
    shown.write({ need: sayBytes(now.need), fits: `${sayNumber((100 * now.need) / now.capacity)} %`, devices: sayNumber(now.devices),
      shape: `${sayNumber(now.shape.layers, 2)} × ${sayNumber(Math.round(now.shape.width), 5)}` });
    shown.node.style.setProperty("--need", now.need > now.capacity ? color("over") : color("ink"));
    shown.node.querySelectorAll("dd").forEach((node, k) => { node.style.color = k < 2 ? "var(--need)" : ""; });
    svg.setAttribute("aria-label", describe(now));
    stage.say(describe(now));
    drawGlasses(stage, svg, layers, now);
    drawWires(stage, layers.wires, now);
  };
}

function readOptions(options) {
  const read = { ...options };
  for (const name of ["sequence", "data", "tensor", "pipeline"]) read[name] = 2 ** options[`${name}Log`];
  return read;
}

function findMachine(options, most) {
  const { data, tensor, pipeline } = options, devices = data * tensor * pipeline;
  const stages = [...Array(pipeline).keys()];
  const places = pick(pipeline > 1 ? stages : [...Array(Math.min(devices, most + 1)).keys()], most);
  const glasses = places.map((place, k) => {
    const held = findDevice(options, pipeline > 1 ? place : 0);
    const far = pipeline === 1 && k === places.length - 1 ? devices - 1 : place;
    return { place: k, name: pipeline > 1 ? `stage ${place}` : `device ${far}`, held,
      total: Object.values(held).reduce((a, b) => a + b), skipped: k > 0 && place - places[k - 1] > 1 };
  });
  const all = glasses.map((glass) => glass.total);
  const largest = findWires({ ...options, zero: 3, recompute: true });
  return { options, glasses, devices, need: Math.max(...all), capacity: options.capacity * 1e9, shape: findShape(options.parameters),
    wires: findWires(options), widest: Math.max(...Object.values(largest), 1), alike: pipeline > 1 ? devices / pipeline : 1 };
}

// The first ones and the last.
function pick(places, most) {
  return places.length <= most ? places : [...places.slice(0, most - 1), places.at(-1)];
}

function describe({ need, capacity, devices, wires, glasses }) {
  const parts = PARTS.map(([name, , words]) => `${words} ${sayBytes(glasses[0].held[name])}`).join(", ");
  const fits = need > capacity ? `does not fit into ${sayBytes(capacity)}` : `fits into ${sayBytes(capacity)}`;
  const sent = WIRES.map(([name, words]) => `${words} ${sayBytes(wires[name])}`).join(", ");
  return `${devices} devices; the fullest needs ${sayBytes(need)}, which ${fits}: ${parts}. Sent in a step: ${sent}.`;
}

// What is over the limit makes the glasses lower, up to three times what one holds: its parts stay in sight.
function drawGlasses(stage, svg, layers, { glasses, capacity, need, alike }) {
  const { glider, width } = stage, inner = width - 34, gap = clamp(inner / 40, 6, 26), red = 46;
  const wide = Math.min(150, (inner - red - gap * (glasses.length - 1)) / glasses.length);
  const x = (glass) => red + glass.place * (wide + gap), most = DEEP + TOP - 26;
  const top = Math.max(capacity, (Math.min(need, 3 * capacity) * DEEP) / most), tall = (bytes) => Math.min(most, (bytes / top) * DEEP);
  const floor = TOP + DEEP, limit = floor - tall(capacity), height = floor + FOOT + WIRES.length * 34 + 14;
  glider.to(svg, { height, viewBox: `0 0 ${inner} ${height}` }, 0);
  const boxes = [];
  for (const glass of glasses) {
    let level = 0;
    for (const [name, idea, words] of PARTS) {
      const from = tall(level), to = tall((level += glass.held[name]));
      boxes.push({ id: `${name} ${glass.place}`, x: x(glass), y: floor - to, height: Math.max(0, to - from), idea, words, bytes: glass.held[name] });
    }
  }
  join(glider, layers.backs, glasses, { key: (d) => d.place, tag: "rect",
    end: (d) => ({ x: x(d), y: limit, width: wide, height: floor - limit, fill: color("paper") }) });
  join(glider, layers.parts, boxes, { key: (d) => d.id, tag: "rect", start: () => ({ y: floor, height: 0 }),
    end: (d) => ({ x: d.x, y: d.y, width: wide, height: d.height, fill: color(d.idea) }) });
  join(glider, layers.spill, glasses, { key: (d) => d.place, tag: "rect",
    end: (d) => { const over = Math.max(0, limit - floor + tall(d.total)); return { x: x(d), y: limit - over, width: wide, height: over, fill: color("over"), "fill-opacity": 0.4 }; } });
  join(glider, layers.glass, glasses, { key: (d) => d.place, tag: "path",
    end: (d) => ({ d: `M${x(d)} ${limit - 12}L${x(d)} ${floor}L${x(d) + wide} ${floor}L${x(d) + wide} ${limit - 12}`, fill: "none",
      stroke: d.total > capacity ? color("over") : color("edge"), "stroke-width": d.total > capacity ? 4 : 2.5, "stroke-linejoin": "round" }) });
  const right = x(glasses.at(-1)) + wide + 8;
  join(glider, layers.line, [0], { key: String, tag: "line",
    end: () => ({ x1: red - 8, x2: right, y1: limit, y2: limit, stroke: color("over"), "stroke-width": 2.5, "stroke-dasharray": "7 4" }) });
  drawWords(glider, layers.words, boxes, glasses, { x, wide, floor, limit, capacity, alike });
}

function drawWords(glider, layer, boxes, glasses, { x, wide, floor, limit, capacity, alike }) {
  const inside = boxes.filter((d) => d.height > 16 && wide > 52).map((d) => ({ id: d.id, x: d.x + wide / 2, y: d.y + d.height / 2 + 4.5,
    text: sayBytes(d.bytes), style: `fill: ${inkOn(d.idea)}; font-weight: 600` }));
  const below = glasses.flatMap((d) => [
    { id: `name ${d.place}`, x: x(d) + wide / 2, y: floor + 18, text: `${d.skipped ? "\u2026 " : ""}${wide < 74 ? d.name.split(" ")[1] : d.name}` },
    { id: `alike ${d.place}`, x: x(d) + wide / 2, y: floor + 34, text: alike > 1 ? `\u00d7 ${sayNumber(alike)}` : "" },
    { id: `total ${d.place}`, x: x(d) + wide / 2, y: 14, text: sayBytes(d.total),
      style: `font-weight: 700; font-size: ${wide > 60 ? 14 : 9.5}px; fill: ${d.total > capacity ? color("over") : color("ink")}` }]);
  const mark = { id: "limit", x: 34, y: limit + 4, text: sayBytes(capacity), anchor: "end", style: `fill: ${color("over")}; font-weight: 700; font-size: 12px` };
  join(glider, layer, [...inside, ...below, mark], { key: (d) => d.id, tag: "text", text: (d) => d.text,
    end: (d) => ({ x: d.x, y: d.y, "text-anchor": d.anchor ?? "middle", style: d.style ?? "" }) });
}

function drawWires(stage, layer, { wires, widest }) {
  const { glider, width } = stage, inner = width - 34, top = TOP + DEEP + FOOT + 20, left = Math.min(230, inner * 0.42);
  const rows = WIRES.map(([name, words], k) => ({ id: name, words, bytes: wires[name], y: top + k * 34 }));
  if (!layer.bars) layer.append((layer.title = draw("text")), (layer.bars = draw("g")), (layer.words = draw("g")), (layer.sizes = draw("g")));
  glider.to(layer.title, { x: 0, y: top - 12, text: "Bytes that a device sends in a step", style: "font-weight: 700; font-size: 14px" }, 0);
  const wide = (d) => Math.max(1, ((inner - left - 80) * d.bytes) / widest);
  join(glider, layer.words, rows, { key: (d) => d.id, tag: "text", text: (d) => d.words, end: (d) => ({ x: 0, y: d.y + 16 }) });
  join(glider, layer.bars, rows, { key: (d) => d.id, tag: "rect", start: () => ({ width: 0 }),
    end: (d) => ({ x: left, y: d.y, width: wide(d), height: 22, rx: 5, fill: color("all-reduce") }) });
  join(glider, layer.sizes, rows, { key: (d) => d.id, tag: "text", text: (d) => (d.bytes ? sayBytes(d.bytes) : "nothing"),
    end: (d) => ({ x: left + wide(d) + 8, y: d.y + 16, style: "font-weight: 700" }) });
}
module.exports = { TRIES, piece };
