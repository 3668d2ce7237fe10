// A number line of floats: each type's numbers around one that the hand moves, and where it snaps to. With
// gradients, their histogram slides over the range of a type, and what falls off at its ends is red.
const { choice, color, draw, join, linear, make, numbers, sayNumber, sayPercent, slider, tries } = require("./core.js");
const { FLOATS, findGap, findLost, roundFloat } = require("./floats_model.js");

const LANE = 34, TOP = 22, NEAR = 1 / 24, MOST_LINES = 130;
const LOW = -56, HIGH = 24, TALL = 150;
const IDEAS = { float32: "forward", bfloat16: "variables", float16: "data" };
const POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹", power = (n) => `2${n < 0 ? "⁻" : ""}${[...String(Math.abs(n))].map((d) => POWERS[d]).join("")}`;
const AT_REST = { type: "float16", scale: 0, replicasLog: 0 };
const TRIES = [
  { ask: "Where does float16 end?", set: { ...AT_REST, value: 1000 }, act: { value: 7e4 }, done: ({ value }) => roundFloat("float16", value) === Infinity,
    answer: "At 65,504: what is larger becomes infinity. bfloat16 reaches as far as float32, but from 65,536 on its numbers are 512 apart." },
  { ask: "How small can a number get?", set: { ...AT_REST, value: 1e-3 }, act: { value: 1e-8 }, done: ({ value }) => roundFloat("float16", value) === 0,
    answer: "float16's smallest number is 2⁻²⁴, about 6e−8, and what is below half of it becomes 0. bfloat16 keeps it, with 8 binary digits." },
  { ask: "Where does float16 begin to skip whole numbers?", set: { ...AT_REST, value: 1000 }, act: { value: 3000 }, done: ({ value }) => findGap("float16", value) > 1,
    answer: `Beyond ${sayNumber(2 ** FLOATS.float16.digits)}: its ${FLOATS.float16.digits} binary digits are used up. bfloat16 has ${FLOATS.bfloat16.digits}, and skips them beyond ${2 ** FLOATS.bfloat16.digits}.` }];
const MOST_SCALE = 32, NEARLY = 0.01;

// The questions of a piece; with `bins`, one about the scales that lose the fewest gradients, or nearly.
function listTries({ bins }) {
  if (!bins) return TRIES;
  const lose = (scale, replicasLog) => { const { below, above } = findLost(bins, "float16", scale - replicasLog); return below + above; };
  const scales = [...Array(MOST_SCALE + 1).keys()];
  const isGood = (scale, replicasLog) => lose(scale, replicasLog) <= Math.min(...scales.map((each) => lose(each, replicasLog))) + NEARLY;
  const good = scales.filter((scale) => isGood(scale, 9));
  const found = good.length > 1 ? `${power(good[0])} to ${power(good.at(-1))} lose` : `${power(good[0])} loses`;
  return [...TRIES, { ask: "512 replicas: which loss scale saves the gradients?", set: { value: 1, type: "float16", scale: 0, replicasLog: 9 }, act: { scale: good[0] },
    done: ({ type, scale, replicasLog }) => type === "float16" && isGood(scale, replicasLog),
    answer: `For 512 replicas, ${found} the fewest. The scale moves every gradient to the right, away from the floor. At the other end, beyond 65,504, they become infinite.` }];
}

function piece(stage) {
  const { bins } = stage.data;
  const controls = make("div", { class: "ex-controls" },
    slider(stage, { name: "value", label: "A number", min: 1e-9, max: 1e6, log: true, say: sayNumber }),
    ...(bins ? [choice(stage, { name: "type", label: "Gradients in", options: Object.keys(FLOATS) }),
      slider(stage, { name: "scale", label: "Loss scale", min: 0, max: MOST_SCALE, say: power }),
      slider(stage, { name: "replicasLog", label: "Replicas", min: 0, max: 12, say: (n) => sayNumber(2 ** n) })] : []));
  const layers = Object.fromEntries(["names", "solid", "lines", "exact", "dots", "words", "band", "bars", "axis", "marks"].map((name) => [name, draw("g")]));
  const svg = draw("svg", { role: "img", height: 10 }, ...Object.values(layers));
  const shown = numbers([{ name: "below", words: "of the gradients below the smallest number", idea: "over" },
    { name: "above", words: "beyond the largest", idea: "over" }]);
  stage.root.append(tries(stage, listTries(stage.data)), controls, svg, bins ? shown.node : "");
  return () => {
    const { value, type, scale, replicasLog } = stage.options, shift = scale - replicasLog;
    const snapped = Object.keys(FLOATS).map((name) => ({ name, value: roundFloat(name, value), gap: findGap(name, value) }));
    let words = `${sayNumber(value)} is ${snapped.map((each) => `${say(each.value)} in ${each.name}`).join(", ")}.`;
    if (bins) {
      const lost = findLost(bins, type, shift);
      shown.write({ below: sayPercent(lost.below), above: sayPercent(lost.above) });
      words += ` Gradients for ${2 ** replicasLog} replicas, times ${power(scale)}: ${sayPercent(lost.below)} are below ${type}'s smallest number, ${sayPercent(lost.above)} beyond its largest.`;
    }
    svg.setAttribute("aria-label", words);
    stage.say(words);
    const bottom = TOP + placeLine(stage.width).row * snapped.length, height = bottom + (bins ? TALL + 40 : 0);
    stage.glider.to(svg, { height, viewBox: `0 0 ${stage.width - 34} ${height}` }, 0);
    drawLanes(stage, layers, value, snapped);
    if (bins) drawBars(stage, layers, { bins, type, shift, floor: bottom + TALL });
  };
}

const say = (value) => (value === Infinity ? "infinity" : Number(value.toPrecision(7)).toString().replace("-", "−"));

// Names and numbers stand at the ends of their lines, and on a narrow page above them.
function placeLine(width) {
  const inner = width - 34, narrow = inner < 480, [from, to, row] = narrow ? [8, inner - 8, 62] : [78, inner - 150, 46];
  return { from, to, row, nameY: narrow ? -6 : 21, says: narrow ? { x: inner, "text-anchor": "end" } : { x: to + 10, "text-anchor": "start" } };
}

function drawLanes({ glider, width }, layers, value, snapped) {
  const { from, to, row, nameY, says } = placeLine(width), low = value * (1 - NEAR), high = value * (1 + NEAR), x = linear([low, high], [from, to]);
  const y = (lane) => TOP + lane * row;
  const lines = snapped.flatMap(({ name, gap }, lane) => {
    const first = Math.ceil(low / gap), count = Math.floor(high / gap) - first + 1;
    if (count > MOST_LINES || low > 2 ** FLOATS[name].top) return [];
    return [...Array(count).keys()].map((k) => ({ id: `${name} ${k}`, lane, at: x((first + k) * gap), name }));
  });
  const dense = snapped.filter(({ gap }) => (high - low) / gap > MOST_LINES);
  const lane = (name) => snapped.findIndex((each) => each.name === name);
  join(glider, layers.names, snapped, { key: (d) => d.name, tag: "text", text: (d) => d.name, end: (d) => ({ x: 0, y: y(lane(d.name)) + nameY, style: "font-weight: 600" }) });
  join(glider, layers.solid, dense, { key: (d) => d.name, tag: "rect", end: (d) => ({ x: from, y: y(lane(d.name)), width: to - from, height: LANE, fill: color(IDEAS[d.name]), "fill-opacity": 0.55 }) });
  join(glider, layers.lines, lines, { key: (d) => d.id, tag: "line", seconds: 0,
    end: (d) => ({ x1: d.at, x2: d.at, y1: y(d.lane), y2: y(d.lane) + LANE, stroke: color(IDEAS[d.name]), "stroke-width": 2.2 }) });
  join(glider, layers.exact, [0], { key: String, tag: "line", end: () => ({ x1: x(value), x2: x(value), y1: TOP - 6, y2: y(snapped.length - 1) + LANE + 6, stroke: color("ink"), "stroke-width": 1.6, "stroke-dasharray": "4 3" }) });
  const inside = snapped.filter((d) => d.value >= low && d.value <= high);
  join(glider, layers.dots, inside, { key: (d) => d.name, tag: "circle", end: (d) => ({ cx: x(d.value), cy: y(lane(d.name)) + LANE / 2, r: 7, fill: color("ink"), stroke: color("paper"), "stroke-width": 2 }) });
  join(glider, layers.words, snapped, { key: (d) => d.name, tag: "text", text: (d) => `= ${say(d.value)}`,
    end: (d) => ({ ...says, y: y(lane(d.name)) + nameY, style: `font-weight: 600; fill: ${inside.includes(d) ? color("ink") : color("over")}` }) });
}

function drawBars({ glider, width }, layers, { bins, type, shift, floor }) {
  const inner = width - 34, x = linear([LOW, HIGH], [10, inner - 10]), most = Math.max(...bins.map(([, count]) => count));
  const from = Math.max(LOW, FLOATS[type].bottom), to = Math.min(HIGH, FLOATS[type].top), wide = x(0.5) - x(0);
  const seen = bins.map(([at, count]) => ({ at, count, now: at + shift, tall: ((TALL - 40) * count) / most })).filter((d) => d.now >= LOW && d.now < HIGH);
  join(glider, layers.band, [0], { key: String, tag: "rect", end: () => ({ x: x(from), y: floor - TALL + 24, width: x(to) - x(from), height: TALL - 24, fill: color(IDEAS[type]), "fill-opacity": 0.22 }) });
  join(glider, layers.bars, seen, { key: (d) => d.at, tag: "rect", end: (d) => ({ x: x(d.now) + 0.5, y: floor - d.tall, width: Math.max(1, wide - 1), height: d.tall,
    fill: color(d.now + 0.25 < FLOATS[type].bottom || d.now + 0.25 > FLOATS[type].top ? "over" : "backward") }) });
  const ends = [[from, `${type} begins`], [to, "and ends"]].filter(([at]) => at > LOW && at < HIGH);
  join(glider, layers.marks, ends, { key: (d) => d[1], tag: "text", text: (d) => d[1], end: (d) => ({ x: x(d[0]), y: floor - TALL + 18, "text-anchor": "middle" }) });
  const steps = [-48, -40, -32, -24, -16, -8, 0, 8, 16].filter((n) => inner > 560 || n % 16 === 0);
  join(glider, layers.axis, steps, { key: String, tag: "text", text: power, end: (n) => ({ x: x(n), y: floor + 17, "text-anchor": "middle" }) });
}
module.exports = { listTries, piece };
