// The network of lesson 00 and its training, as in distlab.lessons.two_replicas: a test takes the same
// steps in both. One convolution (5x5, stride 2, "SAME"), ReLU, max pool 2x2, one dense layer of 10.

const NET = { filters: 16, side: 5, pixels: 28, found: 14, pooled: 7, classes: 10, images: 16, rate: 0.03, momentum: 0.9 };
const ORDER = [0, 2, 6, 4, 3, 1, 8, 5, 7, 9]; // clothes first, then shoes and bags
const WEIGHTS = [25 * NET.filters, NET.filters, 49 * NET.filters * NET.classes, NET.classes];

// The classes of each of `count` replicas; the first ones get one more, as numpy.array_split has it.
function splitClasses(count) {
  const each = Math.floor(10 / count), more = 10 % count;
  return [...Array(count).keys()].map((k) => {
    const start = k * each + Math.min(k, more);
    return ORDER.slice(start, start + each + (k < more));
  });
}

// Random numbers from 0 to 1, the same for each seed (mulberry32).
function makeRandom(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// `count` equal copies: weights [filters, bias, weights, offset] and each one's momentum.
function makeCopies(count, seed) {
  const random = makeRandom(seed), normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const scales = [0.12, 0, 0.04, 0];
  const start = WEIGHTS.map((size, k) => Float32Array.from({ length: size }, () => scales[k] * normal()));
  return Array.from({ length: count }, () => ({
    weights: start.map((each) => each.slice()), speeds: start.map((each) => new Float32Array(each.length)),
  }));
}

// One global batch: `images` and `labels` hold each replica's own, images [image][pixel] from 0 to 1.
// Returns the losses and each replica's gradients; the copies are updated with the gradients' mean, or,
// if the all-reduce is broken, each with its own.
function takeStep(copies, images, labels, broken) {
  const found = copies.map((copy, k) => findGradients(copy.weights, images[k], labels[k]));
  const means = WEIGHTS.map((size, w) => Float32Array.from({ length: size }, (_, i) =>
    found.reduce((sum, { gradients }) => sum + gradients[w][i], 0) / copies.length));
  copies.forEach(({ weights, speeds }, k) => weights.forEach((values, w) => {
    const gradient = broken ? found[k].gradients[w] : means[w], speed = speeds[w];
    for (let i = 0; i < values.length; i++) {
      speed[i] = NET.momentum * speed[i] + gradient[i];
      values[i] -= NET.rate * speed[i];
    }
  }));
  return { losses: found.map(({ loss }) => loss), gradients: found.map(({ gradients }) => gradients[0]), total: means[0] };
}

function findAccuracy({ weights }, images, labels) {
  const right = images.filter((image, n) => argmax(forward(weights, image).logits) === labels[n]);
  return right.length / images.length;
}

const argmax = (values) => values.reduce((best, value, k) => (value > values[best] ? k : best), 0);

// What each layer gives for one image. `from` is where each pooled value came from, -1 where it is 0.
function forward([filters, bias, weights, offset], image) {
  const { filters: F, side, pixels, found, pooled } = NET;
  const values = new Float32Array(pooled * pooled * F), from = new Int32Array(values.length).fill(-1);
  const sums = new Float32Array(F);
  for (let y = 0; y < found; y++) for (let x = 0; x < found; x++) {
    sums.set(bias);
    for (let i = 0; i < side; i++) for (let j = 0; j < side; j++) {
      const row = 2 * y + i - 1, column = 2 * x + j - 1; // "SAME": one row above, two below
      if (row < 0 || column < 0 || row >= pixels || column >= pixels) continue;
      const value = image[row * pixels + column];
      if (value) for (let f = 0, at = (i * side + j) * F; f < F; f++, at++) sums[f] += value * filters[at];
    }
    const base = ((y >> 1) * pooled + (x >> 1)) * F;
    for (let f = 0; f < F; f++) if (sums[f] > values[base + f]) { values[base + f] = sums[f]; from[base + f] = y * found + x; }
  }
  const logits = offset.slice();
  for (let k = 0, at = 0; k < values.length; k++) {
    const value = values[k];
    for (let c = 0; c < NET.classes; c++, at++) logits[c] += value * weights[at];
  }
  return { values, from, logits };
}

// The mean loss of some images, and its gradients for the four weights.
function findGradients(weights, images, labels) {
  const gradients = WEIGHTS.map((size) => new Float32Array(size)), [filters, bias, dense, offset] = gradients;
  const { filters: F, side, pixels, found, classes } = NET;
  let loss = 0;
  images.forEach((image, n) => {
    const { values, from, logits } = forward(weights, image), top = Math.max(...logits);
    const powers = logits.map((each) => Math.exp(each - top)), all = powers.reduce((sum, each) => sum + each, 0);
    loss += (Math.log(all) + top - logits[labels[n]]) / images.length;
    const wrong = powers.map((each, c) => (each / all - (c === labels[n])) / images.length);
    for (let c = 0; c < classes; c++) offset[c] += wrong[c];
    for (let k = 0; k < values.length; k++) {
      if (from[k] < 0) continue; // ReLU: 0, and no gradient
      let back = 0;
      for (let c = 0, at = k * classes; c < classes; c++, at++) { dense[at] += values[k] * wrong[c]; back += weights[2][at] * wrong[c]; }
      const f = k % F, y = Math.floor(from[k] / found), x = from[k] % found;
      bias[f] += back;
      for (let i = 0; i < side; i++) for (let j = 0; j < side; j++) {
        const row = 2 * y + i - 1, column = 2 * x + j - 1;
        if (row >= 0 && column >= 0 && row < pixels && column < pixels) filters[(i * side + j) * F + f] += back * image[row * pixels + column];
      }
    }
  });
  return { loss, gradients };
}

// An image as it is, or mirrored, and moved by a pixel at most: a page has few images, and a network
// that has learned them by heart has gradients of almost nothing.
function moveImage(image, random) {
  const { pixels } = NET, mirror = random() < 0.5, down = Math.floor(3 * random()) - 1, right = Math.floor(3 * random()) - 1;
  return image.map((_, at) => {
    const y = Math.floor(at / pixels) - down, x = (at % pixels) - right;
    return y < 0 || x < 0 || y >= pixels || x >= pixels ? 0 : image[y * pixels + (mirror ? pixels - 1 - x : x)];
  });
}

// Filters as they are drawn, [filter][row][column], from [row][column][filter].
function byFilter(values) {
  const { filters: F, side } = NET, area = side * side;
  return Float32Array.from({ length: F * area }, (_, at) => values[(at % area) * F + Math.floor(at / area)]);
}

const readBytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));

// Images and labels from base64 of gzip: per image a label's byte, then two pixels of 16 grays a byte.
async function unpackImages(text) {
  const stream = new Blob([readBytes(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const raw = new Uint8Array(await new Response(stream).arrayBuffer()), size = NET.pixels ** 2, images = [], labels = [];
  for (let at = 0; at < raw.length; at += 1 + size / 2) {
    labels.push(raw[at]);
    images.push(Float32Array.from({ length: size }, (_, p) => (p % 2 ? raw[at + 1 + (p >> 1)] & 15 : raw[at + 1 + (p >> 1)] >> 4) / 15));
  }
  return { images, labels };
}
module.exports = { NET, splitClasses, makeRandom, makeCopies, takeStep, findAccuracy, moveImage, byFilter, readBytes, unpackImages };
