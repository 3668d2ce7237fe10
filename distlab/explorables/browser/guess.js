// A guess made by hand; when the answer is known, it slides in next to the guess. On a page without
// a kernel the answer of the stored run (`data.later`) waits until it is asked for.
import { button, choice, clamp, colour, draw, join, linear, logarithmic, make, sayNumber, slider, ticks } from "./core.js";

const AXIS_Y = 44, HEIGHT = 92, EDGE = 9, PADDING = 32;  // the axis lies under the slider's track

export default function guess(stage) {
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
    offer.remove();
    stage.redraw();
  });
  return [offer];
}

function guessWord(stage) {
  const found = make("p", {});
  const pick = choice(stage, { name: "guess", label: stage.data.question, options: stage.data.words });
  stage.root.append(pick, found, ...offerAnswer(stage));
  return () => {
    const { answer, how } = stage.data;
    found.textContent = answer === null ? "" : `${how}: ${answer}${answer === stage.options.guess ? ", as you said" : ""}`;
    stage.say(describeGuess(stage));
  };
}

function guessNumber(stage) {
  const { low, high, step, log, unit } = stage.data;
  const write = (value) => (value === null ? "move the handle" : withUnit(value, unit));
  const hand = slider(stage, { name: "guess", label: stage.data.question, min: low, max: high, step, log, say: write });
  const layers = Object.fromEntries(["axis", "names", "gap", "dots", "words"].map((name) => [name, draw("g")]));
  const svg = draw("svg", { role: "img", height: HEIGHT }, ...Object.values(layers));
  stage.root.append(hand, svg, ...offerAnswer(stage));
  return () => {
    const marks = listMarks(stage);
    const all = [low, high, ...marks.map((mark) => mark.value)].filter((value) => !log || value > 0);
    const range = [Math.min(...all), Math.max(...all)];
    const scale = (log ? logarithmic : linear)(range, [EDGE, stage.width - PADDING - EDGE]);
    const place = (value) => scale(log ? Math.max(value, range[0]) : value);
    svg.setAttribute("aria-label", describeGuess(stage));
    stage.say(describeGuess(stage));
    drawAxis(stage, layers, range, place);
    drawMarks(stage, layers, marks, place);
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
  const tens = stage.data.log ? Array.from({ length: 25 }, (_, k) => 10 ** (k - 12)).filter((n) => n > low * 1.5 && n < high / 1.5) : [];
  const values = [...at, ...tens].map((value) => ({ key: value, value }));
  join(stage.glider, layers.names, values, {
    key: (item) => item.key, tag: "text", text: ({ value }) => sayNumber(value),
    end: ({ value }) => ({ x: clamp(place(value), 12, stage.width - PADDING - 14), y: AXIS_Y + 22, "text-anchor": "middle", "font-size": 11 }),
  });
  join(stage.glider, layers.axis, [{ key: "line" }, ...values], {
    key: (item) => item.key, tag: "path",
    end: ({ value }) => ({ d: value === undefined ? `M ${EDGE} ${AXIS_Y} L ${stage.width - PADDING - EDGE} ${AXIS_Y}` : `M ${place(value)} ${AXIS_Y - 5} L ${place(value)} ${AXIS_Y + 5}`, stroke: colour("edge"), "stroke-width": 1.5 }),
  });
}

function drawMarks(stage, layers, marks, place) {
  const far = stage.width - EDGE;
  join(stage.glider, layers.gap, marks.length === 2 ? [marks] : [], {
    key: () => "gap", tag: "path", seconds: 0.8,
    start: () => ({ opacity: 0 }),
    end: ([a, b]) => ({ d: `M ${place(a.value)} ${AXIS_Y} L ${place(b.value)} ${AXIS_Y}`, stroke: colour("wait"), "stroke-width": 7 }),
  });
  join(stage.glider, layers.dots, marks, {
    key: (mark) => mark.name, tag: "circle", seconds: 0.8,
    start: (mark) => (mark.name === "answer" ? { cx: far, opacity: 0 } : {}),
    end: (mark) => ({ cx: place(mark.value), cy: AXIS_Y, r: 9, fill: colour(mark.idea), stroke: colour("paper"), "stroke-width": 2 }),
  });
  join(stage.glider, layers.words, marks, {
    key: (mark) => mark.name, tag: "text", seconds: 0.8,
    start: (mark) => (mark.name === "answer" ? { x: far, opacity: 0 } : {}),
    end: (mark) => ({ x: clamp(place(mark.value), 70, stage.width - PADDING - 70), y: mark.y, "text-anchor": "middle", "font-weight": 700 }),
    text: (mark) => `${mark.words}: ${withUnit(mark.value, stage.data.unit)}`,
  });
}
