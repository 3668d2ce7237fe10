// Values of replicas through reduce, gather and all_reduce, as in utils.collectives.replica_values:
// a test runs both on the same random values.

const VALUE_WAYS = ["sum", "mean", "sum-all", "mean-all", "gather", "all-reduce", "mean-of-means"];
const PAIRED = ["sum", "mean", "all-reduce"], AVERAGING = ["mean", "mean-all", "mean-of-means"];
const add = (numbers) => numbers.reduce((total, each) => total + each, 0);

// How many values each replica gets: nearly equal parts, or "filled", one replica after the other, as
// a dataset cuts its last global batch.
function cutCounts(count, replicas, pieces) {
  const each = Math.floor(count / replicas), full = Math.ceil(count / replicas);
  return [...Array(replicas).keys()].map((k) =>
    pieces === "filled" ? Math.min(full, Math.max(0, count - k * full)) : each + (k < count % replicas));
}

// The replica of each value: as the pieces are cut, or as `owners`, a digit for each value, has them.
function listOwners(count, replicas, pieces, owners = "") {
  const given = [...owners].map(Number);
  if (given.length === count && given.every((each) => each < replicas)) return given;
  return cutCounts(count, replicas, pieces).flatMap((own, k) => Array(own).fill(k));
}

function cutValues(values, replicas, pieces, owners) {
  const own = listOwners(values.length, replicas, pieces, owners);
  return [...Array(replicas).keys()].map((k) => values.filter((_, number) => own[number] === k));
}

// Why TensorFlow gives an error or nan, in words, or "".
function findValuesFault(way, parts) {
  const counts = parts.map((part) => part.length);
  if (PAIRED.includes(way) && new Set(counts).size > 1) return `Replicas hold ${counts.join(", ")} values. This way adds replica to replica, and needs equal shapes: TensorFlow raises InvalidArgumentError.`;
  if (way === "mean-of-means" && counts.includes(0)) return `Replica ${counts.indexOf(0)} has no values. The mean of nothing is nan, and so is the answer.`;
  return "";
}

// What each number of the answer is made of: [{from: [[replica, place]], divisor}]; in mean-of-means
// the place is "mean".
function listSlots(way, parts) {
  const all = parts.flatMap((part, replica) => part.map((_, place) => [replica, place]));
  const divide = (from) => (AVERAGING.includes(way) ? from.length : 1);
  const make = (from) => ({ from, divisor: divide(from) });
  if (way === "gather") return all.map((one) => make([one]));
  if (way === "mean-of-means") return [make(parts.map((_, replica) => [replica, "mean"]))];
  if (!PAIRED.includes(way)) return [make(all)];
  return parts[0].map((_, place) => make(parts.map((_, replica) => [replica, place])));
}

const findMean = (numbers) => add(numbers) / numbers.length;
const findPart = (parts, [replica, place]) => (place === "mean" ? findMean(parts[replica]) : parts[replica][place]);

// The steps, in words: first own means where there are any, then replica by replica, then the division.
function listValueSteps(way, parts) {
  const arriving = parts.map((_, replica) => ({ kind: "arrive", replica }));
  return [...(way === "mean-of-means" ? [{ kind: "own" }] : []), ...arriving, ...(AVERAGING.includes(way) ? [{ kind: "divide" }] : [])];
}

// The answer's numbers after `done` of the steps: null where nothing has arrived yet.
function findAnswer(way, parts, done) {
  const passed = listValueSteps(way, parts).slice(0, done);
  const arrived = new Set(passed.filter((step) => step.kind === "arrive").map((step) => step.replica));
  const divided = passed.some((step) => step.kind === "divide");
  return listSlots(way, parts).map(({ from, divisor }) => {
    const here = from.filter(([replica]) => arrived.has(replica));
    return here.length ? add(here.map((one) => findPart(parts, one))) / (divided ? divisor : 1) : null;
  });
}
module.exports = { VALUE_WAYS, cutValues, listOwners, findValuesFault, listSlots, findMean, findPart, listValueSteps, findAnswer };
