const { check } = require("./compare.js");
const { compare, findLoss, findUpdate, takeSteps } = require("../../distlab/explorables/browser/arrow_model.js");

check("steps", ([problem, batch]) => {
  const { update, wanted } = findUpdate(problem, problem.start, batch);
  return {
    path: takeSteps(problem, batch, 5), alone: takeSteps(problem, batch, 5, true),
    ratio: compare(update, wanted).ratio, loss: findLoss(problem, problem.start, batch.examples),
  };
});

check("degrees", ([problem, batch]) => {
  const { update, wanted } = findUpdate(problem, problem.start, batch);
  return Math.abs(compare(update, wanted).degrees);
}, { absolute: 1e-4 });
