// A guess made by hand; when the answer is known, it slides in next to the guess. On a page without
// a kernel the answer of the stored run (`data.later`) waits until it is asked for. From the second on,
// a strip shows how far off all guesses of the lesson were; the browser keeps them for the home page.
const { button, choice, clamp, color, draw, join, linear, logarithmic, make, sayNumber, slider, ticks } = require("./core.js");

const STORE = "distlab-guesses", STRIP = 74;
const HALF_SIGN = 3.4;  // half the width of a sign of the axis's numbers
const AXIS_Y = 44, HEIGHT = 92, EDGE = 9, PADDING = 32;  // the axis lies under the slider's track

function piece(stage) {
  return stage.data.words.length ? guessWord(stage) : guessNumber(stage);
}

const withUnit = (value, unit) => (unit === "x" ? `\u00d7${sayNumber(value)}` : `${sayNumber(value)}${unit && " "}${unit}`);

function describeGuess({ data, options }) {
  const write = (value) => (data.words.length ? value : withUnit(value, data.unit));
  const mine = options.guess === null ? "no guess yet" : `your guess: ${write(options.guess)}`;
  const waits = data.later ? "press Show the answer when you have guessed" : "the answer comes with the next cell";
  const found = data.answer === null ? waits : `${data.how}: ${write(data.answer)}`;
  return `${data.question}: ${mine}; ${found}.`;
}

function offerAnswer(stage) {
  if (!stage.data.later) return [];
  const offer = button("Show the answer", () => {
    stage.data = { ...stage.data, ...stage.data.later };
    keepGuess(stage);
    offer.remove();
    stage.redraw();
  });
  return [offer];
}

function guessWord(stage) {
  const found = make("p", {});
  const pick = choice(stage, { name: "guess", label: stage.data.question, options: stage.data.words });
  const strip = makeStrip(stage);
  stage.root.append(pick, found, ...offerAnswer(stage), strip.node);
  return () => {
    const { answer, how } = stage.data;
    found.textContent = answer === null ? "" : `${how}: ${answer}${answer === stage.options.guess ? ", as you said" : ""}`;
    stage.say(describeGuess(stage));
    strip.update();
  };
}

// How near a guess was, in three bands: within a tenth; within a fifth of the scale, or on a logarithmic
// scale within three times; or further off.
function sayBand(guess, answer, low, high, log) {
  const off = Math.abs(guess - answer), factor = guess * answer > 0 ? Math.max(guess / answer, answer / guess) : Infinity;
  if (off <= Math.max(0.1 * Math.abs(answer), 0.01 * (high - low))) return "Spot on.";
  if (log ? factor <= 3 : off <= 0.2 * (high - low)) return log ? "Near: the right order of magnitude." : "Near.";
  const times = factor >= 2 && factor < Infinity ? `${sayNumber(factor, 2)} times ` : "";
  return `Far off: ${times}too ${guess > answer ? "large" : "small"}. The text below says why.`;
}

function guessNumber(stage) {
  const { low, high, step, log, unit } = stage.data;
  const write = (value) => (value === null ? "move the handle" : withUnit(value, unit));
  const hand = slider(stage, { name: "guess", label: stage.data.question, min: low, max: high, step, log, say: write });
  const layers = Object.fromEntries(["axis", "names", "gap", "dots", "words"].map((name) => [name, draw("g")]));
  const svg = draw("svg", { role: "img", height: HEIGHT }, ...Object.values(layers));
  const strip = makeStrip(stage), band = make("p", { style: "font-weight: 600" });
  let told = false;
  stage.root.append(hand, svg, band, ...offerAnswer(stage), strip.node);
  return () => {
    const marks = listMarks(stage), { guess } = stage.options, { answer } = stage.data;
    if (answer !== null && !told) band.textContent = guess === null ? "" : sayBand(guess, answer, low, high, log);
    told ||= answer !== null;
    const all = [low, high, ...marks.map((mark) => mark.value)].filter((value) => !log || value > 0);
    const range = [Math.min(...all), Math.max(...all)];
    const scale = (log ? logarithmic : linear)(range, [EDGE, stage.width - PADDING - EDGE]);
    const place = (value) => scale(log ? Math.max(value, range[0]) : value);
    svg.setAttribute("aria-label", describeGuess(stage));
    stage.say(describeGuess(stage));
    drawAxis(stage, layers, range, place);
    drawMarks(stage, layers, marks, place);
    strip.update();
  };
}

function listMarks({ data, options }) {
  const marks = [];
  if (options.guess !== null) marks.push({ name: "guess", value: options.guess, idea: "data", words: "your guess", y: AXIS_Y - 17 });
  if (data.answer !== null) marks.push({ name: "answer", value: data.answer, idea: "all-reduce", words: data.how, y: AXIS_Y + 44 });
  return marks;
}

function drawAxis(stage, layers, [low, high], place) {
  const at = stage.data.log ? [low, high] : ticks(low, high, 5);
  const half = (value) => HALF_SIGN * sayNumber(value).length;
  const isClear = (n) => [low, high].every((end) => Math.abs(place(n) - place(end)) > half(n) + 2 * half(end));
  const tens = stage.data.log ? Array.from({ length: 25 }, (_, k) => 10 ** (k - 12)).filter((n) => n > low && n < high && isClear(n)) : [];
  const every = Math.ceil((60 * tens.length) / stage.width);
  const values = [...at, ...tens.filter((_, k) => k % every === every - 1)].map((value) => ({ key: value, value }));
  join(stage.glider, layers.names, values, {
    key: (item) => item.key, tag: "text", text: ({ value }) => sayNumber(value),
    end: ({ value }) => ({ x: clamp(place(value), half(value), stage.width - PADDING - half(value)), y: AXIS_Y + 22, "text-anchor": "middle", "font-size": 11 }),
  });
  join(stage.glider, layers.axis, [{ key: "line" }, ...values], {
    key: (item) => item.key, tag: "path",
    end: ({ value }) => ({ d: value === undefined ? `M ${EDGE} ${AXIS_Y} L ${stage.width - PADDING - EDGE} ${AXIS_Y}` : `M ${place(value)} ${AXIS_Y - 5} L ${place(value)} ${AXIS_Y + 5}`, stroke: color("edge"), "stroke-width": 1.5 }),
  });
}

function drawMarks(stage, layers, marks, place) {
  const far = stage.width - EDGE;
  join(stage.glider, layers.gap, marks.length === 2 ? [marks] : [], {
    key: () => "gap", tag: "path", seconds: 0.8,
    start: () => ({ opacity: 0 }),
    end: ([a, b]) => ({ d: `M ${place(a.value)} ${AXIS_Y} L ${place(b.value)} ${AXIS_Y}`, stroke: color("wait"), "stroke-width": 7 }),
  });
  join(stage.glider, layers.dots, marks, {
    key: (mark) => mark.name, tag: "circle", seconds: 0.8,
    start: (mark) => (mark.name === "answer" ? { cx: far, opacity: 0 } : {}),
    end: (mark) => ({ cx: place(mark.value), cy: AXIS_Y, r: 9, fill: color(mark.idea), stroke: color("paper"), "stroke-width": 2 }),
  });
  join(stage.glider, layers.words, marks, {
    key: (mark) => mark.name, tag: "text", seconds: 0.8,
    start: (mark) => (mark.name === "answer" ? { x: far, opacity: 0 } : {}),
    end: (mark) => ({ x: clamp(place(mark.value), 70, stage.width - PADDING - 70), y: mark.y, "text-anchor": "middle", "font-weight": 700 }),
    text: (mark) => `${mark.words}: ${withUnit(mark.value, stage.data.unit)}`,
  });
}

// ---- all guesses of the lesson: {lesson: {question: {off, words}}}, `off` from 0 (right) to 1

function readGuesses() {
  try { return JSON.parse(localStorage.getItem(STORE)) ?? {}; } catch { return {}; }
}

function findLesson(root) {
  const panel = root.closest(".jp-NotebookPanel");
  const tab = panel && document.querySelector(`.lm-TabBar-tab[data-id="${panel.id}"] .lm-TabBar-tabLabel`);
  return (tab ? tab.textContent : location.pathname.split("/").at(-1)).replace(/\.\w+$/, "");
}

// Only what was guessed before the answer came is kept.
function keepGuess(stage) {
  const { question, words, log, low, high, answer } = stage.data, { guess } = stage.options;
  if (stage.answered || answer === null) return;
  stage.answered = true;
  if (guess === null) return;
  const off = words.length ? Number(guess !== answer) : log ? Math.abs(Math.log(guess / Math.max(answer, 1e-300))) / Math.log(high / low) : Math.abs(guess - answer) / (high - low);
  const all = readGuesses();
  (all[findLesson(stage.root)] ??= {})[question] = { off: clamp(off, 0, 1), words: describeGuess(stage) };
  try { localStorage.setItem(STORE, JSON.stringify(all)); } catch { /* a page that may keep nothing */ }
}

function makeStrip(stage) {
  const title = make("p", { style: "font-weight: 600" }), layers = ["axis", "dots", "words"].map(() => draw("g"));
  const svg = draw("svg", { role: "img", height: STRIP, "aria-label": "Your guesses in this lesson" }, ...layers), node = make("div", { hidden: true }, title, svg);
  const update = () => {
    keepGuess(stage);
    const all = Object.entries(readGuesses()[findLesson(stage.root)] ?? {});
    node.hidden = !stage.answered || all.length < 2;
    if (node.hidden) return;
    title.textContent = `Your ${all.length} guesses in this lesson`;
    svg.setAttribute("aria-label", `${title.textContent}, by how far off they were. ${all.map(([, one]) => one.words).join(" ")}`);
    drawStrip(stage, layers, all);
  };
  return { node, update };
}

function drawStrip({ glider, width, data }, [axis, dots, words], all) {
  const ends = [EDGE, width - PADDING - EDGE], x = linear([0, 1], ends), floor = STRIP - 24, piles = new Map();
  const shown = all.map(([question, one]) => {
    const slot = Math.round(x(one.off) / 16), height = piles.get(slot) ?? 0;
    piles.set(slot, height + 1);
    return { question, off: one.off, height: Math.min(height, 2), own: question === data.question };
  });
  join(glider, axis, [0], { key: String, tag: "path", end: () => ({ d: `M ${ends[0]} ${floor} L ${ends[1]} ${floor}`, stroke: color("edge"), "stroke-width": 1.5 }) });
  join(glider, dots, shown, { key: (d) => d.question, tag: "circle", seconds: 0.8, start: () => ({ cx: ends[1], opacity: 0 }),
    end: (d) => ({ cx: x(d.off), cy: floor - 8 - 15 * d.height, r: 7, fill: color("data"), "fill-opacity": d.own ? 1 : 0.45, stroke: color(d.own ? "ink" : "data"), "stroke-width": 1.5 }) });
  const ways = [["exactly right", "start", ends[0]], ["far off", "end", ends[1]]];
  join(glider, words, ways, { key: ([text]) => text, tag: "text", text: ([text]) => text, end: ([, anchor, at]) => ({ x: at, y: STRIP - 6, "text-anchor": anchor }) });
}
module.exports = { sayBand, piece };
