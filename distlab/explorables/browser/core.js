// What every explorable shares: elements, scales, gliding, labeled controls, a player, a stage.
// The files here are CommonJS modules: Node.js runs them as they stand, and `bundle.py` wraps them for a page.

const SVG = "http://www.w3.org/2000/svg";
const MINUS = "\u2212";

// ---- elements

function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}

function setAttribute(node, name, value) {
  if (name === "text") {
    if (node.textContent !== String(value)) node.textContent = value;
  } else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : value);
}

// Each piece has its own copy of this file: a count alone would give two groups of buttons one name.
const pageMark = Math.random().toString(36).slice(2, 9);
let names = 0;
const newId = (word) => `ex-${word}-${pageMark}-${++names}`;

// ---- numbers

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

function linear([a, b], [from, to]) {
  return (value) => from + ((value - a) / (b - a || 1)) * (to - from);
}

function logarithmic([a, b], range) {
  const scale = linear([Math.log(a), Math.log(b)], range);
  return (value) => scale(Math.log(value));
}

// About `count` round numbers from `low` to `high`: steps of 1, 2 or 5 times a power of ten.
function ticks(low, high, count = 6) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(n * step || 0);
  return found;
}

function sayNumber(value, digits = 3) {
  if (!Number.isFinite(value)) return "\u221e";
  const size = Math.abs(value);
  if (size && size < 1e-5) return value.toExponential(digits - 1).replace(/\.?0*e/, "e").replaceAll("-", MINUS);
  const places = size >= 10 ** (digits - 1) || size === 0 ? 0 : digits - 1 - Math.floor(Math.log10(size) + 1e-12);
  const text = value.toLocaleString("en-GB", { maximumFractionDigits: clamp(places, 0, 12) });
  return text.replace("-", MINUS);
}

function sayWith(value, units, base) {
  let place = 0;
  while (place < units.length - 1 && Math.abs(value) >= base * 0.9995) { value /= base; place += 1; }
  return `${sayNumber(value)} ${units[place]}`;
}

const sayBytes = (value) => sayWith(value, ["B", "kB", "MB", "GB", "TB", "PB"], 1000);
const sayPlural = (number, word) => `${sayNumber(number)} ${word}${number === 1 ? "" : "s"}`;
const sayCount = (value) =>
  value < 1000 ? sayNumber(value) : sayWith(value / 1000, ["thousand", "million", "billion", "trillion"], 1000);
const saySeconds = (value) =>
  value >= 60 ? sayWith(value / 60, ["min", "h"], 60) : value >= 1 ? `${sayNumber(value)} s`
    : sayWith(value * 1e6, ["\u00b5s", "ms"], 1000);
const sayPercent = (share) => `${sayNumber(100 * share)} %`;

// ---- gliding: numbers in attributes go from where they are to where they should be

const REDUCED = "(prefers-reduced-motion: reduce)";
const isStill = () => window.matchMedia(REDUCED).matches;
const NUMBER = /-?\d+(?:\.\d+)?(?:e-?\d+)?/g;
const ease = (share) => 1 - (1 - share) ** 3;

function interpolate(from, to) {
  if (typeof to === "number" && Number.isFinite(Number(from))) {
    const start = Number(from), way = to - start;
    return (share) => Math.round(100 * (start + way * share)) / 100;
  }
  const starts = String(from).match(NUMBER) ?? [], ends = String(to).match(NUMBER) ?? [];
  if (!ends.length || starts.length !== ends.length) return () => to;
  const words = String(to).split(NUMBER);
  return (share) => words.reduce((text, word, k) =>
    text + word + (k < ends.length ? +(+starts[k] + (ends[k] - starts[k]) * share).toFixed(3) : ""), "");
}

class Glider {
  constructor() { this.moves = new Map(); this.frame = 0; this.atOnce = false; }

  // Move `attributes` of `node` to their new values within `seconds`; text and words change at once.
  to(node, attributes, seconds = 0.35) {
    const going = [];
    for (const [name, value] of Object.entries(attributes)) {
      const now = node.getAttribute(name);
      if (now === null || seconds === 0 || this.atOnce || name === "text" || now === String(value)) setAttribute(node, name, value);
      else going.push([name, interpolate(now, value), value]);
    }
    this.moves.delete(node);
    if (!going.length) return;
    this.moves.set(node, { going, start: performance.now(), length: 1000 * seconds });
    this.frame ||= requestAnimationFrame((now) => this.run(now));
  }

  run(now) {
    this.frame = 0;
    for (const [node, { going, start, length }] of this.moves) {
      const share = clamp((now - start) / length, 0, 1);
      for (const [name, at, end] of going) node.setAttribute(name, share === 1 ? end : at(ease(share)));
      if (share === 1) this.moves.delete(node);
    }
    if (this.moves.size) this.frame = requestAnimationFrame((next) => this.run(next));
  }

  stop() { cancelAnimationFrame(this.frame); this.frame = 0; this.moves.clear(); }
}

// One child of `parent` for each item, known by `key(item)`: new ones fade in, kept ones glide.
function join(glider, parent, items, { key, tag, start, end, text, seconds }) {
  const old = parent.nodesByKey ?? new Map(), kept = new Map();
  for (const item of items) {
    const name = key(item), wanted = end(item);
    let node = old.get(name);
    if (!node) {
      node = draw(tag, { ...wanted, opacity: 0, ...(start ? start(item) : {}) });
      parent.append(node);
    }
    old.delete(name);
    kept.set(name, node);
    if (text) setAttribute(node, "text", text(item));
    glider.to(node, { opacity: 1, ...wanted }, seconds);
  }
  for (const node of old.values()) { glider.moves.delete(node); node.remove(); }
  parent.nodesByKey = kept;
}

// ---- controls: native elements in labels; each is bound to one option of its stage

// `fits(value)` says whether the control could choose a value, which may come from an address.
function bind(stage, name, fits, show) {
  stage.fits[name] = fits;
  stage.shows.push(() => show(stage.options[name]));
}

// A slider. `log: true` for sizes over several powers of ten; `say` writes the value.
function slider(stage, { name, label, min, max, step = 1, log = false, say = sayNumber }) {
  const place = (value) => (log ? Math.round(1000 * Math.log(value / min) / Math.log(max / min)) : value);
  const value = (at) => (log ? Number((min * (max / min) ** (at / 1000)).toPrecision(3)) : at);
  const input = make("input", { type: "range", min: log ? 0 : min, max: log ? 1000 : max, step: log ? 10 : step });
  const output = make("output");
  const node = make("div", { class: "ex-slider" }, make("label", {}, make("span", { text: label }), input), output);
  input.addEventListener("input", () => stage.set(name, value(Number(input.value))));
  bind(stage, name, (each) => typeof each === "number" && each >= min && each <= max, (now) => {
    if (value(Number(input.value)) !== now) input.value = place(now);
    output.textContent = say(now);
    input.setAttribute("aria-valuetext", output.textContent);
    input.style.setProperty("--at", `${(100 * (input.value - input.min)) / (input.max - input.min)}%`);
  });
  return node;
}

// A few choices side by side (radio buttons), or with `list: true` a drop-down list.
// `options` are [value, words] or plain values.
function choice(stage, { name, label, options, list = false }) {
  const pairs = options.map((each) => (Array.isArray(each) ? each : [each, String(each)])), words = pairs.map(([, text]) => String(text));
  const wide = (list ? Math.max(...words.map((text) => text.length)) > 22 : words.join("").length > 18) ? " ex-wide" : "";  // two columns
  const isOption = (each) => pairs.some(([value]) => value === each);
  if (list) {
    const select = make("select", {}, ...pairs.map(([, words], k) => make("option", { value: k, text: words })));
    select.addEventListener("change", () => stage.set(name, pairs[Number(select.value)][0]));
    bind(stage, name, isOption, (now) => { select.value = pairs.findIndex(([value]) => value === now); });
    return make("label", { class: `ex-list${wide}` }, make("span", { text: label }), select);
  }
  const group = newId("choice");
  const inputs = pairs.map(([value]) => {
    const input = make("input", { type: "radio", name: group });
    input.addEventListener("change", () => stage.set(name, value));
    return input;
  });
  bind(stage, name, isOption, (now) => inputs.forEach((input, k) => { input.checked = pairs[k][0] === now; }));
  const labels = inputs.map((input, k) => make("label", {}, input, make("span", { text: pairs[k][1] })));
  return make("fieldset", { class: `ex-choice${wide}` }, make("legend", { text: label }), make("div", {}, ...labels));
}

function toggle(stage, { name, label }) {
  const input = make("input", { type: "checkbox", role: "switch" });
  input.addEventListener("change", () => stage.set(name, input.checked));
  bind(stage, name, (each) => typeof each === "boolean", (now) => { input.checked = now; });
  return make("label", { class: "ex-switch" }, input, make("span", { text: label }));
}

function button(words, act, attributes = {}) {
  const node = make("button", { type: "button", text: words, ...attributes });
  node.addEventListener("click", act);
  return node;
}

// What a piece opens with: at most four controls, and the others under "More".
function panel(first, more) {
  return make("div", { class: "ex-panel" }, make("div", { class: "ex-controls" }, ...first),
    make("details", { class: "ex-more" }, make("summary", { text: "More" }), make("div", { class: "ex-controls" }, ...more)));
}

// Questions to try, [{ask, set, act, answer}]: a chip sets the piece up with `set`, and the answer shows
// when the hand has gone to `act` (of a list, to any of it), or beyond it; with `done(options, data)`, when that is true.
// `more` opens the controls under "More".
function tries(stage, items) {
  let tried = null;
  const said = make("p", { "aria-live": "polite" });
  const chips = items.map((item) => button(item.ask, () => {
    tried = item;
    for (const [name, value] of Object.entries(item.set)) stage.set(name, value);
    if (item.more) stage.root.querySelector(".ex-more").open = true;
  }));
  const reached = ([name, value]) => {
    const now = stage.options[name], from = tried.set[name];
    return [value].flat().includes(now) || (typeof value === "number" && (now - value) * (value - from) > 0);
  };
  stage.shows.push(() => {
    chips.forEach((chip, k) => chip.setAttribute("aria-pressed", items[k] === tried));
    if (tried) setAttribute(said, "text", (tried.done?.(stage.options, stage.data) ?? Object.entries(tried.act).every(reached)) ? tried.answer : `${tried.ask} Try it: the answer shows here.`);
  });
  return make("div", { class: "ex-tries", role: "group", "aria-label": "Try" }, make("strong", { text: "Try" }), ...chips, said);
}

// Play, step and scrub the option `name` from 0 to 1. `marks()` gives the places where a step stops,
// `seconds()` how long the whole takes to play, `say(share)` what the clock shows.
function player(stage, { name, label, marks, seconds, say }) {
  let frame = 0, last = 0;
  const input = make("input", { type: "range", min: 0, max: 1, step: 0.001, "aria-label": label });
  const output = make("output");
  const stop = () => { cancelAnimationFrame(frame); frame = 0; play.textContent = "Play"; };
  const run = (now) => {
    const share = Math.min(1, stage.options[name] + (now - last) / (1000 * seconds()));
    last = now;
    stage.change({ [name]: share });
    if (share < 1) frame = requestAnimationFrame(run); else stop();
  };
  const go = (way) => {
    stop();
    const at = stage.options[name], found = marks().filter((m) => (way > 0 ? m > at + 1e-6 : m < at - 1e-6));
    stage.set(name, found.length ? (way > 0 ? found[0] : found.at(-1)) : way > 0 ? 1 : 0);
  };
  const start = () => {
    if (stage.options[name] >= 1) stage.set(name, 0);
    last = performance.now();
    play.textContent = "Pause";
    frame = requestAnimationFrame(run);
  };
  const play = button("Play", () => (frame ? stop() : isStill() ? go(stage.options[name] >= 1 ? -1 : 1) : start()), { class: "ex-main" });
  input.addEventListener("input", () => { stop(); stage.set(name, Number(input.value)); });
  bind(stage, name, (each) => each >= 0 && each <= 1, (now) => {
    input.value = now;
    output.textContent = say(now);
    input.setAttribute("aria-valuetext", output.textContent);
    input.style.setProperty("--at", `${100 * now}%`);
  });
  stage.ends.push(stop);
  const node = make("div", { class: "ex-player", role: "group", "aria-label": `${label}: play, step, scrub` },
    play, button("Back", () => go(-1)), button("Step", () => go(1)), input, output);
  return { node, start, stop };
}

// Start a player once, when its piece is first seen.
function startWhenSeen(stage, clock) {
  const watch = new IntersectionObserver((seen) => {
    if (!seen.some((each) => each.isIntersecting)) return;
    watch.disconnect();
    if (!isStill()) clock.start();
  }, { threshold: 0.4 });
  watch.observe(stage.root);
  stage.ends.push(() => watch.disconnect());
}

// A row of large numbers with what they are: [{name, words, idea}]; `write({name: text})` changes them.
function numbers(items) {
  const values = {};
  const node = make("dl", { class: "ex-numbers" }, ...items.map(({ name, words, idea }) =>
    make("div", { style: idea ? `--idea: ${color(idea)}` : null },
      make("dt", { text: words }), (values[name] = make("dd")))));
  return { node, write: (texts) => { for (const [name, text] of Object.entries(texts)) setAttribute(values[name], "text", text); } };
}

// ---- colors: CSS variables that the palette sets for both themes

const color = (idea) => `var(--ex-${idea})`;
const HALO = `stroke: ${color("panel")}; stroke-width: 4px; paint-order: stroke`;  // words over a line
const inkOn = (idea) => `var(--ex-on-${idea})`;
const replicaIdea = (number) => `replica-${number % 8}`;  // the palette has eight
const replica = (number) => color(replicaIdea(number));

// What the variables stand for now, for a canvas: read("forward") is "#0072b2".
function readColors(host) {
  const style = getComputedStyle(host), known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, style.getPropertyValue(`--ex-${name}`).trim());
    return known.get(name);
  };
}

// A canvas as wide as its place and `height` pixels tall, sharp on every screen; returns its context.
function sizeCanvas(canvas, width, height) {
  const dots = (window.devicePixelRatio || 1) * (canvas.currentCSSZoom ?? 1);
  if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(height * dots)) {
    canvas.width = Math.round(width * dots);
    canvas.height = Math.round(height * dots);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(dots, 0, 0, dots, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// ---- the stage

// JupyterLab takes letters and arrows for its own shortcuts ("d d" deletes a cell), unless the
// focused element says otherwise. Ctrl+S and the like stay JupyterLab's.
function keepKeys(root, event) {
  if (!(event.target instanceof Element) || !root.contains(event.target)) return;
  const own = !(event.ctrlKey || event.metaKey || event.altKey) && !["Escape", "Tab"].includes(event.key) &&
    !(event.key === "Enter" && event.shiftKey);
  event.target.toggleAttribute("data-lm-suppress-shortcuts", own);
}

// A page may hold a piece twice: its places need names of their own for who moves from one to the next.
function nameStage(label) {
  const taken = new Set([...document.querySelectorAll(".ex-stage")].map((each) => each.getAttribute("aria-label")));
  let name = label;
  for (let number = 2; taken.has(name); number += 1) name = `${label} (${number})`;
  return name;
}

// Draw `piece` into `host`. A piece is a function (stage) => update: it puts its elements into
// `stage.root` and returns what draws them for `stage.options`, `stage.data` and `stage.width`.
// `heard(options)` is called after each change made by hand. Returns what takes it all away.
function mount(piece, host, data, options, heard = () => {}) {
  const root = make("section", { class: "ex-stage", "aria-label": nameStage(data.label ?? "Explorable") });
  const said = make("p", { class: "ex-unseen", role: "status" });
  const stage = {
    root, data, options: { ...options }, width: 720, tall: Infinity, shows: [], fits: {}, ends: [], glider: new Glider(),
    set(name, value) { stage.change({ [name]: value }); heard(stage.options); },
    change(options) { Object.assign(stage.options, options); ask(); },
    say(words) { setAttribute(said, "text", words); },
    redraw: () => ask(),
  };
  let frame = 0, update = () => {};
  let drawn = "";
  const show = () => {
    frame = 0;
    // A page that changes its width is followed at once. Asked once a frame: asking lays out the page.
    const size = `${stage.width} ${stage.tall}`;
    stage.glider.atOnce = drawn !== size || isStill();
    drawn = size;
    update();
    stage.shows.forEach((each) => each());
  };
  const ask = () => { frame ||= requestAnimationFrame(show); };
  const still = [...host.childNodes];
  host.replaceChildren(root);
  host.classList.add("ex");
  try {
    update = piece(stage);
  } catch (error) {
    host.replaceChildren(...still);
    throw error;
  }
  root.append(said);
  const measure = () => {
    stage.width = Math.max(280, root.clientWidth || host.clientWidth || 720);
    stage.tall = root.closest(".ex-slide") ? root.clientHeight - 16 : Infinity;  // a slide is as tall as its window
  };
  const sizes = new ResizeObserver(() => { const { width, tall } = stage; measure(); if (stage.width !== width || stage.tall !== tall) ask(); });
  sizes.observe(root);
  const themes = new MutationObserver(ask), dark = window.matchMedia("(prefers-color-scheme: dark)");
  for (const node of [document.documentElement, document.body]) themes.observe(node, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-theme", "class"] });
  dark.addEventListener("change", ask);
  // Paper does not wait for a frame: what has changed for it (theme, width) is drawn at once. A browser announces
  // it in one way, in the other or in both, and Chromium announces it to a piece before the page has changed its theme.
  const print = () => { cancelAnimationFrame(frame); measure(); drawn = ""; show(); }, paper = window.matchMedia("print");
  window.addEventListener("beforeprint", print);
  paper.addEventListener("change", print);
  const listen = (event) => keepKeys(root, event);
  window.addEventListener("keydown", listen, true);
  measure();
  show();
  const end = () => {
    stage.ends.forEach((each) => each());
    cancelAnimationFrame(frame);
    stage.glider.stop();
    sizes.disconnect();
    themes.disconnect();
    dark.removeEventListener("change", ask);
    window.removeEventListener("beforeprint", print);
    paper.removeEventListener("change", print);
    window.removeEventListener("keydown", listen, true);
    host.replaceChildren();
  };
  return { stage, end };
}
module.exports = { make, draw, newId, clamp, linear, logarithmic, ticks, sayNumber, sayBytes, sayCount, sayPlural, saySeconds, sayPercent, isStill, join, slider, choice, toggle, button, panel, tries, player, startWhenSeen, numbers, color, HALO, inkOn, replicaIdea, replica, readColors, sizeCanvas, mount };
