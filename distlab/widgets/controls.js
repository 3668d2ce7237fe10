// A native range input or select inside its label. The kernel hears of a change
// 40 ms after the last one, so that a dragged slider asks for few pictures.
const WAIT_MS = 40;

function written(model, number) {
  const step = model.get("step");
  const decimals = Number.isInteger(step) ? 0 : String(step).split(".")[1]?.length ?? 2;
  const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  const unit = model.get("unit");
  return number.toLocaleString("en-GB", digits) + (unit ? " " + unit : "");
}

function makeSlider(model) {
  const input = document.createElement("input");
  input.type = "range";
  input.min = model.get("minimum");
  input.max = model.get("maximum");
  input.step = model.get("step");
  const output = document.createElement("output");
  const read = () => Number(input.value);
  const show = () => {
    if (read() !== model.get("value")) input.value = model.get("value");
    write();
  };
  const write = () => {
    output.textContent = written(model, read());
    input.setAttribute("aria-valuetext", output.textContent);
  };
  return { input, output, read, show, write };
}

function makeChoice(model) {
  const input = document.createElement("select");
  for (const option of model.get("options")) input.add(new Option(option, option));
  const read = () => input.value;
  const show = () => { input.value = model.get("value"); };
  return { input, output: null, read, show, write: () => {} };
}

// JupyterLab takes arrow keys and letters for its own shortcuts ("d d" deletes a
// cell), unless the focused element says otherwise. Ctrl+S and the like stay Lab's.
function keepKeys(input, event) {
  if (event.target !== input) return;
  const own = !(event.ctrlKey || event.metaKey || event.altKey) &&
    !["Enter", "Escape", "Tab"].includes(event.key);
  input.toggleAttribute("data-lm-suppress-shortcuts", own);
}

function render({ model, el }) {
  const control = model.get("kind") === "slider" ? makeSlider(model) : makeChoice(model);
  const label = document.createElement("label");
  const name = document.createElement("span");
  name.textContent = model.get("label");
  label.append(name, control.input);
  if (control.output) label.append(control.output);
  el.classList.add("distlab-control");
  el.append(label);
  let timer = 0;
  const send = () => {
    model.set("value", control.read());
    model.save_changes();
  };
  control.input.addEventListener("input", () => {
    control.write();
    clearTimeout(timer);
    timer = setTimeout(send, WAIT_MS);
  });
  control.show();
  model.on("change:value", control.show);
  const listen = (event) => keepKeys(control.input, event);
  window.addEventListener("keydown", listen, true);
  return () => {
    window.removeEventListener("keydown", listen, true);
    clearTimeout(timer);
    model.off("change:value", control.show);
  };
}

export default { render };
