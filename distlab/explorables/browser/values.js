// One value per replica, and how it becomes one: numbers in their replica's color glide to where
// reduce, gather or all_reduce leaves them. A stripe in a box is a number that went into it.
const { button, choice, clamp, color, draw, join, linear, make, numbers, panel, player, replica, sayNumber, slider, startWhenSeen, tries } = require("./core.js");
const { VALUE_WAYS, cutValues, findAnswer, findMean, findPart, findValuesFault, listOwners, listSlots, listValueSteps } = require("./values_model.js");

const CALLS = {
  sum: 'strategy.reduce("SUM", values, axis=None)', mean: 'strategy.reduce("MEAN", values, axis=None)',
  "sum-all": 'strategy.reduce("SUM", values, axis=0)', "mean-all": 'strategy.reduce("MEAN", values, axis=0)',
  gather: "strategy.gather(values, axis=0)", "all-reduce": 'replica_context.all_reduce("SUM", values)',
  "mean-of-means": 'strategy.reduce("MEAN", strategy.run(tf.reduce_mean, (values,)), axis=None)',
};
const NAMES = { sum: "reduce SUM, axis=None", mean: "reduce MEAN, axis=None", "sum-all": "reduce SUM, axis=0", "mean-all": "reduce MEAN, axis=0",
  gather: "gather, axis=0", "all-reduce": "all_reduce SUM, in the step", "mean-of-means": "MEAN of each replica's mean" };
const TALL = 28, STRIPE = 13, SLOT = 40, GAP = 5, EDGE = 7, HEAD = 24, LINE = 84;

const START = { replicas: 4, count: 8, pieces: "even", owners: "", time: 1 };
const TRIES = [
  { ask: "Change no number, and change the mean of the means: how?", set: { ...START, way: "mean-of-means" }, act: { owners: "10112233" },
    done: ({ way, replicas, count, pieces, owners }) => way === "mean-of-means" && replicas === 4 && count === 8 && new Set(countOwners(listOwners(count, replicas, pieces, owners), replicas)).size > 1,
    answer: "Move one: click a number in the picture. All numbers are the same as before, and so is their mean. But a number that shares its replica with fewer others now counts for more." },
  { ask: "axis=None, and 7 values: what is the sum?", set: { ...START, way: "sum" }, act: { count: 7 },
    done: ({ way, count, replicas }) => way === "sum" && count % replicas > 0,
    answer: "There is none: TensorFlow raises InvalidArgumentError. axis=None adds replica to replica, so all must hold equally many values." },
  { ask: "All values in one sum: which call?", set: { ...START, way: "sum" }, act: { way: "sum-all" },
    answer: "reduce with axis=0: it adds within each replica, then over the replicas. That works for unequal shares too." }];

const countOwners = (owners, replicas) => [...Array(replicas).keys()].map((k) => owners.filter((each) => each === k).length);

function piece(stage) {
  const { data } = stage;
  const move = (number) => {  // to the next replica
    const { replicas, count, pieces, owners } = stage.options, own = listOwners(count, replicas, pieces, owners);
    own[number] = (own[number] + 1) % replicas;
    stage.set("owners", own.join(""));
  };
  const movers = data.values.map((_, number) => button("", () => move(number), { "aria-label": `Move value ${number + 1} to the next replica` }));
  stage.fits.owners = (value) => /^[0-7]{0,16}$/.test(value);
  const controls = panel([
    choice(stage, { name: "way", label: "What you call", options: VALUE_WAYS.map((way) => [way, NAMES[way]]), list: true }),
    slider(stage, { name: "replicas", label: "Replicas", min: 1, max: 8 }),
    slider(stage, { name: "count", label: "Values", min: 1, max: data.values.length }),
    choice(stage, { name: "pieces", label: "Cut into pieces", options: [["even", "nearly equal"], ["filled", "replica by replica"]], list: true })], [
    slider(stage, { name: "first", label: "First value", min: -20, max: 40 }),
    make("div", { class: "ex-wide ex-row", role: "group", "aria-label": "Move a value to the next replica" }, ...movers)]);
  const call = make("code", { style: "font-size: 14px; font-weight: 600" });
  const shown = numbers([{ name: "answer", words: "the answer", idea: "all-reduce" }, { name: "holder", words: "held afterwards by" },
    { name: "mean", words: "mean of all values", idea: "data" }]);
  const fault = make("p", { role: "alert", style: "font-weight: 600" }), sum = make("p", {});
  const hint = make("p", { text: "Click a number in the picture: it moves to the next replica." });
  const layers = Object.fromEntries(["boxes", "heads", "homes", "slots", "chips", "words", "totals", "dots", "means", "names"].map((name) => [name, draw("g", { "text-anchor": "middle", "pointer-events": name === "homes" ? null : "none" })]));
  const svg = draw("svg", { role: "img", height: 10 }, ...Object.values(layers));
  let parts = [], steps = [], cut = "", moved = "";
  const clock = player(stage, { name: "time", label: "Steps", seconds: () => clamp(steps.length * 0.8, 2, 9),
    marks: () => steps.map((_, k) => (k + 1) / steps.length), say: (share) => `step ${count(share)} of ${steps.length}` });
  const count = (share) => Math.floor(share * steps.length + 1e-6);
  if (data.autoplay) startWhenSeen(stage, clock);
  svg.addEventListener("click", ({ target }) => { if (target.dataset.number) move(Number(target.dataset.number)); });
  stage.root.append(tries(stage, TRIES), controls, call, clock.node, shown.node, hint, fault, svg, sum);
  return () => {
    const { way, replicas, count: most, pieces, first } = stage.options, wanted = `${most} ${replicas} ${pieces}`;
    if (cut !== wanted && stage.options.owners === moved) stage.options.owners = "";  // a new cut undoes the moves
    [cut, moved] = [wanted, stage.options.owners];
    const { owners } = stage.options, values = [first, ...data.values.slice(1)].slice(0, most), own = listOwners(most, replicas, pieces, owners);
    parts = cutValues(values, replicas, pieces, owners);
    movers.forEach((node, k) => { node.hidden = k >= values.length; node.textContent = sayNumber(values[k] ?? 0); node.style.borderColor = replica(own[k] ?? 0); });
    const numbers = parts.map((_, k) => own.flatMap((each, number) => (each === k ? [number] : [])));  // of each replica's values
    steps = listValueSteps(way, parts);
    const wrong = findValuesFault(way, parts), done = wrong ? 0 : count(stage.options.time);
    const slots = wrong ? [] : listSlots(way, parts), answer = wrong ? [] : findAnswer(way, parts, done);
    const told = tell({ way, parts, slots, steps, done, answer, wrong });
    call.textContent = CALLS[way];
    shown.write(told.shown);
    fault.textContent = told.fault;
    sum.textContent = told.sum;
    svg.setAttribute("aria-label", told.words);
    stage.say(told.words);
    drawValues(stage, svg, layers, { way, parts, slots, steps, done, answer, numbers });
    drawLine(stage, layers, svg, { way, parts, answer, all: done === steps.length && !wrong });
  };
}

// Everything that is said in words, about the picture as it stands.
function tell({ way, parts, slots, steps, done, answer, wrong }) {
  const mean = findMean(parts.flat()), all = done === steps.length && !wrong;
  const say = (value) => (value === null ? "\u2026" : sayNumber(value, 4)), texts = answer.map(say);
  const short = wrong ? "none" : texts.length > 4 ? `${texts.length} numbers` : texts.join(", ");
  const off = all && way === "mean-of-means" && Math.abs(answer[0] - mean) > 1e-9 * Math.max(1, Math.abs(mean));
  const terms = slots.length ? slots[0].from.map((one) => say(findPart(parts, one))) : [];
  const total = slots.length ? say(slots[0].from.reduce((sum, one) => sum + findPart(parts, one), 0)) : "";
  const divided = slots.length && slots[0].divisor > 1 ? `, / ${slots[0].divisor} = ${say(findAnswer(way, parts, steps.length)[0])}` : "";
  const held = parts.map((part, k) => `replica ${k} ${part.map(say).join(", ") || "nothing"}`).join("; ");
  return {
    shown: { answer: short, holder: way === "all-reduce" ? "every replica" : "your program", mean: say(mean) },
    fault: wrong || (off ? `Not the mean of all values: a value on a replica that has few of them counts for more.` : ""),
    sum: all && way !== "gather" && terms.length > 1 ? `${slots.length > 1 ? "The first number" : "The answer"}: ${terms.join(" + ")} = ${total}${divided}` : "",
    words: `${NAMES[way]}. Before: ${held}. ${wrong || `After ${done} of ${steps.length} steps the answer is ${texts.join(", ")}, held by ${way === "all-reduce" ? "every replica" : "your program"}.`}`,
  };
}

function drawValues(stage, svg, layers, { way, parts, slots, steps, done, answer, numbers }) {
  const { glider } = stage, inner = stage.width - 34, gap = inner < 600 ? 4 : 12;
  const wide = (inner - gap * (parts.length - 1)) / parts.length, chip = clamp(wide - 2 * EDGE, 20, 42);
  const across = Math.max(1, Math.floor((wide - 2 * EDGE + GAP) / (chip + GAP)));
  const rows = Math.max(1, ...parts.map((part) => Math.ceil(part.length / across)));
  const own = way === "mean-of-means" ? 1 : 0, top = HEAD + rows * (TALL + GAP) + own * (SLOT + GAP) + 2 * EDGE, below = top + 34;
  const place = (left, y, room, size, number, height) => ({ x: left + EDGE + (number % room) * (size + GAP), y: y + Math.floor(number / room) * (height + GAP), width: size, height });
  const left = (k) => k * (wide + gap);
  const shared = way === "all-reduce", holders = shared ? parts.map((_, k) => ({ left: left(k), wide })) : [{ left: 0, wide: inner }];
  const size = shared || way === "gather" ? chip : clamp((inner - 2 * EDGE + GAP) / Math.max(1, slots.length) - GAP, 44, 220);
  const room = Math.max(1, Math.floor((holders[0].wide - 2 * EDGE + GAP) / (size + GAP)));
  const lines = Math.max(1, Math.ceil(slots.length / room)), end = below + HEAD + lines * (SLOT + GAP) + 2 * EDGE;
  const spots = {
    home: (k, number) => place(left(k), HEAD + EDGE, across, chip, number, TALL),
    own: (k) => ({ x: left(k) + EDGE, y: HEAD + EDGE + rows * (TALL + GAP), width: Math.min(wide - 2 * EDGE, across * (chip + GAP) - GAP, 130), height: SLOT }),
    slot: (holder, number) => place(holders[holder].left, below + HEAD + EDGE, room, size, number, SLOT),
  };
  const tall = end + (hasLine(way) ? LINE : 4);
  glider.to(svg, { height: tall, viewBox: `0 0 ${inner} ${tall}` }, 0);
  drawBoxes(glider, layers, { parts, holders, left, wide, top, below, end, shared });
  const at = { arrived: new Set(steps.slice(0, done).filter((step) => step.kind === "arrive").map((step) => step.replica)), averaged: own && done > 0 };
  drawHomes(glider, layers, parts, spots, at, numbers);
  drawTravellers(glider, layers, listTravellers({ way, parts, slots, holders, spots, at }));
  drawTotals(glider, layers, { holders, slots, answer, spots, done: done === steps.length, means: at.averaged ? parts.map(findMean) : [] });
}

function drawBoxes(glider, layers, { parts, holders, left, wide, top, below, end, shared }) {
  const boxes = [...parts.map((part, k) => ({ id: `home ${k}`, x: left(k), y: 0, wide, tall: top, idea: replica(k), words: wide > 76 ? `replica ${k}` : `${k}` })),
    ...holders.map((each, k) => ({ id: `held ${shared} ${k}`, x: each.left, y: below, wide: each.wide, tall: end - below,
      idea: shared ? replica(k) : color("edge"), words: shared ? (wide > 140 ? `replica ${k} holds` : wide > 76 ? `replica ${k}` : `${k}`) : "your program holds" }))];
  join(glider, layers.boxes, boxes, { key: (d) => d.id, tag: "rect",
    end: (d) => ({ x: d.x + 1, y: d.y + 1, width: d.wide - 2, height: d.tall - 2, rx: 8, fill: color("paper"), stroke: d.idea, "stroke-width": 2 }) });
  join(glider, layers.heads, boxes, { key: (d) => d.id, tag: "text", text: (d) => d.words,
    end: (d) => ({ x: d.x + d.wide / 2, y: d.y + 18, style: "font-weight: 600; font-size: 13px" }) });
}

// The numbers as the replicas hold them: they stay where they are, a copy travels.
function drawHomes(glider, layers, parts, spots, at, numbers) {
  const homes = parts.flatMap((part, k) => part.map((value, number) => ({ id: numbers[k][number], k, value, ...spots.home(k, number) })));
  join(glider, layers.homes, homes, { key: (d) => d.id, tag: "rect",
    end: (d) => ({ x: d.x, y: d.y, width: d.width, height: d.height, rx: 5, "data-number": d.id, style: "cursor: pointer", fill: replica(d.k), "fill-opacity": at.arrived.has(d.k) || at.averaged ? 0.28 : 1, stroke: replica(d.k) }) });
  join(glider, layers.words, homes, { key: (d) => d.id, tag: "text", text: (d) => sayNumber(d.value),
    end: (d) => ({ x: d.x + d.width / 2, y: d.y + 19, style: `font-weight: 700; font-size: ${fit(sayNumber(d.value), d.width)}px; fill: ${at.arrived.has(d.k) || at.averaged ? color("ink") : color("on-replica")}` }) });
}

const fit = (text, wide) => Math.min(14, (1.6 * (wide - 2)) / text.length);

// Each copy under way, as {id, k, x, y, width, height}: at home, in its replica's own mean, or a stripe
// of the number that it went into, once for each that holds the answer.
function listTravellers({ way, parts, slots, holders, spots, at }) {
  const found = [];
  const stripe = (box, number, count) => ({ ...box, x: box.x + (box.width * number) / count, width: box.width / count, height: STRIPE });
  if (way === "mean-of-means" && slots.length) {
    parts.forEach((part, k) => part.forEach((_, number) => found.push({ id: `own ${k} ${number}`, k, start: spots.home(k, number),
      ...(at.averaged ? stripe(spots.own(k), number, part.length) : spots.home(k, number)) })));
  }
  slots.forEach(({ from }, slot) => from.forEach(([k, number], order) => holders.forEach((_, holder) => {
    const there = stripe(spots.slot(holder, slot), order, from.length);
    const here = number === "mean" ? spots.own(k) : spots.home(k, number);
    const start = number === "mean" ? { ...here, height: STRIPE } : here;
    found.push({ id: `${holder} ${k} ${number}`, k, start, ...(at.arrived.has(k) ? there : start), hidden: !at.arrived.has(k) });
  })));
  return found;
}

function drawTravellers(glider, layers, travellers) {
  join(glider, layers.chips, travellers, { key: (d) => d.id, tag: "rect", seconds: 0.6, start: (d) => ({ ...pick(d.start), opacity: d.hidden ? 0 : 1 }),
    end: (d) => ({ ...pick(d), rx: Math.min(4, d.width / 3), fill: replica(d.k), opacity: d.hidden ? 0 : 1 }) });
}

const pick = ({ x, y, width, height }) => ({ x, y, width, height });

function drawTotals(glider, layers, { holders, slots, answer, spots, done, means }) {
  const boxes = holders.flatMap((_, holder) => slots.map((_, slot) => ({ id: `${holder} ${slot}`, value: answer[slot], end: done, ...spots.slot(holder, slot) })));
  boxes.push(...means.map((value, k) => ({ id: `mean ${k}`, value, end: false, ...spots.own(k) })));
  join(glider, layers.slots, boxes, { key: (d) => d.id, tag: "rect",
    end: (d) => ({ x: d.x - 1.5, y: d.y - 1.5, width: d.width + 3, height: d.height + 3, rx: 6, fill: "none", stroke: color(d.end ? "all-reduce" : "line"), "stroke-width": d.end ? 3 : 1.5 }) });
  const say = (d) => sayNumber(d.value, 4);
  join(glider, layers.totals, boxes.filter((d) => d.value !== null), { key: (d) => d.id, tag: "text", text: say,
    end: (d) => ({ x: d.x + d.width / 2, y: d.y + STRIPE + 20, style: `font-weight: 800; font-size: ${fit(say(d), d.width) + 2}px` }) });
}
const hasLine = (way) => ["mean-all", "mean-of-means"].includes(way);

// A line of numbers: each value, each replica's own mean (larger), the mean of all and the answer, if it is one mean.
function drawLine({ glider, width }, layers, svg, { way, parts, answer, all }) {
  const inner = width - 34, y = Number(svg.getAttribute("viewBox").split(" ")[3]) - 34, values = parts.flat();
  const x = linear([Math.min(...values), Math.max(...values)], [24, inner - 24]), dot = (value, k, size, id) => ({ id, tag: "ellipse", cx: x(value), cy: y, rx: size, ry: size, fill: replica(k), stroke: color("paper") });
  const dots = parts.flatMap((part, k) => [...part.map((value, n) => dot(value, k, 4, `dot ${k} ${n}`)), ...(part.length && way === "mean-of-means" ? [dot(findMean(part), k, 9, `mean ${k}`)] : [])]);
  join(glider, layers.dots, hasLine(way) ? dots : [], { key: (d) => d.id, tag: "ellipse", end: ({ id, tag, ...rest }) => rest });
  const marks = hasLine(way) ? [["mean of all", findMean(values), "data", -13], ...(all ? [["the answer", answer[0], "all-reduce", 24]] : [])] : [];
  join(glider, layers.means, marks, { key: ([name]) => name, tag: "path", seconds: 0.6, end: ([, value, idea, way]) => ({ d: `M ${x(value)} ${y} L ${x(value)} ${y + way}`, stroke: color(idea), "stroke-width": 5 }) });
  join(glider, layers.names, marks, { key: ([name]) => name, tag: "text", seconds: 0.6, text: ([name, value]) => `${name}: ${sayNumber(value, 4)}`,
    end: ([, value, , way]) => ({ x: clamp(x(value), 60, inner - 60), y: way < 0 ? y + way - 5 : y + way + 9, style: "font-weight: 600" }) });
}
module.exports = { TRIES, piece };
