// Lesson 00: replicas that train while one watches. Each device has its own images and finds its
// own gradient; in the all-reduce the gradients become one, and every copy is updated with it.
// They train in this page, or in a kernel that sends a frame for each step.
const { make, button, choice, toggle, readColors, sizeCanvas, isStill, clamp, sayNumber } = require("./core.js");
const { NET, splitClasses, makeRandom, makeCopies, takeStep, findAccuracy, byFilter, readBytes, unpackImages, moveImage } = require("./replicas_model.js");

const { filters: FILTERS, side: SIDE, pixels: PIXELS } = NET, ACROSS = 8;
const GAP = 18, HEAD = 42, WIRE = 64, CHART = 118;
const SLOW_SECONDS = 1.1, SLOW_STEPS = 3, LONGEST = 1200, LOOK_EVERY = 4; // in the page

function piece(stage) {
  const own = stage.data.images ? new PageTrainer(stage) : null, alone = !stage.data.frame;
  if (alone) stage.options.where = "page";
  const read = () => (stage.options.where === "page" ? own.frame : stage.data.frame);
  const parts = build(stage, own, alone);
  let colors, frame = 0, shown = -1, since = 0, pictures = null;
  const paint = (time) => {
    const data = read(), seconds = (time - since) / 1000;
    const still = isStill() || data.interval < 0.1;
    const share = still ? 1 : clamp(seconds / Math.max(0.15, Math.min(1.25, 0.92 * data.interval)), 0, 1);
    paintAll(parts, stage, data, pictures, share, colors);
    return share < 1;
  };
  const refresh = () => {
    const data = read();
    if (!data) return;
    colors = readColors(stage.root);
    const mark = `${stage.options.where} ${data.replicas} ${data.step}`;
    if (mark !== shown) { shown = mark; since = performance.now(); }
    pictures = makePictures(data, colors);
    write(stage, data, parts);
  };
  const run = (time) => {
    frame = 0;
    if (own?.follow(time)) refresh();
    const moves = pictures && read() && paint(time);
    if (moves || own?.isBusy()) frame = requestAnimationFrame(run);
  };
  const eye = new IntersectionObserver(([entry]) => {
    if (entry.isIntersecting !== stage.options.seen) stage.set("seen", entry.isIntersecting);
  }, { threshold: 0.2 });
  eye.observe(parts.canvas);
  stage.ends.push(() => { eye.disconnect(); cancelAnimationFrame(frame); });
  return () => {
    refresh();
    frame ||= requestAnimationFrame(run);
  };
}

// ---- training in this page, without a kernel

// Takes a step of the network each frame, while it is seen; `frame` is what there is to draw.
class PageTrainer {
  constructor(stage) {
    this.stage = stage;
    this.frame = null;
    this.last = 0;
    unpackImages(stage.data.images.train).then(async (train) => {
      this.test = await unpackImages(stage.data.images.test);
      this.train = train;
      this.begin();
      stage.redraw();
    });
  }

  begin() {
    const { replicas, again } = this.stage.options;
    this.made = `${replicas} ${again ?? 0}`;
    this.copies = makeCopies(replicas, 1);
    this.random = makeRandom(2);
    this.groups = splitClasses(replicas);
    this.places = this.groups.map((own) => this.train.labels.flatMap((label, n) => (own.includes(label) ? [n] : [])));
    Object.assign(this, { steps: 0, slow: SLOW_STEPS, rate: 0, limit: LONGEST, breaks: [], losses: [], history: [], accuracy: null });
    this.step();
  }

  isBusy() { return this.stage.options.where === "page" && this.stage.options.seen && this.stage.options.running && this.train && this.steps < this.limit; }

  trainOn() { if (this.steps >= this.limit) this.limit = this.steps + LONGEST; }

  // Called once a frame: begin again if the hand said so, or take a step when its time has come; returns if it did.
  follow(time) {
    const { replicas, again, broken } = this.stage.options;
    if (!this.train || this.stage.options.where !== "page") return false;
    if (this.made !== `${replicas} ${again ?? 0}`) this.begin();
    else if (this.isBusy() && time - this.last >= 1000 * this.frame.interval) {
      const rate = 1000 / (time - this.last);
      if (rate > 2 && !this.slow) this.rate += (rate - this.rate) * (this.rate ? 0.05 : 1);  // not after a pause
      if (broken !== this.frame.broken) this.slow = SLOW_STEPS;
      this.step();
    } else return false;
    this.last = time;
    return true;
  }

  step() {
    const { copies, stage, test } = this, broken = stage.options.broken;
    const pick = (places) => places[Math.floor(this.random() * places.length)];
    const chosen = this.places.map((places) => Array.from({ length: NET.images }, () => pick(places)));
    const images = chosen.map((own) => own.map((n) => moveImage(this.train.images[n], this.random)));
    const { losses, gradients, total } = takeStep(copies, images, chosen.map((own) => own.map((n) => this.train.labels[n])), broken);
    this.slow = Math.max(0, this.slow - 1);
    if (this.slow || this.steps % LOOK_EVERY === 0) this.accuracy = copies.map((copy) => findAccuracy(copy, test.images, test.labels));
    if (broken && this.frame?.broken && this.breaks.length) this.breaks.at(-1)[1] = this.steps + 1;
    else if (broken) this.breaks.push([this.steps, this.steps + 1]);
    this.steps += 1;
    this.losses.push(losses.reduce((sum, each) => sum + each, 0) / losses.length);
    this.history.push(this.accuracy);
    const filters = copies.map(({ weights }) => byFilter(weights[0])), strips = [...gradients, total].map(byFilter);
    const largest = findLargest(strips);
    this.frame = {
      replicas: copies.length, classes: this.groups.map((own) => own.map((label) => stage.data.images.names[label]).join(", ")),
      step: this.steps, broken, everBroken: this.breaks.length > 0, breaks: this.breaks, accuracy: this.accuracy,
      apart: Math.max(...filters.map((own) => own.reduce((most, value, k) => Math.max(most, Math.abs(value - filters[0][k])), 0))),
      history: this.history, losses: this.losses, rate: this.rate, images: toBytes(images.flat(), (value) => 255 * value),
      gradients: toBytes(strips.slice(0, -1), signed(largest)), total: toBytes([strips.at(-1)], signed(largest)),
      filters: toBytes(filters, signed(findLargest(filters))),
      interval: this.slow ? SLOW_SECONDS : 0, resting: this.steps >= this.limit,
    };
  }
}

const findLargest = (rows) => rows.reduce((most, row) => row.reduce((all, value) => Math.max(all, Math.abs(value)), most), 0) || 1;
const signed = (largest) => (value) => 128 + 127 * clamp(value / largest, -1, 1);

function toBytes(rows, turn) {
  const found = new Uint8Array(rows.length * rows[0].length);
  rows.forEach((row, r) => row.forEach((value, k) => { found[r * row.length + k] = Math.round(turn(value)); }));
  return found;
}

// ---- elements

function build(stage, own, alone) {
  const parts = {}, places = [["page", "this page"], ["kernel", "the kernel"]];
  parts.play = button("", () => {
    const rests = stage.options.where === "page" && own.frame?.resting;
    if (rests) own.trainOn();
    stage.set("running", rests || !stage.options.running);
  }, { class: "ex-main" });
  parts.again = button("Start again", () => stage.set("again", (stage.options.again ?? 0) + 1));
  parts.canvas = make("canvas", { role: "img" });
  parts.says = make("p", { role: "status" });
  stage.root.append(
    make("div", { class: "ex-row" }, parts.play, parts.again,
      choice(stage, { name: "replicas", label: "Replicas", options: [1, 2, 3, 4] }),
      toggle(stage, { name: "broken", label: "Break the all-reduce" }),
      own && !alone ? choice(stage, { name: "where", label: "Train in", options: places }) : ""),
    parts.canvas, parts.says);
  return parts;
}

function write(stage, data, parts) {
  const { options } = stage, words = options.running && !data.resting ? "Pause" : "Train on";
  if (parts.play.textContent !== words) parts.play.textContent = words;
  const says = tell(data);
  if (parts.says.textContent !== says) parts.says.textContent = says;
  const each = data.accuracy.map((share, k) => `device ${k} (${data.classes[k]}): ${Math.round(100 * share)}% right`);
  parts.canvas.setAttribute("aria-label", `Step ${data.step}. Loss ${sayNumber(data.losses.at(-1))}. ` +
    `${each.join("; ")}. Largest difference between the copies' filters: ${sayNumber(data.apart)}.`);
}

function tell({ replicas, broken, apart, everBroken }) {
  if (replicas === 1) return "One device sees all ten classes. Nothing has to be added up.";
  if (broken) return "The all-reduce is broken: each copy learns from its own images alone, forgets the classes that it doesn't see, and drifts away from the others.";
  if (everBroken) return "The all-reduce works again, but it adds up gradients, not weights: copies that have drifted apart stay apart.";
  return apart === 0 ? "Each device sees its own classes only. But every copy gets the mean of all gradients, so the copies are equal after each step, to the last bit, and know all ten classes." : "";
}

// ---- numbers to pictures

const bytes = (given) => (typeof given === "string" ? readBytes(given) : given);

function rgb(words) {
  const pen = rgb.pen ??= document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  pen.clearRect(0, 0, 1, 1);
  pen.fillStyle = words;
  pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data];
}

// A canvas of width x height dots, colored by `at(x, y)`: [red, green, blue].
function makeDots(width, height, at) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const pen = canvas.getContext("2d"), image = pen.createImageData(width, height);
  for (let y = 0, k = 0; y < height; y++) for (let x = 0; x < width; x++, k += 4) image.data.set([...at(x, y), 255], k);
  pen.putImageData(image, 0, 0);
  return canvas;
}

function makePictures(data, colors) {
  const zero = rgb(colors("panel")), plus = rgb(colors("backward")), minus = rgb(colors("forward"));
  const mix = (value) => zero.slice(0, 3).map((z, k) => z + ((value < 0 ? minus : plus)[k] - z) * Math.abs(value));
  const bank = (values, start, columns) => makeDots(columns * SIDE, (FILTERS / columns) * SIDE, (x, y) => {
    const filter = Math.floor(y / SIDE) * columns + Math.floor(x / SIDE);
    const value = (values[start + filter * SIDE * SIDE + (y % SIDE) * SIDE + (x % SIDE)] - 128) / 127;
    return mix(Math.sign(value) * Math.abs(value) ** 0.6); // small values can be seen, too
  });
  const dark = rgb(colors("ink"))[0] > 128, size = FILTERS * SIDE * SIDE;
  const images = bytes(data.images), gradients = bytes(data.gradients), filters = bytes(data.filters);
  const devices = Array.from({ length: data.replicas }, (_, r) => ({
    images: makeDots(ACROSS * PIXELS, 2 * PIXELS, (x, y) => {
      const image = Math.floor(y / PIXELS) * ACROSS + Math.floor(x / PIXELS);
      const value = images[((r * 16 + image) * PIXELS + (y % PIXELS)) * PIXELS + (x % PIXELS)];
      return Array(3).fill(dark ? value : 255 - value);
    }),
    strip: bank(gradients, r * size, FILTERS),
    bank: bank(filters, r * size, ACROSS),
  }));
  return { devices, total: bank(bytes(data.total), 0, FILTERS) };
}

// ---- painting

const smooth = (share) => share * share * (3 - 2 * share);
const part = (share, from, to) => smooth(clamp((share - from) / (to - from), 0, 1));

function paintAll(parts, stage, data, pictures, share, colors) {
  const width = stage.width - 34, wide = (width - GAP * (data.replicas - 1)) / data.replicas;
  const column = Math.min(wide, 380), tall = column / 4, strip = column / 16;
  const rows = { images: HEAD, strip: HEAD + tall + 22, wire: 0, bank: 0, chart: 0 };
  rows.wire = rows.strip + strip + 16;
  rows.bank = rows.wire + WIRE + 16;
  rows.chart = rows.bank + tall + 34;
  const pen = sizeCanvas(parts.canvas, width, rows.chart + CHART);
  pen.imageSmoothingEnabled = false;
  const scene = { pen, data, colors, width, wide, column, tall, strip, rows, share };
  paintWire(scene);
  pictures.devices.forEach((device, k) => paintDevice(scene, device, pictures.total, k));
  const wire = data.broken ? "the all-reduce is broken" : "all-reduce: the mean of all gradients";
  if (data.replicas > 1) inscribe(scene, wire, width / 2, rows.wire + 13, "center");
  if (data.replicas > 1) inscribe(scene, apartWords(data, width), width / 2, rows.bank + tall + 16, "center", data.apart ? "over" : "ink");
  paintChart(scene);
}

const apartWords = ({ apart }, width) => apart ? `${width < 400 ? "copies differ by up to" : "largest difference between the copies:"} ${sayNumber(apart)}` : "all copies are equal";

function inscribe({ pen, colors }, words, x, y, align = "left", idea = "ink", weight = 600) {
  pen.font = `${weight} 13px system-ui, sans-serif`;
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillStyle = colors(idea);
  pen.fillText(words, x, y);
}

function paintWire(scene) {
  const { pen, data, colors, width, rows } = scene;
  if (data.replicas === 1) return;
  pen.strokeStyle = colors(data.broken ? "over" : "all-reduce");
  pen.lineWidth = 2;
  pen.setLineDash(data.broken ? [5, 6] : []);
  pen.fillStyle = colors("paper");
  pen.beginPath();
  pen.roundRect(1, rows.wire, width - 2, WIRE, 12);
  pen.fill();
  pen.stroke();
  pen.setLineDash([]);
}

function paintDevice(scene, device, total, k) {
  const { pen, data, colors, wide, column, tall, strip, rows, share, width } = scene;
  const left = k * (wide + GAP) + (wide - column) / 2, right = left + column;
  inscribe(scene, `device ${k}`, left, 9);
  inscribe(scene, shorten(pen, data.classes[k], column), left, 27, "left", "ink", 400);
  pen.globalAlpha = 0.25 + 0.75 * part(share, 0, 0.12);
  pen.drawImage(device.images, left, rows.images, column, tall);
  pen.globalAlpha = 1;
  inscribe(scene, wide > 200 ? "its gradient, of 16 filters" : "gradient", left, rows.strip - 10, "left", "ink", 400);
  const alone = data.broken || data.replicas === 1, middle = (width - column) / 2;
  const home = { x: left, y: rows.strip }, meet = { x: alone ? left : middle, y: rows.wire + WIRE - strip - 14 };
  const bank = { x: left, y: rows.bank - strip - 4 };
  const born = part(share, 0.1, 0.25), going = part(share, 0.25, 0.55), coming = part(share, 0.68, 0.95);
  pen.globalAlpha = born * (going === 1 ? 0.35 : 1);
  pen.drawImage(device.strip, home.x, home.y, column, strip);
  pen.globalAlpha = 1;
  const moving = going < 1 || alone ? device.strip : total;
  const at = coming ? between(meet, bank, coming) : between(home, meet, going);
  if (!alone && coming > 0) {
    pen.globalAlpha = 0.3;
    pen.drawImage(total, meet.x, meet.y, column, strip);
    pen.globalAlpha = 1;
  }
  if (going > 0 && coming < 1) pen.drawImage(moving, at.x, at.y, column, strip);
  pen.drawImage(device.bank, left, rows.bank, column, tall);
  pen.strokeStyle = colors("panel");
  for (let n = 0; n <= 8; n++) line(pen, left + (n * column) / 8, rows.bank, left + (n * column) / 8, rows.bank + tall, 3);
  for (let n = 0; n <= 2; n++) line(pen, left, rows.bank + (n * tall) / 2, right, rows.bank + (n * tall) / 2, 3);
  pen.strokeStyle = colors(`replica-${k}`);
  pen.lineWidth = 2 + 3 * coming * (share < 1);
  pen.strokeRect(left, rows.bank, column, tall);
  inscribe(scene, `${Math.round(100 * data.accuracy[k])}% right`, right, 9, "right");
}

function shorten(pen, words, room) {
  pen.font = "400 13px system-ui, sans-serif";
  let text = words;
  while (text && pen.measureText(text === words ? text : `${text}\u2026`).width > room) text = text.slice(0, -1);
  return text === words ? words : `${text}\u2026`;
}

const between = (a, b, share) => ({ x: a.x + (b.x - a.x) * share, y: a.y + (b.y - a.y) * share });

function line(pen, x1, y1, x2, y2, wide = 1) {
  pen.lineWidth = wide;
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function paintChart(scene) {
  const { pen, data, colors, width, rows } = scene, top = rows.chart + 22, tall = CHART - 44;
  const half = (width - 40) / 2, longest = Math.max(40, data.losses.length);
  inscribe(scene, `loss ${sayNumber(data.losses.at(-1))}`, 0, rows.chart + 8);
  inscribe(scene, half > 230 ? "accuracy on images of all classes" : "accuracy", half + 40, rows.chart + 8);
  const plot = (values, left, low, high, idea, dash = []) => {
    pen.strokeStyle = pen.fillStyle = colors(idea);
    pen.lineWidth = 2;
    pen.setLineDash(dash);
    pen.beginPath();
    const x = (n) => left + (n / (longest - 1)) * half, y = (v) => top + (tall * (high - clamp(v, low, high))) / (high - low);
    values.forEach((value, n) => pen.lineTo(x(n), y(value)));
    pen.stroke();
    pen.setLineDash([]);
    pen.beginPath();
    pen.arc(x(values.length - 1), y(values.at(-1)), 4, 0, 7);
    pen.fill();
  };
  pen.strokeStyle = colors("line");
  for (const left of [0, half + 40]) line(pen, left, top + tall, left + half, top + tall);
  for (const [from, to] of data.breaks) {
    pen.fillStyle = colors("over");
    pen.globalAlpha = 0.13;
    for (const left of [0, half + 40]) pen.fillRect(left + (from / (longest - 1)) * half, top, (Math.min(Math.max(to - from, 0.5), longest - 1 - from) / (longest - 1)) * half, tall);
    pen.globalAlpha = 1;
  }
  plot(data.losses, 0, 0, 2.5, "ink");
  for (let k = data.replicas - 1; k >= 0; k--) plot(data.history.map((each) => each[k]), half + 40, 0, 1, `replica-${k}`, k ? [7, 5 + 2 * k] : []);
  inscribe(scene, `step ${data.step}${data.rate ? `, ${Math.round(data.rate)} steps/s` : ""}`, width, rows.chart + CHART - 10, "right", "ink", 400);
}
module.exports = { piece };
