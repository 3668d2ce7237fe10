// The conveyor of several workers: examples fall from their files onto the worker that reads them,
// and from there into the row of what was trained on. A second copy falls past it, a lost one to the
// bottom.
const { choice, clamp, color, draw, inkOn, join, make, numbers, player, replica, sayNumber, sayPlural, slider, tries } = require("./core.js");
const { countCover, dealExamples, fillFiles } = require("./sharding_model.js");

const HEAD = 20, POLICIES = [["FILE", "FILE"], ["DATA", "DATA"], ["OFF", "OFF"], ["LATE", "shuffle, then shard"]];

const TRIES = [
  { ask: "More workers than files: what then?", set: { policy: "FILE", workers: 2, files: 2, batch: 4, time: 1 }, act: { workers: 3 },
    done: ({ policy, workers, files }) => policy === "FILE" && workers > files,
    answer: "TensorFlow refuses. FILE gives whole files away, and nothing would be left for the last worker: write at least as many files as workers." },
  { ask: "Shard the examples instead of the files: what does it cost?", set: { policy: "FILE", workers: 4, files: 4, batch: 4, time: 1 }, act: { policy: "DATA" },
    answer: "Reading: each worker reads and parses all examples, and throws away those that aren't its own." },
  { ask: "Shuffle first, then shard: what can go wrong?", set: { policy: "DATA", workers: 4, files: 4, batch: 4, time: 1 }, act: { policy: "LATE" },
    answer: "Each worker shuffles in its own order, so their shares overlap: some examples are trained on twice, and others never." }];

function piece(stage) {
  const controls = make("div", { class: "ex-controls" },
    slider(stage, { name: "workers", label: "Workers", min: 1, max: 4 }),
    slider(stage, { name: "files", label: "Files", min: 1, max: 8 }),
    slider(stage, { name: "batch", label: "Batch of a worker", min: 1, max: 8 }),
    choice(stage, { name: "policy", label: "Who gets what", options: POLICIES, list: true }));
  const shown = numbers([{ name: "once", words: "examples trained on once" }, { name: "doubled", words: "more than once", idea: "data" },
    { name: "lost", words: "never", idea: "over" }, { name: "read", words: "read and parsed, by all workers", idea: "wait" }]);
  const fault = make("p", { role: "alert" });
  const layers = Object.fromEntries(["files", "slots", "names", "thrown", "stay", "go", "ids"].map((name) => [name, draw("g")]));
  layers.ids.setAttribute("pointer-events", "none");
  const svg = draw("svg", { role: "img", height: 10 }, ...Object.values(layers));
  let run = { steps: 1 };
  const clock = player(stage, { name: "time", label: "Time of the epoch", seconds: () => clamp(run.steps * 0.8, 3, 14),
    marks: () => [...Array(run.steps).keys()].map((k) => (k + 1) / run.steps), say: (share) => `step ${Math.floor(share * run.steps + 1e-9)} of ${run.steps}` });
  stage.root.append(tries(stage, TRIES), controls, clock.node, shown.node, fault, svg);
  return () => {
    run = runEpoch(stage);
    fault.textContent = run.fault;
    svg.style.display = shown.node.style.display = run.fault ? "none" : "";
    if (run.fault) { stage.say(run.fault); return; }
    shown.write({ once: run.cover.once, doubled: run.cover.doubled, lost: run.cover.lost.length, read: sayNumber(run.read) });
    const words = `${sayPlural(run.files.length, "file")}, ${sayPlural(run.views.length, "worker")}, ${new Map(POLICIES).get(stage.options.policy)}: of ${stage.data.examples} examples ${run.cover.once} are trained on once, ` +
      `${run.cover.doubled} more than once, ${run.cover.lost.length} never; ${run.read} are read.`;
    svg.setAttribute("aria-label", words);
    stage.say(words);
    drawEpoch(stage, svg, layers, run);
  };
}

function runEpoch({ data, options }) {
  const { workers, policy } = options, files = fillFiles(data.examples, options.files);
  if (policy === "FILE" && files.length < workers) {
    return { steps: 1, fault: `TensorFlow refuses FILE: ${workers} workers need at least as many files. Add files, or choose DATA.` };
  }
  const views = dealExamples({ ...options, files }, data.orders);
  const read = views.flat().reduce((sum, { kept, thrown }) => sum + kept.length + thrown.length, 0);
  return { fault: "", files, views, read, cover: countCover(views, data.examples), steps: Math.max(...views.map((steps) => steps.length)) };
}

// Every copy that a worker has read so far: {worker, example, kept, moving, again}.
function findCopies({ views, steps }, time) {
  const step = Math.floor(time * steps + 1e-9), copies = [], seen = new Map();
  for (let k = 0; k <= Math.min(step, steps - 1); k++) {
    views.forEach((view, worker) => {
      for (const example of view[k]?.thrown ?? []) copies.push({ worker, example, kept: false });
      for (const example of view[k]?.kept ?? []) {
        const moving = k === step, again = moving ? 0 : seen.get(example) ?? 0;
        if (!moving) seen.set(example, again + 1);
        copies.push({ worker, example, kept: true, moving, again });
      }
    });
  }
  return { copies, over: step >= steps };
}

function drawEpoch(stage, svg, layers, run) {
  const { glider, width, options, data } = stage, inner = width - 34, workers = run.views.length, space = inner > 700 ? 8 : 3;
  const cell = Math.min(34, (inner - 2 - space * (run.files.length - 1)) / data.examples), side = cell - 2, pitch = Math.max(side, 14) + HEAD;
  const fileOf = run.files.flatMap((file, k) => file.map(() => k));
  const x = (example) => 1 + example * cell + fileOf[example] * space, y = (line) => HEAD + line * pitch;
  const { doubled, lost: missed } = run.cover, trainedY = y(workers + 1), againY = (depth) => y(workers + 2) + (depth - 1) * (side + 2);
  const neverY = doubled ? againY(workers) + HEAD + 4 : y(workers + 2);  // a row that this epoch fills
  const height = (missed.length ? neverY : doubled ? againY(workers - 1) : trainedY) + side + 6, { copies, over } = findCopies(run, options.time);
  glider.to(svg, { height, viewBox: `0 0 ${inner} ${height}` }, 0);
  const read = new Set(copies.map((copy) => copy.example)), lost = new Set(over ? missed : []);
  drawRows(glider, layers, run, { x, y, side, trainedY, againY, neverY, workers, inner });
  join(glider, layers.thrown, copies.filter((d) => !d.kept), { key: (d) => `${d.worker} ${d.example}`, tag: "rect", start: (d) => ({ y: y(0) }),
    end: (d) => ({ x: x(d.example) + side * 0.3, y: y(d.worker + 1) + side * 0.3, width: side * 0.4, height: side * 0.4, fill: color("wait"), opacity: 0.75 }) });
  const kept = copies.filter((d) => d.kept);
  join(glider, layers.stay, kept, { key: (d) => `${d.worker} ${d.example}`, tag: "rect",
    end: (d) => ({ x: x(d.example), y: y(d.worker + 1), width: side, height: side, rx: side / 6, fill: replica(d.worker), opacity: d.moving ? 0 : 0.45 }) });
  const fallen = (d) => (d.moving ? y(d.worker + 1) : d.again ? againY(d.again) : trainedY);
  const go = [...kept.map((d) => ({ id: `${d.worker} ${d.example}`, example: d.example, y: fallen(d), fill: replica(d.worker), edge: d.again ? color("over") : "none" })),
    ...[...lost].map((example) => ({ id: `lost ${example}`, example, y: neverY, fill: color("over"), edge: "none" })),
    ...[...Array(data.examples).keys()].filter((example) => !lost.has(example)).map((example) => ({ id: `file ${example}`, example, y: y(0), fill: color("data"), edge: "none",
      opacity: read.has(example) ? 0.35 : 1 }))];
  join(glider, layers.go, go, { key: (d) => d.id, tag: "rect", start: () => ({ y: y(0) }),
    end: (d) => ({ x: x(d.example), y: d.y, width: side, height: side, rx: side / 6, fill: d.fill, opacity: d.opacity ?? 1, stroke: d.edge, "stroke-width": 2.5 }) });
  const ids = side < 14.5 ? [] : go.filter((d) => (d.opacity ?? 1) === 1);
  join(glider, layers.ids, ids, { key: (d) => d.id, tag: "text", text: (d) => d.example, start: () => ({ y: y(0) + side / 2 + 4 }),
    end: (d) => ({ x: x(d.example) + side / 2, y: d.y + side / 2 + 4, "text-anchor": "middle",
      style: `font-size: 12px; font-weight: 600; fill: ${d.id[0] === "l" ? inkOn("over") : d.id[0] === "f" ? inkOn("data") : "var(--ex-on-replica)"}` }) });
}

function drawRows(glider, layers, run, { x, y, side, trainedY, againY, neverY, workers, inner }) {
  const files = run.files.map((file, k) => ({ k, first: file[0], last: file.at(-1) })).filter((file) => file.last !== undefined);
  join(glider, layers.files, files, { key: (d) => d.k, tag: "rect",
    end: (d) => ({ x: x(d.first) - 1, y: y(0) - 2, width: x(d.last) - x(d.first) + side + 2, height: side + 4, rx: 3, fill: "none", stroke: color("edge"), "stroke-width": 1.2 }) });
  const examples = run.files.flat();
  join(glider, layers.slots, examples, { key: String, tag: "rect",
    end: (d) => ({ x: x(d), y: trainedY, width: side, height: side, rx: side / 6, fill: "none", stroke: color("edge"), "stroke-dasharray": "3 2" }) });
  const words = [...[...Array(workers).keys()].map((k) => ({ id: `worker ${k}`, y: y(k + 1), text: `worker ${k}`, style: "font-weight: 700" })),
    ...files.map((d) => ({ id: `file ${d.k}`, x: x(d.first), y: y(0) - 1, text: x(d.last) - x(d.first) > 34 ? `file ${d.k}` : d.k, style: "" })),
    { id: "trained", y: trainedY, text: "trained on", style: "font-weight: 700" },
    ...(run.cover.doubled ? [{ id: "again", y: againY(1), text: "trained on again", style: "font-weight: 700" }] : []),
    ...(run.cover.lost.length ? [{ id: "never", y: neverY, text: inner > 500 ? "never trained on, seen when the epoch is over" : "never trained on", style: `font-weight: 700; fill: ${color("over")}` }] : [])];
  join(glider, layers.names, words, { key: (d) => d.id, tag: "text", text: (d) => d.text,
    end: (d) => ({ x: d.x ?? 1, y: d.y - 6, style: d.style }) });
}
module.exports = { TRIES, piece };
