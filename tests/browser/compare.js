// What the tests here share. Python writes the cases, and what its own code makes of each:
// { group: [[given, truth], …] }, in the module that CASES names.
const assert = require("node:assert/strict");
const { test } = require("node:test");

const cases = require(process.env.CASES);

// Fail unless all that `truth` holds is in `told`: numbers to 9 digits, anything else exactly.
function compare(told, truth, { relative = 1e-9, absolute = 1e-12 } = {}, place = "") {
  if (Number.isFinite(truth)) {
    assert.ok(Math.abs(told - truth) <= absolute + relative * Math.abs(truth), `${place} must be ${truth}, got ${told}`);
  } else if (truth instanceof Object) {
    if (Array.isArray(truth)) assert.equal(told.length, truth.length, `${place}'s length`);
    for (const name of Object.keys(truth)) compare(told[name], truth[name], { relative, absolute }, `${place}.${name}`);
  } else assert.strictEqual(told, truth, place);
}

// One test for each group of cases: `run(given)` must return the truth.
function check(group, run, tolerance) {
  test(group, () => {
    for (const [given, truth] of cases[group]) compare(run(given), truth, tolerance, JSON.stringify(given).slice(0, 400));
  });
}

module.exports = { cases, check, compare };
