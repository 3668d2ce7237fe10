const { check } = require("./compare.js");
const { listWaits, simulateStep } = require("../../distlab/explorables/browser/step_model.js");

check("steps", (options) => {
  const run = simulateStep(options), list = (name) => run.buckets.map((bucket) => bucket[name]);
  return { ...run, wait: listWaits(options, [options.bucket])[0], ready: list("ready"), starts: list("start"), ends: list("end") };
});
