const assert = require("node:assert/strict");
const { check } = require("./compare.js");
const { byFilter, makeCopies, splitClasses, takeStep } = require("../../distlab/explorables/browser/replicas_model.js");

check("classes", splitClasses);

// Copies that start equal, with the weights of TensorFlow's, and take the same steps.
function train({ start, steps }) {
  const copies = makeCopies(steps[0].images.length, 5), sizes = start.map((values) => values.length);
  for (const { weights } of copies) {
    assert.deepEqual(weights, copies[0].weights);
    assert.deepEqual(weights.map((values) => values.length), sizes);
  }
  for (const { weights } of copies) start.forEach((values, k) => weights[k].set(values));
  const told = steps.map(({ images, labels, broken }) => takeStep(copies, images.map((own) => own.map((image) => Float32Array.from(image))), labels, broken));
  return { losses: told.map(({ losses }) => losses), totals: told.map(({ total }) => byFilter(total)), last: copies.map(({ weights }) => weights) };
}

check("losses", (given) => train(given).losses, { relative: 1e-4 });
check("gradients", (given) => train(given).totals, { relative: 1e-7, absolute: 1e-6 });
check("weights", (given) => train(given).last, { relative: 1e-7, absolute: 1e-5 });
