// What the tests here share. Python writes the cases, and what its own code makes of each:
// { group: [[given, truth], …] }, in the module that CASES names.
const assert = require("node:assert/strict");
const { after, test } = require("node:test");

const cases = require(process.env.CASES), used = new Set();

// Fail unless all that `truth` holds is in `told`: numbers to 9 digits, anything else exactly.
function compare(told, truth, { relative = 1e-9, absolute = 1e-12 } = {}, place = "") {
  if (Number.isFinite(truth)) {
    assert.equal(typeof told, "number", place);
    assert.ok(Math.abs(told - truth) <= absolute + relative * Math.abs(truth), `${place} must be ${truth}, got ${told}`);
  } else if (truth instanceof Object) {
    assert.ok(told instanceof Object, `${place} must be an object, got ${told}`);
    if (Array.isArray(truth)) assert.equal(told.length, truth.length, `${place}'s length`);
    for (const name of Object.keys(truth)) compare(told[name], truth[name], { relative, absolute }, `${place}.${name}`);
  } else assert.strictEqual(told, truth, place);
}

// Return what Python wrote under `name`; a group of cases may not be empty, nor be left out.
function take(name) {
  used.add(name);
  assert.ok(cases[name] && cases[name].length !== 0, `${name} must have cases`);
  return cases[name];
}

// One test for each group of cases: `run(given)` must return the truth.
function check(group, run, tolerance) {
  test(group, () => {
    for (const [given, truth] of take(group)) compare(run(given), truth, tolerance, JSON.stringify(given).slice(0, 400));
  });
}

after(() => assert.deepEqual(Object.keys(cases).filter((name) => !used.has(name)), [], "cases that no test takes"));

module.exports = { take, check, compare };
