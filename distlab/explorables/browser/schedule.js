// The schedule as a toy: lanes of blocks, the bubble hatched, and below, on the same axis, the
// activations that each stage keeps. Two schedules stand above each other.
const { choice, clamp, color, draw, inkOn, join, linear, make, newId, numbers, panel, player, sayNumber, sayPercent, slider, ticks, tries } = require("./core.js");
const { SCHEDULES, findFault, makeSchedule, runSchedule } = require("./schedule_model.js");

const NAMES = { gpipe: "GPipe", "1f1b": "1F1B", "interleaved-1f1b": "Interleaved 1F1B", "zb-h1": "ZB-H1", "zb-h2": "ZB-H2", own: "Your schedule" };
const IDEAS = { F: "forward", B: "backward", BW: "backward", W: "weight-gradient" };
const LEFT = 64, RIGHT = 14, LANE = 30, GAP = 6, HILL = 84, AXIS = 30, HEAD = 30;

const START = { lower: "none", stages: 4, micros: 8, backward: 2, hop: 0, follow: -1, time: 1 };
const GPIPE = { ...START, upper: "gpipe", micros: 4 };
const findBubble = (options) => runSchedule(makeSchedule(options.upper, options.stages, options.micros), { forward: 1, ...options }).bubble;
const TRIES = [
  { ask: "How can GPipe's gray shrink?", set: GPIPE, act: { micros: 16 },
    done: (options) => options.upper === "gpipe" && findBubble(options) < findBubble(GPIPE) - 1e-9,
    answer: "With more micro-batches, or fewer stages: the gray is P \u2212 1 of M + P \u2212 1 places. 16 micro-batches make 16 % of 43 %, but look below: each stage keeps all 16. If they're pieces of one batch, that's no more memory than before; if they keep their size, it's four times as much." },
  { ask: "Same gray, less memory?", set: { ...START, upper: "gpipe" }, act: { lower: "1f1b" },
    done: ({ upper, lower }) => [upper, lower].includes("1f1b"),
    answer: "1F1B idles exactly as long as GPipe, but a stage keeps at most 4 micro-batches (one for each stage) instead of 8." },
  { ask: "What could fill the rest of the gray?", set: { ...START, upper: "1f1b" }, act: { lower: "zb-h1" },
    done: ({ upper, lower }) => [upper, lower].some((name) => name.startsWith("zb")),
    answer: "The gradients of the weights. Nobody waits for them, so ZB-H1 computes them where 1F1B would wait, and keeps no more activations." }];

function piece(stage) {
  const { data } = stage;
  const first = [...(data.own ? ["own"] : []), ...SCHEDULES].map((name) => [name, NAMES[name]]);
  const controls = panel([
    choice(stage, { name: "upper", label: "Schedule", options: first, list: true }),
    choice(stage, { name: "lower", label: "Compare with", options: [["none", "nothing"], ...first], list: true }),
    slider(stage, { name: "stages", label: "Stages", min: 1, max: 8 }),
    slider(stage, { name: "micros", label: "Micro-batches", min: 1, max: 16 })], [
    slider(stage, { name: "backward", label: "Backward pass", min: 1, max: 3, step: 0.25, say: (n) => `${sayNumber(n)} forwards` }),
    slider(stage, { name: "hop", label: "Delay of a hop", min: 0, max: 1, step: 0.1, say: (n) => `${sayNumber(n)} forwards` }),
    slider(stage, { name: "chunks", label: "Chunks (interleaved)", min: 1, max: 4 }),
    slider(stage, { name: "follow", label: "Follow micro-batch", min: -1, max: 15, say: (n) => (n < 0 ? "all" : String(Math.min(n, stage.options.micros - 1))) })]);
  const key = make("ul", { class: "ex-key" }, ...[["forward", "forward"], ["backward", "backward"],
    ["weight-gradient", "backward for the weights alone"], ["wait", "bubble: the stage waits"]].map(([idea, words]) =>
    make("li", { style: `--idea: ${color(idea)}` }, make("i"), words)));
  const panels = [makePanel(stage), makePanel(stage)];
  let runs = [];
  const length = () => Math.max(...runs.map((run) => run.makespan ?? 0), 1);
  const clock = player(stage, {
    name: "time", label: "Time of one step", seconds: () => clamp(length() / 4, 4, 14),
    marks: () => [...new Set(runs.flatMap((run) => (run.done ?? []).map((each) => each.end)))].sort((a, b) => a - b).map((end) => end / length()),
    say: (share) => `${sayNumber(share * length())} forwards`,
  });
  stage.root.append(data.own ? "" : tries(stage, TRIES), controls, clock.node, panels[0].node, panels[1].node, key);
  return () => {
    const names = [stage.options.upper, stage.options.lower].filter((name) => name !== "none");
    runs = names.map((name) => play(name, stage));
    panels.forEach((panel, k) => panel.update(names[k], runs[k], runs, length()));
    stage.say(runs.map((run) => run.words).join(" "));
  };
}

function play(name, { options, data }) {
  const { stages, micros, chunks } = options;
  const fault = name === "own" ? "" : findFault(name, stages, micros, chunks);
  if (fault) return { fault, words: fault };
  const made = name === "own" ? data.own : makeSchedule(name, stages, micros, chunks);
  try {
    const run = runSchedule(made, { forward: 1, ...options }), wrong = made.wrong;
    if (run.stuck.length) run.makespan = Math.max(run.makespan, ...run.stuck.map((each) => each.end));
    if (wrong) return { ...run, chunks: made.chunks, wrong, words: `${wrong.words}.` };
    const words = `${NAMES[name]}: ${sayPercent(run.bubble)} of the time idle, a stage keeps at most ${sayNumber(Math.max(...run.peaks))} micro-batches.`;
    return { ...run, chunks: made.chunks, words };
  } catch (error) {
    return { fault: `It stops: ${error.message}.`, words: error.message };
  }
}

function makePanel(stage) {
  const pattern = newId("hatch");
  const hatch = draw("pattern", { id: pattern, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    draw("rect", { width: 7, height: 7, fill: color("wait"), opacity: 0.12 }),
    draw("rect", { width: 2.2, height: 7, fill: color("wait"), opacity: 0.75 }));
  const layers = Object.fromEntries(["axis", "lanes", "idle", "blocks", "wrong", "hills", "head"].map((name) => [name, draw("g")]));
  const svg = draw("svg", { role: "img", height: 10 }, draw("defs", {}, hatch), ...Object.values(layers));
  const title = make("strong", { style: "font-size: 16px" });
  const fault = make("p", { role: "alert" });
  const shown = numbers([{ name: "bubble", words: "idle: the bubble", idea: "wait" },
    { name: "peak", words: "kept at most by a stage", idea: "forward" },
    { name: "span", words: "forwards in a step", idea: null }]);
  const node = make("div", { style: "margin: 12px 0 4px" }, title, shown.node, fault, svg);
  const follow = (event) => {
    const micro = event.target.dataset?.micro;
    const wanted = micro === undefined ? -1 : Number(micro);
    if (stage.hover !== wanted) { stage.hover = wanted; stage.redraw(); }
  };
  layers.blocks.addEventListener("pointermove", follow);
  layers.blocks.addEventListener("pointerleave", follow);
  const update = (name, run, runs, end) => {
    node.hidden = !run;
    if (!run) return;
    title.textContent = NAMES[name];
    fault.textContent = run.fault ?? run.wrong?.words ?? "";
    fault.style.color = run.wrong ? color("over") : null;
    svg.style.display = run.fault ? "none" : "";
    shown.node.style.display = run.fault || run.stuck.length ? "none" : "";
    if (run.fault) return;
    shown.write({ bubble: sayPercent(run.bubble), peak: sayNumber(Math.max(...run.peaks)), span: sayNumber(run.span) });
    svg.setAttribute("aria-label", describe(name, run));
    drawRun(stage, svg, layers, pattern, run, runs, end);
  };
  return { node, update };
}

function describe(name, run) {
  const peaks = run.peaks.map((peak, k) => `stage ${k} ${sayNumber(peak)}`).join(", ");
  return `${NAMES[name]}, one lane for each of ${run.peaks.length} stages. ${run.words} Most kept: ${peaks}.`;
}

function drawRun(stage, svg, layers, pattern, run, runs, end) {
  const { glider, options, width } = stage;
  const inner = width - 2, x = linear([0, end], [LEFT, inner - RIGHT]), stages = run.peaks.length;
  const most = Math.max(...runs.flatMap((each) => each.peaks ?? [0]), 1);
  const room = stage.tall / runs.length - 85, hill = clamp(0.2 * room, 30, HILL), tall = clamp((room - HEAD - AXIS - hill) / stages - GAP, 14, LANE);
  const y = (lane) => 4 + lane * (tall + GAP), floor = y(stages) + HEAD + hill, height = floor + AXIS;
  glider.to(svg, { height, viewBox: `0 0 ${inner} ${height}` }, 0);
  const last = Math.max(...run.done.map((each) => each.micro));
  const follow = stage.hover >= 0 ? stage.hover : Math.min(options.follow, last), head = options.time * end;
  drawAxis(glider, layers.axis, x, y(stages), floor, end, inner);
  glider.to(layers.axis.most, { x: LEFT - 8, y: floor - hill + 5, "text-anchor": "end", text: sayNumber(most) }, 0);
  join(glider, layers.lanes, run.firsts.map((_, lane) => lane), { key: String, tag: "text", text: (lane) => `stage ${lane}`,
    end: (lane) => ({ x: 0, y: y(lane) + tall / 2 + 4 }) });
  join(glider, layers.idle, listGaps(run), { key: (d) => d.id, tag: "rect",
    end: (d) => ({ x: x(d.from), y: y(d.lane), width: x(d.to) - x(d.from), height: tall, rx: 4, fill: `url(#${pattern})` }) });
  drawBlocks(glider, layers.blocks, run, x, y, tall, follow, head);
  const marked = [...run.done, ...run.stuck].filter((d) => d.stage === run.wrong?.stage && d.place === run.wrong.place);
  const frames = [...run.stuck.filter((d) => !marked.includes(d)), ...marked].filter((d) => head >= d.start - 1e-9);
  join(glider, layers.wrong, frames, { key: (d) => d.stage, tag: "rect", seconds: 0,
    end: (d) => ({ x: x(d.start) + 1.5, y: y(d.stage) + 1.5, width: Math.max(4, x(d.end) - x(d.start) - 3), height: tall - 3, rx: 4, fill: "none", stroke: color("over"), "stroke-width": 3.5, "stroke-dasharray": run.stuck.includes(d) ? "5 4" : null }) });
  if (!layers.stuck) layers.wrong.after((layers.stuck = draw("g", { "text-anchor": "middle" })));
  join(glider, layers.stuck, frames.filter((d) => run.stuck.includes(d)), { key: (d) => d.stage, tag: "text", text: (d) => d.micro, seconds: 0,
    end: (d) => ({ x: (x(d.start) + x(d.end)) / 2, y: y(d.stage) + tall / 2 + 4.5, style: `fill: ${color("over")}; font-weight: 600` }) });
  drawHills(glider, layers.hills, run, x, floor, linear([0, most], [0, hill]), head);
  join(glider, layers.head, options.time < 1 ? [0] : [], { key: String, tag: "line", seconds: 0,
    end: () => ({ x1: x(head), x2: x(head), y1: 0, y2: floor, stroke: color("ink"), "stroke-width": 2 }) });
}

// Where each stage waits, from the start of the step (of its own, where no stage waits for the end
// of another) until it is over.
function listGaps({ done, firsts, span, makespan }) {
  return firsts.flatMap((first, lane) => {
    const begin = Math.min(first, makespan - span), own = done.filter((each) => each.stage === lane);
    const edges = [begin, ...own.flatMap((each) => [each.start, each.end]), begin + span];
    const gaps = [];
    for (let k = 0; k < edges.length; k += 2) if (edges[k + 1] - edges[k] > 1e-9) gaps.push({ id: `${lane} ${k}`, lane, from: edges[k], to: edges[k + 1] });
    return gaps;
  });
}

function drawBlocks(glider, layer, run, x, y, tall, follow, head) {
  const places = run.done.map((d) => {
    const done = head >= d.end - 1e-9 ? 1 : head > d.start ? 0.75 : 0.22;
    return { ...d, id: `${d.kind} ${d.micro} ${d.chunk} ${d.stage}`, wide: x(d.end) - x(d.start),
      opacity: follow < 0 || d.micro === follow ? done : Math.min(done, 0.14) };
  });
  if (!layer.rects) layer.append((layer.rects = draw("g")), (layer.words = draw("g", { "pointer-events": "none", "text-anchor": "middle" })));
  join(glider, layer.rects, places, { key: (d) => d.id, tag: "rect", start: () => ({ width: 0 }),
    end: (d) => ({ x: x(d.start) + 0.7, y: y(d.stage), width: Math.max(0.5, d.wide - 1.4), height: tall, rx: Math.min(4, d.wide / 4),
      fill: color(IDEAS[d.kind]), "fill-opacity": run.chunks > 1 ? 1 - (0.55 * d.chunk) / (run.chunks - 1) : 1,
      opacity: d.opacity, "data-micro": d.micro }) });
  const wide = places.filter((d) => d.wide > (d.micro > 9 ? 15 : 9));
  join(glider, layer.words, wide, { key: (d) => d.id, tag: "text", text: (d) => d.micro,
    end: (d) => ({ x: (x(d.start) + x(d.end)) / 2, y: y(d.stage) + tall / 2 + 4.5, opacity: d.opacity,
      style: `fill: ${run.chunks > 1 && d.chunk > 0 ? color("ink") : inkOn(IDEAS[d.kind])}; font-weight: 600` }) });
}

// One hill for each stage, the first one at the back; up to the play head they are full.
function drawHills(glider, layer, run, x, floor, tall, head) {
  const hills = run.kept.map((steps, number) => ({ number, steps }));
  const outline = (steps, until) => {
    let path = `M${x(0)} ${floor}`, at = 0;
    for (const [k, [time, count]] of steps.entries()) {
      if (time > until) break;
      if (steps[k + 1]?.[0] - time < 1e-9) continue;
      path += `L${x(time)} ${floor - tall(at)}L${x(time)} ${floor - tall(count)}`;
      at = count;
    }
    const last = Math.min(until, steps.at(-1)[0]);
    return `${path}L${x(last)} ${floor - tall(at)}L${x(last)} ${floor}Z`;
  };
  join(glider, layer, hills, { key: (d) => d.number, tag: "path",
    end: (d) => ({ d: outline(d.steps, head), fill: color("forward"), "fill-opacity": 0.22,
      stroke: color("forward"), "stroke-width": 1.6, "stroke-linejoin": "round" }) });
}

function drawAxis(glider, layer, x, top, floor, end, inner) {
  const marks = ticks(0, end, clamp(Math.round(inner / 90), 3, 12));
  if (!layer.lines) layer.append((layer.lines = draw("g")), (layer.words = draw("g")), (layer.title = draw("text")), (layer.most = draw("text")));
  join(glider, layer.lines, marks, { key: (d) => sayNumber(d), tag: "line",
    end: (d) => ({ x1: x(d), x2: x(d), y1: 0, y2: floor, stroke: color("line") }) });
  join(glider, layer.words, marks, { key: (d) => sayNumber(d), tag: "text", text: sayNumber,
    end: (d) => ({ x: x(d), y: floor + 17, "text-anchor": "middle" }) });
  glider.to(layer.title, { x: LEFT, y: top + 16, text: inner > 640 ? "Activations that each stage keeps, in micro-batches; the time is in forwards" : inner > 420 ? "Activations kept, in micro-batches; time in forwards" : "Micro-batches kept; time in forwards", style: "font-weight: 600" }, 0);
}
module.exports = { TRIES, piece };
