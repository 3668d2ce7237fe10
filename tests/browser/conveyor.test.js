const { cases, check } = require("./compare.js");
const { simulateInput } = require("../../distlab/explorables/browser/conveyor_model.js");

const { draws, picks } = cases.data;

check("belts", (options) => {
  const seconds = { read: options.readMs / 8e3, decode: options.decodeMs / 8e3, augment: options.augmentMs / 8e3, step: options.stepMs / 1e3 };
  return simulateInput({ ...options, ...seconds, batch: 8, batches: 16 }, draws.map((draw) => [1 + options.jitter * (draw - 1), 1]), picks);
}, { absolute: 1e-9 });
