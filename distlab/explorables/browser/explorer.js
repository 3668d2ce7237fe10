// Controls above charts. Frames over a grid of the controls' values are frozen in the data, so every move is
// answered here; where a kernel runs, its frame for the exact values takes the nearest one's place.
const { CHARTS } = require("./explorer_charts.js");
const { choice, make, panel, sayCount, sayNumber, slider, tries } = require("./core.js");

function piece(stage) {
  const { controls, live } = stage.data;
  const made = controls.map((control) => makeControl(stage, control, live)), bar = made.length > 4 ? panel(made.slice(0, 4), made.slice(4)) : make("div", { class: "ex-controls" }, ...made);
  const place = make("div", { class: "ex-parts" });
  let drawn = [], frozen = null;
  if (stage.data.tries) stage.root.append(tries(stage, stage.data.tries.map((each) => ({ ...each, set: placeValues(stage, each.set), act: placeValues(stage, each.act) }))));
  stage.root.append(bar, place);
  return () => {
    frozen = stage.data.frozen ?? frozen;  // a kernel sends it once
    const { parts } = findFrame(stage, frozen);
    if (drawn.map((each) => each.kind).join() !== parts.map((each) => each.kind).join()) {
      drawn = parts.map(({ kind }) => ({ kind, ...makePart(kind, stage) }));
      place.replaceChildren(...drawn.map((each) => each.node));
    }
    parts.forEach((part, k) => drawn[k].update(stage, part));
    stage.say(parts.map((part) => (part.caption ? `${part.title}. ${part.caption}` : part.alt ?? "")).join(" "));
  };
}

function makeControl(stage, control, live) {
  const { name, label, unit, kind, options } = control;
  if (kind === "choice") return choice(stage, { name, label, options, list: options.length > 4 || options.join("").length > 40 });
  const say = (value) => (control.base && control.base ** value >= 1e5 ? sayCount(control.base ** value)
    : sayNumber(control.base ? control.base ** value : value, 5));
  const write = (value) => `${say(value)}${unit && unit !== "%" ? " " : ""}${unit}`.replace(" %", "%");
  if (live) return slider(stage, { name, label, min: control.min, max: control.max, step: control.step, say: write });
  const grid = stage.data.frozen.grids[name], step = `${name} step`;  // the values that are frozen, and no others
  stage.options[step] ??= Math.max(0, grid.indexOf(stage.options[name]));
  return slider(stage, { name: step, label, min: 0, max: grid.length - 1, say: (k) => write(grid[k]) });
}

// Options for values of controls: where no kernel runs, a slider's option is the step of its grid.
function placeValues({ data: { controls, live, frozen } }, values) {
  const findStep = (grid, value) => (Array.isArray(value) ? value.map((each) => findNearest(grid, each)) : findNearest(grid, value));
  const isStep = (name) => !live && controls.find((control) => control.name === name).kind === "slider";
  return Object.fromEntries(Object.entries(values).map(([name, value]) => (isStep(name) ? [`${name} step`, findStep(frozen.grids[name], value)] : [name, value])));
}

// What is drawn: a heading, the chart and its words; or finished HTML.
function makePart(kind, stage) {
  if (kind === "html") {
    const node = make("div", { class: "ex-said" });
    return { node, update: (stage, part) => { if (node.shown !== part.html) node.innerHTML = node.shown = part.html; } };
  }
  const title = make("p", { style: "font-weight: 600; margin: 0.6em 0 0.4em" }), words = make("p", {}), chart = CHARTS[kind]();
  if (chart.pick) chart.svg.addEventListener("click", (event) => Object.entries(placeValues(stage, chart.pick(event))).forEach(([name, value]) => stage.set(name, value)));
  return { node: make("div", {}, title, chart.svg, words),
    update: (stage, part) => {
      title.textContent = part.title;
      words.textContent = part.caption;
      chart.svg.setAttribute("aria-label", part.alt || `${part.title}. ${part.caption}`);
      chart.update(stage.glider, part, stage.width - 34);
    } };
}

function findFrame({ data, options }, frozen) {
  const { controls, live } = data;
  if (!frozen || (live && controls.every(({ name }) => data.at[name] === options[name]))) return data.frame;
  let number = 0;
  for (const { name } of controls) {
    const grid = frozen.grids[name], step = options[`${name} step`];
    number = number * grid.length + (!live && step !== undefined ? step : findNearest(grid, options[name]));
  }
  return thaw(frozen, number);
}

function findNearest(grid, value) {
  if (typeof value !== "number") return Math.max(0, grid.indexOf(value));
  const gaps = grid.map((each) => Math.abs(each - value));
  return gaps.indexOf(Math.min(...gaps));
}

// The frame of that number, as distlab/explorables/frames.py wrote it.
function thaw({ shapes, texts, frames }, number) {
  const [place, ...own] = frames[number], { shape, leaves } = shapes[place];
  let leaf = 0, next = 0;
  const read = (value) => (Array.isArray(value) ? texts[value[0]] : value);
  const build = (part) => {
    if (Array.isArray(part)) return part.map(build);
    if (part !== 0) return Object.fromEntries(Object.keys(part).sort().map((key) => [key, build(part[key])]));
    const same = leaves[leaf++];
    return read(same === null ? own[next++] : same);
  };
  return build(shape);
}
module.exports = { placeValues, piece };
