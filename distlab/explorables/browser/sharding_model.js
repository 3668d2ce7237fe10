// Which examples each worker keeps under an auto-shard policy, as in utils.input_pipeline.sharding:
// a test runs both. `files` are lists of examples, `orders` one shuffled order for each worker.

const cutBatches = (examples, batch) =>
  [...Array(Math.ceil(examples.length / batch)).keys()].map((k) => examples.slice(k * batch, (k + 1) * batch));

// [worker][step] = {kept: examples that train, thrown: those read for it and thrown away}.
function dealExamples({ files, workers, policy, batch }, orders) {
  const all = files.flat();
  return [...Array(workers).keys()].map((worker) => {
    const isMine = (_, k) => k % workers === worker;
    if (policy === "FILE") return cutBatches(files.filter(isMine).flat(), batch).map((kept) => ({ kept, thrown: [] }));
    if (policy === "OFF") return cutBatches(all, batch).map((kept) => ({ kept, thrown: [] }));
    const read = policy === "DATA" ? all : orders[worker];
    const mine = policy === "DATA" ? cutBatches(read, batch).filter(isMine) : cutBatches(read.filter(isMine), batch);
    // To come to the end of a batch of its own, it reads all that stand before.
    let seen = 0;
    return mine.map((kept, k) => {
      const until = k === mine.length - 1 ? read.length : read.indexOf(kept.at(-1)) + 1;
      const thrown = read.slice(seen, until).filter((example) => !kept.includes(example));
      seen = until;
      return { kept, thrown };
    });
  });
}

// The examples in `count` files, as even as can be, the first ones larger.
function fillFiles(examples, count) {
  const files = [];
  for (let k = 0, first = 0; k < count; k++) {
    const size = Math.floor(examples / count) + (k < examples % count ? 1 : 0);
    files.push([...Array(size).keys()].map((n) => first + n));
    first += size;
  }
  return files;
}

// How many examples came once, more than once, never.
function countCover(views, examples) {
  const seen = Array(examples).fill(0);
  for (const step of views.flat()) for (const example of step.kept) seen[example] += 1;
  return { once: seen.filter((n) => n === 1).length, doubled: seen.filter((n) => n > 1).length, lost: seen.flatMap((n, example) => (n ? [] : [example])) };
}
module.exports = { dealExamples, fillFiles, countCover };
