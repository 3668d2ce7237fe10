const assert = require("node:assert/strict");
const { test } = require("node:test");
const { sayBand } = require("../../distlab/explorables/browser/guess.js");

test("a guess is in one of three bands", () => {
  const bands = [
    [[9.5, 10, 0, 100], /^Spot on\.$/], [[11, 10, 0, 100], /^Spot on\.$/], [[0.05, 0, 0, 6], /^Spot on\.$/],
    [[20, 10, 0, 100], /^Near\.$/], [[60, 75, 0, 100], /^Near\.$/],
    [[30, 75, 0, 100], /^Far off: 2\.5 times too small\. The text below says why\.$/], [[4.5, 1.5, 1, 8], /^Far off: 3 times too large\./],
    [[95, 70, 0, 100], /^Far off: too large\./], [[3, 0, 0, 6], /^Far off: too large\./],
    [[20, 10, 1, 1000, true], /^Near: the right order of magnitude\.$/], [[31, 10, 1, 1000, true], /^Far off: 3\.1 times too large\./],
    [[1e5, 1.6e6, 1e4, 1e8, true], /^Far off: 16 times too small\./],
  ];
  for (const [given, said] of bands) assert.match(sayBand(...given), said);
});
