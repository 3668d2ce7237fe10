const { check } = require("./compare.js");
const { findCost, listHeld, listSteps, makeClock } = require("../../distlab/explorables/browser/ring_model.js");

check("all-reduces", ([algorithm, network]) => {
  const steps = listSteps(algorithm, network.ranks, network.perNode);
  const sent = steps.map(({ messages }) => messages.map((one) => [one.source, one.destination]).sort(([a, b], [c, d]) => a - c || b - d));
  return {
    ...findCost(algorithm, network), clock: makeClock(steps, network)(network.bytes), sent,
    end: listHeld(steps, network.ranks).at(-1),
  };
});
