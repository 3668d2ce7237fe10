// One lane for each task. The kernel sends the whole view a few times a second;
// only what has changed is written, and buttons stay where they are and keep the focus.
function make(tag, className, parent) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  parent.append(element);
  return element;
}

function write(element, property, value) {
  if (element[property] !== value) element[property] = value;
}

function makeButton(parent, act) {
  const button = make("button", "", parent);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}

function makeLane(parent, name, send) {
  const lane = make("div", "lane", parent);
  lane.setAttribute("role", "group");
  lane.setAttribute("aria-label", name);
  const about = make("div", "about", lane);
  make("p", "name", about).textContent = name;
  const parts = { lane, shown: "" };
  for (const part of ["words", "facts", "bytes"]) parts[part] = make("p", part, about);
  const middle = make("div", "middle", lane);
  parts.curve = make("div", "curve-box", middle);
  parts.notes = make("p", "notes", middle);
  const buttons = make("div", "buttons", lane);
  parts.kill = makeButton(buttons, () => send("kill", name));
  parts.pause = makeButton(buttons, () => send(parts.pauseAction, name));
  parts.restart = makeButton(buttons, () => send("restart", name));
  parts.lines = make("pre", "lines", lane);
  return parts;
}

function label(button, words, name) {
  write(button, "textContent", words);
  button.setAttribute("aria-label", `${words} ${name}`);
}

function showLane(parts, lane) {
  if (parts.lane.dataset.state !== lane.state) parts.lane.dataset.state = lane.state;
  for (const part of ["words", "facts", "bytes", "notes", "lines"]) {
    write(parts[part], "textContent", lane[part]);
  }
  if (parts.shown !== lane.curve) {
    parts.curve.innerHTML = lane.curve; // drawn by the kernel, its words escaped
    parts.shown = lane.curve;
  }
  parts.pauseAction = lane.pause;
  label(parts.kill, "Kill", lane.name);
  label(parts.pause, lane.pause === "pause" ? "Pause" : "Resume", lane.name);
  label(parts.restart, "Restart", lane.name);
  for (const button of ["kill", "pause", "restart"]) {
    write(parts[button], "disabled", !lane.can[button]);
  }
}

// JupyterLab takes Enter, Space and letters for its own shortcuts ("d d" deletes a
// cell), unless the focused element says otherwise. Ctrl+S and the like stay Lab's.
function keepKeys(root, event) {
  if (!root.contains(event.target)) return;
  const own = !(event.ctrlKey || event.metaKey || event.altKey) &&
    !["Escape", "Tab"].includes(event.key);
  root.toggleAttribute("data-lm-suppress-shortcuts", own);
}

function render({ model, el }) {
  const send = (action, task) => model.send({ action, task });
  el.classList.add("distlab-cockpit");
  el.setAttribute("role", "region");
  el.setAttribute("aria-label", "Cockpit of a job");
  const header = make("header", "", el);
  const status = make("p", "status", header);
  const stop = makeButton(header, () => send("stop", ""));
  label(stop, "Stop", "the job");
  stop.textContent = "Stop the job";
  const message = make("p", "message", el);
  message.setAttribute("role", "status");
  const list = make("div", "lanes", el);
  let lanes = new Map();
  const show = () => {
    const view = model.get("view");
    write(status, "textContent", `Job: ${view.status}`);
    write(message, "textContent", view.message);
    write(stop, "disabled", view.finished);
    const names = view.lanes.map((lane) => lane.name);
    if (names.join() !== [...lanes.keys()].join()) {
      list.replaceChildren();
      lanes = new Map(names.map((name) => [name, makeLane(list, name, send)]));
    }
    for (const lane of view.lanes) showLane(lanes.get(lane.name), lane);
  };
  show();
  model.on("change:view", show);
  const listen = (event) => keepKeys(el, event);
  window.addEventListener("keydown", listen, true);
  return () => {
    window.removeEventListener("keydown", listen, true);
    model.off("change:view", show);
  };
}

export default { render };
