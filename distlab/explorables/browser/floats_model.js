// How float types round, and what of a histogram of sizes they hold: tests compare with NumPy's float16
// and float32 and with bfloat16. A type has `digits` binary digits; its numbers lie between the powers
// `low` (full precision), `bottom` (the smallest of all) and below 2 ** `top`.

const FLOATS = {
  float32: { digits: 24, low: -126, bottom: -149, top: 128 },
  bfloat16: { digits: 8, low: -126, bottom: -133, top: 128 },
  float16: { digits: 11, low: -14, bottom: -24, top: 16 },
};

// The distance between the numbers of a type around `value`.
function findGap(type, value) {
  const { digits, low } = FLOATS[type];
  return 2 ** (Math.max(low, Math.floor(Math.log2(Math.abs(value)))) - digits + 1);
}

// The number of the type next to `value`, of two equally near ones the even one; Infinity beyond the last.
function roundFloat(type, value) {
  if (value === 0) return 0;
  const gap = findGap(type, value), places = value / gap, under = Math.floor(places), rest = places - under;
  const whole = rest > 0.5 || (rest === 0.5 && under % 2 !== 0) ? under + 1 : under;
  return Math.abs(whole * gap) >= 2 ** FLOATS[type].top ? Math.sign(value) * Infinity : whole * gap;
}

// Shares of the sizes that lie below the type's smallest number, and beyond its largest. `bins` are [power,
// count]: sizes from 2 ** power to half a power more, moved by `shift` powers.
function findLost(bins, type, shift) {
  const { bottom, top } = FLOATS[type], all = bins.reduce((sum, [, count]) => sum + count, 0);
  const share = (lost) => bins.reduce((sum, [power, count]) => sum + (lost(power + shift + 0.25) ? count : 0), 0) / all;
  return { below: share((power) => power < bottom), above: share((power) => power > top) };
}
module.exports = { FLOATS, findGap, roundFloat, findLost };
