// The arrow that is four times too long: a valley of the loss, the step of one device, and the steps
// of the replicas laid end to end, for each way to scale the loss.
const { choice, clamp, color, draw, join, linear, make, newId, numbers, player, replica, replicaIdea, sayNumber, slider, tries } = require("./core.js");
const { DIVISORS, compare, findLoss, findUpdate, takeSteps } = require("./arrow_model.js");

const STEPS = 30, RINGS = [0.004, 0.02, 0.07, 0.18, 0.4, 0.8, 1.5, 2.8, 5];

const TRIES = [
  { ask: "4 replicas, Keras's default loss: how long is the step?", set: { way: "Keras's loss object", replicas: 1, examples: 16, written: 16, time: 0 }, act: { replicas: 4 },
    answer: "As long as on one device: Keras divides each replica's loss by its own examples and by the number of replicas. That's right as long as all replicas hold equally many." },
  { ask: "A mean on each of 4 replicas: what happens to the step?", set: { way: "tf.reduce_mean", replicas: 1, examples: 16, written: 16, time: 0 }, act: { replicas: 4 },
    answer: "It's 4 times too long. Each replica divides by its own examples, and the all-reduce sums the four means." },
  { ask: "The last batch is smaller: does it matter?", set: { way: "compute_average_loss(written size)", replicas: 4, examples: 16, written: 16, time: 0 }, act: { examples: 10 }, done: ({ examples, written }) => examples < written,
    answer: "Yes. The code still divides by 16, so the step of a smaller batch is too short. Divide by the real count." }];

function piece(stage) {
  const { data } = stage, most = data.targets.length;
  const controls = make("div", { class: "ex-controls" },
    choice(stage, { name: "way", label: "Each replica's loss", options: Object.keys(DIVISORS), list: true }),
    slider(stage, { name: "replicas", label: "Replicas", min: 1, max: 8 }),
    slider(stage, { name: "examples", label: "Examples in the batch", min: 2, max: most }),
    slider(stage, { name: "written", label: "Batch size in the code", min: 2, max: most }));
  const clock = player(stage, { name: "time", label: "Steps", seconds: () => 6,
    marks: () => [...Array(STEPS + 1).keys()].map((k) => k / STEPS), say: (share) => `step ${Math.round(share * STEPS)}` });
  const shown = numbers([{ name: "ratio", words: "times one device's step", idea: "over" }, { name: "turned", words: "turned" },
    { name: "loss", words: "loss, replicas", idea: "over" }, { name: "alone", words: "loss, one device", idea: "ink" }]);
  const layers = Object.fromEntries(["rings", "paths", "dots", "sum", "alone", "parts", "words"].map((name) => [name, draw("g")]));
  const clip = newId("clip"), edge = draw("rect", { x: 0, y: 0, rx: 10 }), ground = draw("rect", { x: 0, y: 0, rx: 10, fill: color("paper"), stroke: color("line") });
  const map = draw("g", { "clip-path": `url(#${clip})` }, layers.rings, layers.paths, layers.dots, layers.sum, layers.alone, layers.parts);
  const svg = draw("svg", { role: "img", height: 10 }, draw("defs", {}, draw("clipPath", { id: clip }, edge)), ground, map, layers.words);
  const key = make("ul", { class: "ex-key" }, ...[["ink", "the step of one device"], ["over", "what the replicas apply"],
    ["replica-0", "each replica's own part, laid end to end"]].map(([idea, words]) => make("li", { style: `--idea: ${color(idea)}` }, make("i"), words)));
  stage.root.append(tries(stage, TRIES), controls, clock.node, shown.node, svg, key);
  return () => {
    const batch = stage.options, done = Math.round(batch.time * STEPS);
    const paths = [takeSteps(data, batch, STEPS), takeSteps(data, batch, STEPS, true)];
    const now = findUpdate(data, paths[0][done], batch), first = findUpdate(data, data.start, batch);
    const { ratio, degrees } = compare(first.update, first.wanted);
    const losses = paths.map((path) => findLoss(data, path[done], batch.examples));
    const words = { ratio: `\u00d7 ${sayNumber(ratio)}`, turned: `${sayNumber(Math.abs(degrees) < 0.005 ? 0 : Math.abs(degrees))}\u00b0`,
      loss: sayLoss(losses[0]), alone: sayLoss(losses[1]) };
    shown.write(words);
    const told = `${batch.way} on ${batch.replicas} replicas, ${batch.examples} examples: the step is ${words.ratio} that of one device, turned ${words.turned}. After ${done} steps the loss is ${words.loss}, on one device ${words.alone}.`;
    svg.setAttribute("aria-label", told);
    stage.say(told);
    drawMap(stage, { svg, edge, ground, layers }, { paths, now, done, batch, ratio });
  };
}

const sayLoss = (loss) => (loss > 1e6 ? "diverged" : sayNumber(loss));

function drawMap(stage, { svg, edge, ground, layers }, { paths, now, done, batch, ratio }) {
  const { data, glider } = stage, inner = stage.width - 34, tall = clamp(inner * 0.5, 280, 470);
  const scale = Math.min(inner / (2 * data.view[0]), tall / (2 * data.view[1]));
  const x = linear([-1, 1], [inner / 2 - scale, inner / 2 + scale]), y = linear([-1, 1], [tall / 2 + scale, tall / 2 - scale]);
  const at = ([a, b]) => [clamp(x(a - data.best[0]), -9e3, 9e3), clamp(y(b - data.best[1]), -9e3, 9e3)];
  glider.to(svg, { height: tall + 4, viewBox: `0 0 ${inner} ${tall + 4}` }, 0);
  for (const node of [edge, ground]) glider.to(node, { width: inner, height: tall }, 0);
  join(glider, layers.rings, RINGS.map((level, k) => ({ level, k })).reverse(), { key: (d) => d.k, tag: "ellipse",
    end: (d) => ({ cx: x(0), cy: y(0), rx: scale * Math.sqrt((2 * d.level) / data.curves[0]), ry: scale * Math.sqrt((2 * d.level) / data.curves[1]),
      transform: `rotate(${-data.turn} ${x(0)} ${y(0)})`, fill: color("data"), "fill-opacity": 0.1, stroke: color("data"), "stroke-opacity": 0.55 }) });
  const lines = paths.map((path, k) => ({ k, points: path.slice(0, done + 1).map(at) }));
  join(glider, layers.paths, lines, { key: (d) => d.k, tag: "polyline", seconds: 0,
    end: (d) => ({ points: d.points.map((p) => p.map((n) => n.toFixed(1)).join(",")).join(" "), fill: "none",
      stroke: color(d.k ? "ink" : "over"), "stroke-width": 2.5, "stroke-linejoin": "round", "stroke-opacity": 0.8 }) });
  const dots = lines.flatMap((line) => line.points.map((point, n) => ({ id: `${line.k} ${n}`, point, k: line.k })));
  join(glider, layers.dots, dots, { key: (d) => d.id, tag: "circle", seconds: 0,
    end: (d) => ({ cx: d.point[0], cy: d.point[1], r: 3.5, fill: color(d.k ? "ink" : "over") }) });
  const here = paths[0][done], step = ([a, b], [c, d]) => [a - data.rate * c, b - data.rate * d];
  let from = here;
  const chain = now.parts.map((part, k) => { const arrow = { id: `part ${k}`, from, to: step(from, part), idea: replicaIdea(k), wide: 5 }; from = arrow.to; return arrow; });
  drawArrows(glider, layers.sum, [{ id: "sum", from: here, to: from, idea: "over", wide: 15, opacity: 0.5 }], at);
  drawArrows(glider, layers.alone, [{ id: "alone", from: paths[1][done], to: step(paths[1][done], findUpdate(data, paths[1][done], batch).wanted), idea: "ink", wide: 10 }], at);
  drawArrows(glider, layers.parts, chain, at);
  const [tipX, tipY] = at(from);
  join(glider, layers.words, [0], { key: String, tag: "text", text: () => `\u00d7 ${sayNumber(ratio)}`,
    end: () => ({ x: clamp(tipX + 22, 10, inner - 70), y: clamp(tipY - 10, 24, tall - 10),
      style: `font-size: 22px; font-weight: 800; fill: ${color("ink")}; stroke: ${color("paper")}; stroke-width: 5px; paint-order: stroke` }) });
}

function drawArrows(glider, layer, arrows, at) {
  join(glider, layer, arrows, { key: (d) => d.id, tag: "path",
    end: (d) => ({ d: outline(at(d.from), at(d.to), d.wide), fill: color(d.idea), "fill-opacity": d.opacity ?? 1, stroke: color("ink"), "stroke-width": 0.8, "stroke-linejoin": "round" }) });
}

// A filled arrow from one point to another, of at most `most` pixels; a short one is as slender.
function outline([a, b], [c, d], most) {
  const length = Math.hypot(c - a, d - b) || 1e-6, wide = Math.min(most, length / 4.5), head = 3.2 * wide;
  const [u, v] = [(c - a) / length, (d - b) / length], neck = [c - u * head, d - v * head];
  const side = ([p, q], w) => `${(p - v * w).toFixed(1)} ${(q + u * w).toFixed(1)}`;
  return `M${side([a, b], wide / 2)}L${side(neck, wide / 2)}L${side(neck, wide * 1.35)}L${c.toFixed(1)} ${d.toFixed(1)}L${side(neck, -wide * 1.35)}L${side(neck, -wide / 2)}L${side([a, b], -wide / 2)}Z`;
}
module.exports = { TRIES, piece };
