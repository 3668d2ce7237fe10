// Two machines, the TF_CONFIG of each to edit, and the cluster that they make: which task each one is, what it
// waits for, and what is wrong with it, at every key.
const { color, draw, inkOn, join, make, replica, tries } = require("./core.js");
const { findMisplaced, lintText, lintTogether } = require("./cluster_model.js");

const HOSTS = ["node-a", "node-b"], NAMES = { a: "node-a", b: "node-b" }, BOX = 62, GAP = 62, SLOT = 48, MOST_SLOTS = 6;
const write = (hosts, index, job = "worker") => `{"cluster": {"${job}": [${hosts.map((host) => `"${host}:12345"`).join(", ")}]},\n "task": {"type": "worker", "index": ${index}}}`;
const RIGHT = { a: write(HOSTS, 0), b: write(HOSTS, 1) };
const LOOKS = { member: "all-reduce", waits: "wait", alone: "variables", wrong: "over", taken: "over", twice: "over" };
const TRIES = [
  { ask: "Copied to node-b as it stands: what must change?", set: { a: RIGHT.a, b: RIGHT.a }, act: { b: RIGHT.b }, done: (options) => judge(options).formed,
    answer: "Only the index. `cluster` is the same in all tasks, and `task` says which of them this one is, counted from 0." },
  { ask: "List a third worker, node-c: who waits for whom?", set: RIGHT, act: { a: write([...HOSTS, "node-c"], 0), b: write([...HOSTS, "node-c"], 1) },
    done: (options) => judge(options).configs.every(([, { faults, jobs }]) => !faults.length && jobs.worker?.length > 2),
    answer: "Every task must list the same addresses, so both TF_CONFIGs change. Then both wait: the cluster forms when all listed tasks are there." },
  { ask: "Make both train alone, with JSON that TensorFlow reads.", set: RIGHT, act: { a: '{"cluster": {}}', b: '{"cluster": {}}' },
    done: (options) => judge(options).configs.every(([, config]) => config.alone),
    answer: "A TF_CONFIG without a cluster isn't an error to TensorFlow. Each machine trains a model of its own, and only num_replicas_in_sync: 1 tells you." }];

// Both TF_CONFIGs as read, what is wrong between them, and what each machine does.
function judge(options) {
  const configs = Object.entries(NAMES).map(([option, host]) => [host, lintText(options[option])]);
  const alone = configs.every(([, config]) => config.alone), told = alone ? [] : lintTogether(configs);
  const sound = !alone && !told.length && configs.every(([, { faults }]) => !faults.length), between = sound ? findMisplaced(configs) : told;
  const formed = sound && !between.length;
  const [first, second] = configs.map(([, { task }]) => task && `${task.job} ${task.index}`);
  const isUsed = configs.every(([, { faults, alone: own }]) => !own && !faults.length), twice = isUsed && first === second;
  const wrong = twice ? findMisplaced(configs).map(({ host }) => host) : [];  // of two that claim one task, whose it isn't
  const doubled = (host) => (wrong.length !== 1 ? "twice" : wrong[0] === host ? "taken" : "waits");
  const states = configs.map(([host, { faults, alone: own }]) => (own ? "alone" : faults.length ? "wrong" : formed ? "member" : twice ? doubled(host) : "waits"));
  return { configs, between, formed, states, twice };
}

function piece(stage) {
  const fields = Object.entries(NAMES).map(([option, host]) => makeField(stage, option, host));
  const layers = Object.fromEntries(["wires", "boxes", "words"].map((name) => [name, draw("g")]));
  const svg = draw("svg", { role: "img", height: 10 }, ...Object.values(layers)), verdict = make("p", {}), list = make("ul", { class: "cl-faults" });
  stage.root.append(tries(stage, TRIES), make("div", { class: "cl-fields" }, ...fields), svg, verdict, list);
  return () => {
    const run = judge(stage.options), words = sayVerdict(run);
    verdict.replaceChildren(make("strong", { text: words }));
    const faults = [...run.configs.flatMap(([host, { faults }]) => faults.map((each) => ({ host, ...each }))), ...run.between.map((each) => ({ host: "together", ...each }))];
    list.replaceChildren(...faults.map(({ host, where, what, cure }) => make("li", {}, make("strong", { text: `${host}: ` }), make("code", { text: where }), ` ${what}; ${cure}`)));
    const said = `${words} ${faults.map(({ host, where, what }) => `${host}: ${where}: ${what}.`).join(" ")}`.trim();
    svg.setAttribute("aria-label", said);
    stage.say(said);
    drawCluster(stage, svg, layers, run);
  };
}

function makeField(stage, option, host) {
  const input = make("textarea", { rows: 4, spellcheck: "false", autocapitalize: "off" });
  input.addEventListener("input", () => stage.set(option, input.value));
  stage.fits[option] = (value) => typeof value === "string" && value.length < 2000;
  stage.shows.push(() => { if (input.value !== stage.options[option]) input.value = stage.options[option]; });
  return make("label", {}, make("span", { text: `TF_CONFIG on ${host}` }), input);
}

function sayVerdict({ formed, states, configs, twice }) {
  const names = configs.map(([host, { task }]) => (task ? `${task.job} ${task.index} on ${host}` : host));
  if (formed) return `The cluster forms: ${names.join(" and ")}.`;
  if (twice) {
    const [, { jobs, task }] = configs[0], leads = task.index === 0 && task.job === ("chief" in jobs ? "chief" : "worker");
    return `No cluster: both say that they are ${task.job} ${task.index}, so ${leads ? "one would stop and the other" : "both"} would wait.`;
  }
  const says = { alone: "trains alone, without a word", wrong: "has an error in its TF_CONFIG", waits: "would wait" };
  return `No cluster: ${states.map((state, k) => `${HOSTS[k]} ${says[state]}`).join(", ")}.`;
}

// The machines above, the tasks that they list below, and a line from each machine to the task that it says it is.
function drawCluster({ glider, width }, svg, layers, { configs, formed, states }) {
  const inner = width - 34, half = inner / 2, wide = Math.min(half - 10, 260), narrow = inner < 520;
  const listed = new Map(configs.flatMap(([, { jobs }]) => Object.entries(jobs).flatMap(([job, all]) => all.map((address, k) => [`${job} ${k}`, address]))));
  const tasks = [...listed].slice(0, MOST_SLOTS), each = inner / Math.max(tasks.length, 2), slot = Math.min(each - 8, 190), claim = (task) => task && `${task.job} ${task.index}`;
  const middle = (place) => (place + 0.5) * (tasks.length < 2 ? half : each), top = BOX + GAP, height = top + SLOT + 8;
  glider.to(svg, { height, viewBox: `0 0 ${inner} ${height}` }, 0);
  const machines = configs.map(([host, { task }], k) => ({ id: host, host, task, state: states[k], x: (k + 0.5) * half }));
  const slots = tasks.map(([name, address], k) => ({ id: name, name, address, x: middle(k), by: machines.filter(({ task, state }) => claim(task) === name && state !== "alone") }));
  const wires = [...slots.flatMap((d) => d.by.map((machine) => ({ id: `${machine.host} claims`, d: `M ${machine.x} ${BOX} C ${machine.x} ${BOX + GAP / 2} ${d.x} ${top - GAP / 2} ${d.x} ${top}`,
    stroke: color(d.by.length > 1 && machine.state !== "waits" ? "over" : formed ? "all-reduce" : "wait"), dash: formed ? null : "6 4" }))),
    ...(formed ? [{ id: "reduce", d: `M ${machines[0].x + wide / 2} ${BOX / 2} L ${machines[1].x - wide / 2} ${BOX / 2}`, stroke: color("all-reduce"), dash: null }] : [])];
  join(glider, layers.wires, wires, { key: (d) => d.id, tag: "path", end: (d) => ({ d: d.d, fill: "none", stroke: d.stroke, "stroke-width": d.id === "reduce" ? 6 : 3, "stroke-dasharray": d.dash }) });
  const boxes = [...machines.map((d) => ({ ...d, y: 1, wide, tall: BOX - 2, fill: color(LOOKS[d.state]) })),
    ...slots.map((d) => ({ ...d, y: top, wide: slot, tall: SLOT, fill: d.by.length === 1 && d.by[0].state !== "wrong" ? replica(Number(d.name.split(" ")[1])) : "none", edge: color(d.by.length > 1 ? "over" : "edge"), dash: d.by.length ? null : "4 3" }))];
  join(glider, layers.boxes, boxes, { key: (d) => d.id, tag: "rect",
    end: (d) => ({ x: d.x - d.wide / 2, y: d.y, width: d.wide, height: d.tall, rx: 8, fill: d.fill, stroke: d.edge ?? d.fill, "stroke-width": d.by?.length > 1 ? 3 : 1.5, "stroke-dasharray": d.dash ?? null }) });
  const doing = { member: "trains with the others", waits: "waits", alone: "trains alone", wrong: narrow ? "error" : "error in its TF_CONFIG", taken: narrow ? "the other's task" : "claims the other's task", twice: narrow ? "task claimed twice" : "claims the same task" };
  const texts = [...machines.flatMap((d) => [{ id: d.host, x: d.x, y: 25, text: d.host, style: `font-weight: 700; font-size: 15px; fill: ${inkOn(LOOKS[d.state])}` },
    { id: `${d.host} does`, x: d.x, y: 46, text: narrow && d.state === "member" ? "trains" : doing[d.state], style: `font-size: 13px; fill: ${inkOn(LOOKS[d.state])}` }]),
    ...slots.flatMap((d) => {
      const ink = `fill: ${d.by.length === 1 && d.by[0].state !== "wrong" ? "var(--ex-on-replica)" : color("ink")}`, who = d.by.length ? d.address : "nobody";
      return [{ id: d.name, x: d.x, y: top + 20, text: d.name, style: `font-weight: 600; ${ink}` },
        { id: `${d.name} at`, x: d.x, y: top + 37, text: d.by.length > 1 ? "claimed twice" : 7 * who.length < slot ? who : "", style: ink }];
    })];
  join(glider, layers.words, texts, { key: (d) => d.id, tag: "text", text: (d) => d.text, end: (d) => ({ x: d.x, y: d.y, "text-anchor": "middle", style: d.style }) });
}
module.exports = { TRIES, judge, piece };
