const assert = require("node:assert/strict");
const { test } = require("node:test");
const { sayBand } = require("../../distlab/explorables/browser/guess.js");

test("a guess is in one of three bands", () => {
  const bands = [
    [[9.5, 10, 0, 100], /^Spot on\.$/], [[11, 10, 0, 100], /^Spot on\.$/],
    [[20, 10, 0, 100], /^Near: the right order of magnitude\.$/],
    [[31, 10, 0, 100], /^Far off: 3\.1 times too large\. The text below says why\.$/],
    [[3, 0, 0, 6], /^Far off\. /], [[0.05, 0, 0, 6], /^Spot on\.$/], [[1e5, 1.6e6, 1e4, 1e8], /^Far off: 16 times too small\./],
  ];
  for (const [given, said] of bands) assert.match(sayBand(...given), said);
});
