const { check } = require("./compare.js");
const { descendStale, race } = require("../../distlab/explorables/browser/staleness_model.js");

check("races", (options) => {
  const { updates, steps, end } = race(options), staleness = updates.map((each) => each.staleness);
  const ended = steps.filter((step) => step.update >= 0 || step.late), list = (name) => ended.map((step) => step[name]);
  return {
    staleness, workers: list("worker"), begun: list("begun"), ended: list("ended"), late: list("late").map(Boolean),
    end, losses: descendStale(staleness, options.rate),
  };
});
