// The ring, moment by moment: a table of ranks and chunks, buttons, keys, and chunks that
// move from a rank to the next one. Motion is off where the system asks for less of it.
const MOVE_MS = 900;
const REST_MS = 900;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function makeArrow(className) {
  const arrow = make("span", className, "\u25B6");
  arrow.setAttribute("aria-hidden", "true");
  return arrow;
}

function fillCell(td, cell) {
  td.replaceChildren();
  td.className = ["cell", cell.whole && "whole", cell.arrived && "arrived", cell.leaves && "leaves"]
    .filter(Boolean).join(" ");
  for (const line of cell.lines) td.append(make("span", "value", line));
  td.append(make("span", "parts", cell.parts));
  if (cell.leaves) td.append(makeArrow("arrow"), make("span", "unseen", "; leaves next"));
  if (cell.enters) td.append(makeArrow("arrow in")); // the last rank's chunk comes in again
}

function makeTable(ranks) {
  const table = make("table");
  const head = table.createTHead().insertRow();
  head.append(make("td"));
  for (let rank = 0; rank < ranks; rank++) {
    const th = make("th", "", "rank " + rank);
    th.scope = "col";
    head.append(th);
  }
  const body = table.createTBody();
  const cells = Array.from({ length: ranks }, () => []);
  for (let chunk = 0; chunk < ranks; chunk++) {
    const row = body.insertRow();
    const th = make("th", "", "chunk " + chunk);
    th.scope = "row";
    row.append(th);
    for (let rank = 0; rank < ranks; rank++) cells[rank].push(row.insertCell());
  }
  return { table, cells };
}

// One chunk on its way: a copy of its numbers slides over the table; the last rank's goes
// out at the right and comes in at the left.
function fly(stage, cells, message, moving) {
  const from = cells[message.from][message.chunk].getBoundingClientRect();
  const to = cells[message.to][message.chunk].getBoundingClientRect();
  const here = stage.getBoundingClientRect();
  const chip = make("div", "chip");
  chip.setAttribute("aria-hidden", "true");
  for (const line of message.lines) chip.append(make("span", "value", line));
  chip.style.left = from.left - here.left + "px";
  chip.style.top = from.top - here.top + "px";
  chip.style.width = from.width + "px";
  stage.append(chip);
  const x = (px) => `translateX(${px}px)`;
  const along = to.left - from.left;
  const frames = along > 0
    ? [{ transform: x(0) }, { transform: x(along) }]
    : [
        { transform: x(0), opacity: 1 }, { transform: x(from.width / 2), opacity: 0, offset: 0.49 },
        { transform: x(along - from.width / 2), opacity: 0, offset: 0.51 },
        { transform: x(along), opacity: 1 },
      ];
  const motion = chip.animate(frames, { duration: MOVE_MS, easing: "ease-in-out", fill: "forwards" });
  moving.push({ chip, motion });
  return motion.finished.catch(() => {});
}

function makeControls(root) {
  const bar = make("div", "bar");
  const buttons = {};
  for (const [name, words] of [
    ["first", "Start"], ["back", "Back"], ["step", "Step"], ["play", "Play"],
  ]) {
    buttons[name] = make("button", name, words);
    buttons[name].type = "button";
    bar.append(buttons[name]);
  }
  const label = make("label");
  const still = make("input");
  still.type = "checkbox";
  still.checked = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  label.append(still, document.createTextNode(" without motion"));
  bar.append(label);
  root.append(bar);
  return { buttons, still };
}

// JupyterLab takes arrow keys for its own shortcuts, unless the focused element says otherwise.
function keepKeys(root, event) {
  if (!(event.target instanceof Element) || !root.contains(event.target)) return;
  const own = !(event.ctrlKey || event.metaKey || event.altKey) &&
    !["Escape", "Tab"].includes(event.key);
  event.target.toggleAttribute("data-lm-suppress-shortcuts", own);
}

function render({ model, el }) {
  const frames = model.get("frames");
  const last = frames.length - 1;
  el.classList.add("jupyter-widgets", "distlab-ring"); // the first as every widget of ipywidgets
  const root = make("div", "ring");
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Ring all-reduce, step by step. Arrow keys step, Home goes to the start.");
  const { buttons, still } = makeControls(root);
  const title = make("p", "title");
  const stage = make("div", "stage");
  const { table, cells } = makeTable(frames[0].cells.length);
  stage.append(table);
  const words = make("p", "words");
  words.setAttribute("aria-live", "polite");
  const done = make("ul", "done");
  const unit = make("p", "unit", model.get("unit"));
  root.append(title, stage, words, done, unit);
  el.append(root);

  let moving = [];
  let playing = 0;
  let waiting = 0;

  const show = () => {
    const frame = frames[model.get("place")];
    title.textContent = frame.title;
    table.setAttribute("aria-label", frame.alt);
    frame.cells.forEach((row, rank) => row.forEach((cell, chunk) => fillCell(cells[rank][chunk], cell)));
    words.textContent = frame.words;
    done.replaceChildren(...frame.done.map((text) => make("li", "", text)));
    // Not `disabled`: a disabled button would lose the focus, and the keys with it.
    for (const [name, edge] of [["first", 0], ["back", 0], ["step", last]]) {
      buttons[name].setAttribute("aria-disabled", String(model.get("place") === edge));
    }
  };
  const land = () => {
    for (const { chip, motion } of moving) { motion.cancel(); chip.remove(); }
    moving = [];
  };
  const go = (place) => {
    land();
    const to = Math.min(Math.max(place, 0), last);
    if (to === model.get("place")) return;
    model.set("place", to);
    model.save_changes();
  };
  const step = async () => {
    const place = model.get("place");
    if (place === last) return;
    if (moving.length) return go(place + 1); // a second press does not wait for the motion
    if (!still.checked) {
      const flights = frames[place].leaving.map((message) => fly(stage, cells, message, moving));
      const mine = moving;
      await Promise.all(flights);
      if (mine !== moving) return; // somebody has stepped meanwhile
    }
    go(place + 1);
  };
  const stop = () => {
    playing += 1;
    clearTimeout(waiting);
    buttons.play.textContent = "Play";
    buttons.play.setAttribute("aria-pressed", "false");
  };
  const play = async () => {
    const mine = ++playing;
    buttons.play.textContent = "Pause";
    buttons.play.setAttribute("aria-pressed", "true");
    if (model.get("place") === last) go(0);
    while (mine === playing && model.get("place") < last) {
      await step();
      if (mine !== playing) return;
      const rest = still.checked ? REST_MS + MOVE_MS : REST_MS;
      await new Promise((resolve) => { waiting = setTimeout(resolve, rest); });
    }
    if (mine === playing) stop();
  };
  const act = {
    first: () => { stop(); go(0); },
    back: () => { stop(); go(model.get("place") - 1); },
    step: () => { stop(); step(); },
    play: () => (buttons.play.textContent === "Pause" ? stop() : play()),
    end: () => { stop(); go(last); },
  };
  for (const name of ["first", "back", "step", "play"]) buttons[name].addEventListener("click", act[name]);
  const keys = { ArrowRight: act.step, ArrowLeft: act.back, Home: act.first, End: act.end };
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
  const listen = (event) => keepKeys(root, event);
  window.addEventListener("keydown", listen, true);
  const change = () => { land(); show(); };
  model.on("change:place", change);
  stop();
  show();
  return () => {
    stop();
    land();
    window.removeEventListener("keydown", listen, true);
    model.off("change:place", change);
  };
}

export default { render };
