const assert = require("node:assert/strict");
const { test } = require("node:test");
const { cases, check } = require("./compare.js");
const { lintText, lintTogether } = require("../../distlab/explorables/browser/cluster_model.js");
const { judge } = require("../../distlab/explorables/browser/cluster.js");

const sort = (faults) => faults.map(({ where, what, cure }) => [where, what, cure].join("|")).sort();

test("texts", () => {
  for (const [text, truth] of cases.texts) {
    const { faults } = lintText(text);
    if (truth[0]?.what.startsWith("is not JSON")) {  // Python names the place as well
      assert.equal(faults.length, 1, text);
      assert.match(faults[0].what, /^is not JSON/, text);
      assert.ok(truth[0].what.startsWith(faults[0].what.split(" before")[0]), text);
    } else assert.deepEqual(sort(faults), sort(truth), text);
  }
});

test("together", () => {
  for (const [[first, second], truth] of cases.together) {
    const faults = lintTogether([["node-a", lintText(first)], ["node-b", lintText(second)]]);
    assert.deepEqual(sort(faults), sort(truth), `${first}\n${second}`);
  }
});

check("clusters", ([a, b]) => judge({ a, b }));
