const { check } = require("./compare.js");
const { cutValues, findAnswer, findValuesFault, listValueSteps } = require("../../distlab/explorables/browser/values_model.js");

check("answers", ([way, ...cut]) => {
  const parts = cutValues(...cut), fails = Boolean(findValuesFault(way, parts));
  return { parts, fails, answer: fails ? null : findAnswer(way, parts, listValueSteps(way, parts).length) };
});
