// The ring as a ring, and three other ways to add up, on one clock. A rank is a pie in its own
// color; bands in a slice show whose numbers it has taken in, and the complete sum is green with stripes,
// because one rank's own color is a green too. A replay of someone's own messages (`data.steps`) ends
// in the middle of the first wrong one, which is ringed.
const { choice, clamp, color, draw, join, logarithmic, make, panel, player, readColors, replicaIdea, sayBytes, saySeconds, sizeCanvas, slider, startWhenSeen, tries } = require("./core.js");
const { findCost, listHeld, listSteps, makeClock, timeStep } = require("./ring_model.js");

const NAMES = { naive: "Naive", ring: "Ring", "recursive-doubling": "Recursive doubling", tree: "Tree", hierarchical: "Hierarchical" };
// The colors are the ranks', so an algorithm is told by how its line is dashed.
const LINES = { naive: "wait", ring: "accent", "recursive-doubling": "data", tree: "ink", hierarchical: "accent" }, DASHES = { tree: [3, 5], hierarchical: [12, 5] };
const SMALLEST = 1e3, LARGEST = 1e9;

const START = { latency: 2e-5, bandwidth: 1e10, inside: 1, perNode: 4 };
const TRIES = [
  { ask: "When does the ring lose?", set: { ...START, ranks: 8, bytes: 1e8 }, act: { bytes: 1e6 }, done: (options) => isRingBeaten(readNetwork(options)),
    answer: "As soon as latency outweighs the bytes, so with small vectors. The ring pays it in each of its 2 (P \u2212 1) steps: 14 with 8 ranks. Recursive doubling needs only 3." },
  { ask: "Twice the ranks: does each send twice as much?", set: { ...START, ranks: 8, bytes: 1e8 }, act: { ranks: 16 },
    answer: "No. In a ring each rank sends 2 (P \u2212 1) / P of the vector: 1.75 times with 8 ranks, and 1.875 times with 16. It's the number of steps that doubles, from 14 to 30." },
  { ask: "Faster links inside the nodes: who gains?", set: { ...START, ranks: 16, bytes: 1e8 }, act: { inside: 10 }, more: true,
    answer: "Not the plain ring: in each of its steps some message still crosses between two nodes. Hierarchical gains most: six of its twelve steps are inside a node, and they carry full vectors, the six between nodes only quarters." }];

const isRingBeaten = (network) => Object.keys(NAMES).some((name) => findCost(name, network).seconds < findCost("ring", network).seconds * (1 - 1e-9));

// The questions of a piece with that data: the race's, those of a ring with one's own numbers, or of a replay none.
function listTries({ algorithms, values }) {
  if (!values) return algorithms.length > 1 ? TRIES : [];
  const half = values.length - 1;
  return [
    { ask: "After how many steps is a sum complete?", set: { time: 0 }, act: { time: 0.5 },
      answer: `${half}. The reduce-scatter is over, and each rank has the complete sum of one chunk.` },
    { ask: "And when does every rank have every sum?", set: { time: 0.5 }, act: { time: 1 },
      answer: `After ${2 * half} steps. The all-gather passes the complete chunks on, and adds nothing.` }];
}

function piece(stage) {
  const { algorithms, values } = stage.data, alone = algorithms.length === 1;
  const controls = alone ? "" : panel([
    slider(stage, { name: "ranks", label: "Ranks", min: 2, max: 16 }),
    slider(stage, { name: "bytes", label: "Size of the vector", min: SMALLEST, max: LARGEST, log: true, say: sayBytes }),
    slider(stage, { name: "latency", label: "Message latency", min: 1e-6, max: 1e-3, log: true, say: saySeconds }),
    slider(stage, { name: "bandwidth", label: "Link bandwidth", min: 1e8, max: 1e12, log: true, say: (n) => `${sayBytes(n)}/s` })], [
    choice(stage, { name: "perNode", label: "Ranks in a node", options: [2, 4, 8] }),
    choice(stage, { name: "inside", label: "Links inside a node", options: [[1, "the same"], [10, "10 ×"]] })]);
  const panels = algorithms.map((name) => makePanel(name, stage.data.steps)), done = make("ul", { class: "ex-key", style: "display: block; font-size: 14px" }), table = make("table", { class: "ex-held" });
  const grid = make("div", { style: `display: grid; gap: 12px 18px; align-items: ${alone ? "start" : "end"}` }, ...panels.map((panel) => panel.node));
  let runs = [];
  const last = () => Math.max(...runs.map((run) => run.total));
  const clock = player(stage, {
    name: "time", label: "Time of the all-reduce", say: (share) => (stage.data.steps ? `step ${Math.max(0, Math.ceil(share * last() - 1e-9) - 1)}` : saySeconds(share * last())),
    seconds: () => clamp((3 * last()) / Math.min(...runs.map((run) => run.total)), 5, 14),
    marks: () => [...new Set(runs.flatMap((run) => run.ends))].sort((a, b) => a - b).map((end) => end / last()).filter((share) => share < 1),
  });
  const chart = alone ? null : makeChart(stage);
  if (alone) { grid.append(make("div", {}, done, table)); panels[0].node.querySelector("canvas").dataset.alone = "yes"; }
  const key = make("ul", { class: "ex-key" }, ...[["paper", "bands: whose numbers a slice has added up"], ["all-reduce", "the complete sum"]].map(([idea, words]) =>
    make("li", { style: `--idea: ${idea === "paper" ? `linear-gradient(${[0, 1, 2, 3].map((k) => `${color(`replica-${k}`)} ${25 * k}% ${25 * k + 25}%`).join(", ")})` : `repeating-linear-gradient(135deg, ${color(idea)} 0 4px, ${color("paper")} 4px 5px)`}` }, make("i"), words)));
  const asked = listTries(stage.data);
  stage.root.append(asked.length ? tries(stage, asked) : "", controls, clock.node, grid, key, chart?.node ?? "");
  let made = "";
  if (stage.data.autoplay) startWhenSeen(stage, clock);
  return () => {
    const network = readNetwork(stage.options);
    const wanted = JSON.stringify([network, stage.width]);
    if (wanted !== made) { runs = algorithms.map((name) => prepare(name, network, stage.data)); made = wanted; chart?.update(network, runs); }
    const columns = alone ? (stage.width > 560 ? 2 : 1) : stage.width > Math.min(840, 0.9 * stage.tall) ? 5 : stage.width > 560 ? 3 : 2, wide = (stage.width - 34 - 18 * (columns - 1)) / columns;
    grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    const now = stage.options.time * last(), read = readColors(stage.root);
    panels.forEach((panel, k) => panel.update(runs[k], now, wide, read, runs));
    if (alone) {
      done.replaceChildren(...(stage.data.steps ? listReplay : listSums)(runs[0], now, values, stage.data.unit));
      table.replaceChildren(...listHeldRows(runs[0], now, stage.data));
    }
    stage.say(stage.data.wrong?.words ?? describe(runs, network));
  };
}

function readNetwork({ ranks, bytes, latency, bandwidth, perNode, inside }) {
  return { ranks, bytes, latency, bandwidth, inside, perNode: Math.min(perNode, ranks) };
}

function prepare(name, network, { steps: replayed, start, wrong }) {
  const steps = replayed ?? listSteps(name, network.ranks, network.perNode), ends = [];
  let total = 0;
  for (const step of steps) ends.push((total += replayed ? 1 : timeStep(step, network)));
  if (wrong && wrong.step < steps.length) total = wrong.step + 0.45;
  return { name, steps, ends, total, held: listHeld(steps, network.ranks, start), cost: findCost(name, network), network, replayed, wrong };
}

function describe(runs, { ranks, bytes }) {
  const order = [...runs].sort((a, b) => a.total - b.total);
  return `${ranks} ranks, ${sayBytes(bytes)}: ${order.map((run) => `${NAMES[run.name]} ${saySeconds(run.total)}`).join(", ")}.`;
}

// Where a replay stops: what is wrong, and the messages of the step under way.
function listReplay(run, now) {
  const stopped = now >= run.total * (1 - 1e-9), place = run.ends.findIndex((end) => end > now * (1 + 1e-9));
  const words = stopped ? [make("li", { style: `font-weight: 700; color: ${run.wrong ? color("over") : "inherit"}`, text: run.wrong ? `${run.wrong.words[0].toUpperCase()}${run.wrong.words.slice(1)}.` : "Every message is as it should be." })] : [];
  return [...words, ...(run.steps[place]?.lines ?? []).map((text) => make("li", { text }))];
}

// What the step under way does, message by message, with the first number of each chunk.
function listSums(run, now, values, unit) {
  const place = run.ends.findIndex((end) => end > now * (1 + 1e-9));
  if (place < 0) return [make("li", { text: "Every rank holds every sum: all pies are alike." })];
  const sum = (mask, slice) => addHeld(values, mask, slice), say = sayShort;
  const lines = [`Each chunk's first number, ${unit}rounded:`, ...run.steps[place].messages.map(({ source, destination, from, adds }) => {
    const head = `rank ${source} \u2192 rank ${destination}, chunk ${from}: `, sent = sum(run.held[place][source][from], from);
    if (values[0][from] === null) return `${head}empty`;
    const own = sum(run.held[place][destination][from], from);
    return head + (adds ? `${say(own)} + ${say(sent)} = ${say(own + sent)}` : `${say(sent)} copied`);
  })];
  return lines.map((text) => make("li", { text }));
}

const addHeld = (values, mask, slice) => values.reduce((total, row, rank) => total + (Math.floor(mask / 2 ** rank) % 2 ? row[slice] : 0), 0);
const sayShort = (number) => number.toFixed(2).replace("-", "\u2212");

// What each rank holds, as a table of each chunk's first number: striped where the sum is complete, marked where a replay went wrong.
function listHeldRows(run, now, { values, firsts, wrong }) {
  const { ranks } = run.network, done = run.ends.filter((end) => end <= now * (1 + 1e-9)).length, masks = run.held[done], all = [...Array(ranks).keys()];
  if (ranks > 8) return [];
  const number = (rank, k) => (firsts ? firsts[Math.min(done, firsts.length - 1)][rank][k] : values[0][k] === null ? null : addHeld(values, masks[rank][k], k));
  const cell = (rank, k) => make("td", { class: masks[rank][k] === 2 ** ranks - 1 ? "ex-full" : null, text: number(rank, k) === null ? "empty" : sayShort(number(rank, k)) });
  const head = make("tr", {}, make("td", { text: "holds" }), ...all.map((k) => make("th", { scope: "col", text: `chunk ${k}` })));
  const isWrong = (rank) => wrong && wrong.rank === rank && now >= run.total * (1 - 1e-9);
  return [head, ...all.map((rank) => make("tr", { style: isWrong(rank) ? `outline: 3px solid ${color("over")}` : null },
    make("th", { scope: "row", style: `border-left: 6px solid ${color(replicaIdea(rank))}`, text: `rank ${rank}` }), ...all.map((k) => cell(rank, k))))];
}

// ---- one algorithm: its name, its time, its ranks on a circle

function makePanel(name, replayed) {
  const [on, off] = DASHES[name] ?? [1, 0], ink = color(LINES[name]);
  const swatch = make("i", { style: `display: inline-block; width: 26px; height: 5px; margin: 0 7px 4px 0; background: repeating-linear-gradient(90deg, ${ink} 0 ${on}px, transparent 0 ${on + off}px)` });
  const time = make("strong", { style: "float: right" });
  const canvas = make("canvas", { role: "img" });
  const title = make("div", {}, swatch, make("strong", { text: replayed ? "Your ring" : NAMES[name] }), time);
  const node = make("div", {}, title, canvas);
  const update = (run, now, wide, read, runs) => {
    const done = run.ends.filter((end) => end <= now * (1 + 1e-9)).length, over = done === run.steps.length;
    const first = run.total <= Math.min(...runs.map((each) => each.total)) * (1 + 1e-9);
    title.style.fontSize = wide < 150 ? "12px" : "15px";
    time.textContent = over && first && runs.length > 1 ? "first" : over ? "\u2713" : "";
    const stopped = run.wrong && now >= run.total * (1 - 1e-9);
    const words = run.replayed ? (stopped ? ["Here", `rank ${run.wrong.rank}`] : over ? ["\u2713"] : [`step ${done}`])
      : over ? [saySeconds(run.total), `${run.steps.length} steps`, `${sayBytes(run.cost.bytes)} sent`, "by the busiest"]
      : [saySeconds(now), `step ${done + 1} of ${run.steps.length}`, ...run.steps[done].phase.split(/ (?=in )/)];
    canvas.setAttribute("aria-label", `${NAMES[name]} over ${run.network.ranks} ranks: ${words.join(", ")}.${stopped ? ` ${run.wrong.words}.` : ""}`);
    const start = done ? run.ends[done - 1] : 0;
    const share = over ? 0 : (now - start) / (run.ends[done] - start);
    paint(canvas, wide, run, done, share, words, read, stopped ? run.wrong.rank : -1);
  };
  return { node, update };
}

function paint(canvas, wide, run, done, share, words, read, wrong) {
  const { ranks, perNode } = run.network, side = Math.min(wide, canvas.dataset.alone ? 440 : 280);
  const reach = side / 2;
  const size = clamp((Math.PI * reach * (side > 260 ? 0.6 : 0.5)) / ranks, Math.min(9, reach * 0.14), reach * 0.25), orbit = reach - size - (size > 13 ? 17 : 3);
  const tight = orbit - size < 62, thin = wide < 150, context = sizeCanvas(canvas, wide, side + (tight ? (thin ? 46 : 32) : 0));  // then words stand below the ring
  const place = (rank) => {
    const angle = (2 * Math.PI * rank) / ranks - Math.PI / 2;
    return [wide / 2 + orbit * Math.cos(angle), reach + orbit * Math.sin(angle)];
  };
  const held = run.held[done], step = run.steps[done];
  if (run.name === "hierarchical") paintNodes(context, ranks, perNode, place, size, read);
  if (step) for (const message of step.messages) paintLink(context, place(message.source), place(message.destination), message.share, size, read);
  for (let rank = 0; rank < ranks; rank++) paintPie(context, place(rank), size, held[rank], [0, ranks], ranks, read, 1);
  if (step) {
    for (const { source, destination, from, to } of step.messages) {
      const [a, b] = place(source), [c, d] = place(destination);
      paintPie(context, [a + (c - a) * share, b + (d - b) * share], size * 0.86, held[source], [from, to], ranks, read, 0.97);
    }
  }
  if (wrong >= 0) {
    const message = step?.messages.find(({ source }) => source === wrong), [a, b] = place(wrong), [c, d] = place(message?.destination ?? wrong);
    context.strokeStyle = read("over");
    context.lineWidth = 5;
    context.beginPath();
    context.arc(a + (c - a) * share, b + (d - b) * share, size + 4, 0, 2 * Math.PI);
    context.stroke();
  }
  context.textAlign = "center";
  context.fillStyle = read("ink");
  context.strokeStyle = read("panel");
  context.lineWidth = 5;
  context.lineJoin = "round";
  const lines = tight && !thin ? [words[0], words[1], words.slice(2).join(" ")] : words;
  lines.filter(Boolean).forEach((line, k) => {
    context.font = k ? `${side > 260 ? 13 : 12}px system-ui, sans-serif` : `700 ${side > 260 ? 21 : 15}px system-ui, sans-serif`;
    const at = [line, wide / 2, tight ? (k ? side + 14 * k - 2 : reach + 5) : reach + (k - (words.length - 1) / 2) * (side > 260 ? 18 : 14) + 3];
    context.strokeText(...at);
    context.fillText(...at);
  });
  context.font = "600 12px system-ui, sans-serif";
  for (let rank = 0; rank < ranks && size > 13; rank++) {
    const [x, y] = place(rank), out = (size + 9) / orbit;
    context.fillText(rank, x + (x - wide / 2) * out, y + (y - reach) * out + 4);
  }
}

function paintNodes(context, ranks, perNode, place, size, read) {
  context.strokeStyle = read("wait");
  context.lineWidth = 2;
  context.setLineDash([5, 4]);
  for (let first = 0; first < ranks; first += perNode) {
    context.beginPath();
    for (let rank = first; rank < Math.min(first + perNode, ranks); rank++) context.lineTo(...place(rank));
    context.stroke();
  }
  context.setLineDash([]);
}

function paintLink(context, [a, b], [c, d], share, size, read) {
  context.strokeStyle = read("all-reduce");
  context.globalAlpha = 0.5;
  context.lineWidth = Math.max(2, size * 0.9 * share);
  context.beginPath();
  context.moveTo(a, b);
  context.lineTo(c, d);
  context.stroke();
  context.globalAlpha = 1;
}

// Slices `from` to `to` of a pie; in each a band for every rank whose numbers it holds, own at the rim.
function paintPie(context, [x, y], radius, held, [from, to], ranks, read, alpha) {
  context.globalAlpha = alpha;
  context.fillStyle = read("paper");
  wedge(context, x, y, 0, radius, from, to, ranks);
  context.fill();
  for (let slice = from; slice < to;) {
    let end = slice + 1;
    while (end < to && held[end] === held[slice]) end += 1;
    const owners = [];
    for (let rank = 0; rank < ranks; rank++) if (Math.floor(held[slice] / 2 ** rank) % 2) owners.push(rank);
    const bands = owners.length === ranks ? ["all-reduce"] : owners.map((rank) => replicaIdea(rank));
    bands.forEach((band, k) => {
      context.fillStyle = read(band);
      wedge(context, x, y, radius * Math.sqrt(k / bands.length), radius * Math.sqrt((k + 1) / bands.length), slice, end, ranks);
      context.fill();
    });
    if (owners.length === ranks) stripe(context, [x, y], radius, () => wedge(context, x, y, 0, radius, slice, end, ranks), read);
    slice = end;
  }
  context.globalAlpha = 1;
  context.strokeStyle = read("ink");
  context.lineWidth = 1.2;
  wedge(context, x, y, 0, radius, from, to, ranks);
  context.stroke();
}

// Diagonal stripes over the area that `outline` encloses.
function stripe(context, [x, y], radius, outline, read) {
  context.save();
  outline();
  context.clip();
  context.strokeStyle = read("paper");
  context.lineWidth = Math.max(1, radius / 14);
  context.beginPath();
  for (let at = -2 * radius; at < 2 * radius; at += Math.max(4, radius / 4)) {
    context.moveTo(x + at - radius, y + radius);
    context.lineTo(x + at + radius, y - radius);
  }
  context.stroke();
  context.restore();
}

function wedge(context, x, y, inner, outer, from, to, ranks) {
  const angle = (slice) => (2 * Math.PI * slice) / ranks - Math.PI / 2;
  const whole = to - from === ranks;
  context.beginPath();
  if (!whole && inner === 0) context.moveTo(x, y);
  context.arc(x, y, outer, angle(from), angle(to));
  if (inner > 0) context.arc(x, y, inner, angle(to), angle(from), true);
  if (!whole || inner > 0) context.closePath();
}

// ---- where they cross: seconds against bytes, and who is first at which size

function makeChart(stage) {
  const layers = Object.fromEntries(["bands", "grid", "lines", "marks", "words", "labels", "now"].map((name) => [name, draw("g")]));
  const svg = draw("svg", { role: "img", height: 10 }, ...Object.values(layers));
  const node = make("div", { style: "margin-top: 14px" }, make("strong", { style: "font-size: 15px", text: "Which is fastest for which size?" }), svg);
  const update = (network, runs) => drawChart(stage, svg, layers, network, runs);
  return { node, update };
}

function drawChart(stage, svg, layers, network, runs) {
  const { glider, width } = stage, inner = width - 34, tall = clamp(stage.tall - 330, 110, 190), top = 34, left = 66, right = inner < 600 ? 8 : 130;
  const sizes = [...Array(61).keys()].map((k) => SMALLEST * (LARGEST / SMALLEST) ** (k / 60));
  const curves = runs.map((run) => ({ name: run.name, seconds: sizes.map(makeClock(run.steps, network)) }));
  const all = curves.flatMap((curve) => curve.seconds);
  const x = logarithmic([SMALLEST, LARGEST], [left, inner - right]), y = logarithmic([Math.min(...all), Math.max(...all)], [top + tall, top]);
  glider.to(svg, { height: top + tall + 26, viewBox: `0 0 ${inner} ${top + tall + 26}` }, 0);
  const bands = findWinners(sizes, curves).map((band) => ({ ...band, from: x(band.from), to: x(band.to) }));
  join(glider, layers.bands, bands, { key: (d) => d.name, tag: "rect",
    end: (d) => ({ x: d.from, y: 4, width: Math.max(0, d.to - d.from - 2), height: 20, rx: 5, fill: color(LINES[d.name]) }) });
  const nameBand = ({ name, from, to }) => [`${NAMES[name]} is fastest`, NAMES[name], NAMES[name].split(" ")[0]].find((text) => 8 * text.length + 12 < to - from) ?? "";
  join(glider, layers.marks, bands, { key: (d) => d.name, tag: "text", text: nameBand,
    end: (d) => ({ x: (d.from + d.to) / 2, y: 18, "text-anchor": "middle", style: `font-weight: 700; fill: var(--ex-on-${LINES[d.name]})` }) });
  drawScales(glider, layers, x, y, { inner, left, right, top, tall, all });
  join(glider, layers.lines, curves, { key: (d) => d.name, tag: "path",
    end: (d) => ({ d: `M${d.seconds.map((s, k) => `${x(sizes[k]).toFixed(1)} ${y(s).toFixed(1)}`).join("L")}`, fill: "none",
      stroke: color(LINES[d.name]), "stroke-width": 3.2, "stroke-linejoin": "round", "stroke-dasharray": DASHES[d.name]?.join(" ") }) });
  const ends = [...curves].map((d) => ({ name: d.name, y: y(d.seconds.at(-1)) })).sort((a, b) => a.y - b.y);
  ends.forEach((d, k) => { if (k) d.y = Math.max(d.y, ends[k - 1].y + 17); });
  join(glider, layers.labels, right > 20 ? ends : [], { key: (d) => d.name, tag: "text", text: (d) => NAMES[d.name],
    end: (d) => ({ x: inner - right + 8, y: d.y + 4 }) });
  join(glider, layers.now, [0], { key: String, tag: "line",
    end: () => ({ x1: x(network.bytes), x2: x(network.bytes), y1: 26, y2: top + tall, stroke: color("ink"), "stroke-width": 2, "stroke-dasharray": "4 3" }) });
  svg.setAttribute("aria-label", `Seconds of the all-reduce against the bytes of a vector, both logarithmic. ${describe(runs, network)} Fastest, from short to long vectors: ${bands.map((d) => NAMES[d.name]).join(", ")}.`);
}

// Which algorithm is fastest from which size to which.
function findWinners(sizes, curves) {
  const bands = [];
  sizes.forEach((size, k) => {
    const { name } = curves.reduce((best, each) => (each.seconds[k] < best.seconds[k] * (1 - 1e-9) ? each : best));
    if (bands.at(-1)?.name === name) bands.at(-1).to = size;
    else {
      const from = bands.length ? Math.sqrt(size * sizes[k - 1]) : size;
      if (bands.length) bands.at(-1).to = from;
      bands.push({ name, from, to: size });
    }
  });
  return bands;
}

function drawScales(glider, layers, x, y, { inner, left, right, top, tall, all }) {
  const low = Math.ceil(Math.log10(Math.min(...all)) - 1e-9), high = Math.floor(Math.log10(Math.max(...all)) + 1e-9);
  const across = [3, 4, 5, 6, 7, 8, 9].filter((n) => inner > 600 || n % 2).map((n) => ({ id: `x${n}`, at: x(10 ** n), words: sayBytes(10 ** n) }));
  const up = [];
  for (let n = low; n <= high; n++) if (high - low < 5 || (n - low) % 2 === 0) up.push({ id: `y${n}`, at: y(10 ** n), words: saySeconds(10 ** n) });
  join(glider, layers.grid, [...across, ...up], { key: (d) => d.id, tag: "line",
    end: (d) => (d.id[0] === "x" ? { x1: d.at, x2: d.at, y1: top, y2: top + tall, stroke: color("line") }
      : { x1: left, x2: inner - right, y1: d.at, y2: d.at, stroke: color("line") }) });
  join(glider, layers.words, [...across, ...up], { key: (d) => d.id, tag: "text", text: (d) => d.words,
    end: (d) => (d.id[0] === "x" ? { x: Math.min(d.at, inner - 26), y: top + tall + 17, "text-anchor": "middle" } : { x: left - 8, y: d.at + 4, "text-anchor": "end" }) });
}
module.exports = { listTries, piece };
