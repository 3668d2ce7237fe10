const { cases, check } = require("./compare.js");
const { countCover, dealExamples, fillFiles } = require("../../distlab/explorables/browser/sharding_model.js");

check("shards", (options) => {
  const files = fillFiles(32, options.count), views = dealExamples({ ...options, files }, cases.data.orders);
  const thrown = views.map((view) => view.reduce((sum, step) => sum + step.thrown.length, 0));
  return { files, kept: views.map((view) => view.map((step) => step.kept)), thrown, ...countCover(views, 32) };
});
