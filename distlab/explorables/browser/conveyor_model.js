// When each element of an input pipeline is in each machine, as in utils.simulate.input (read its
// docstring): a test runs both on the same random numbers. Seconds.

const leftBy = ({ cache, read, decode, augment }) =>
  cache === "augmented" ? [0, 0] : cache === "decoded" ? [0, augment] : [read, decode + augment];

// `options` are {read, decode, augment, step, reads, calls, cores, shuffle, prefetch, cache, batch,
// batches}; `factors` are [element][reading, mapping], `picks` [element] from 0 to 1.
function simulateInput(options, factors, picks) {
  const { reads, calls, shuffle, prefetch, batch, batches } = options;
  const [readSeconds, mapSeconds] = leftBy(options), servers = Math.min(calls, options.cores);
  const run = { reads: [], maps: [], pulled: [], emitted: [], order: [], ready: [], starts: [], ends: [] };
  const free = Array(servers).fill(0), takenRead = [], fetched = [], waiting = [], handed = [0, 0];
  const doRead = (asked) => {
    const n = takenRead.length;
    const begin = reads === 1 ? asked : n >= reads ? takenRead[n - reads] : 0;
    const end = begin + readSeconds * factors[n][0];
    run.reads.push([begin, end]);
    handed[0] = Math.max(end, handed[0]);
    takenRead.push(Math.max(asked, handed[0]));
    return takenRead[n];
  };
  const doMap = (asked) => {
    const n = fetched.length;
    fetched.push(calls === 1 ? doRead(asked) : doRead(Math.max(n >= calls ? run.pulled[n - calls] : 0, n ? fetched[n - 1] : 0)));
    const server = free.indexOf(Math.min(...free)), begin = Math.max(fetched[n], free[server]);
    free[server] = begin + mapSeconds * factors[n][1];
    run.maps.push([begin, free[server]]);
    handed[1] = Math.max(free[server], handed[1]);
    run.pulled.push(Math.max(asked, handed[1]));
    return run.pulled[n];
  };
  const doShuffle = (asked) => {
    const n = run.emitted.length;
    while (run.pulled.length < Math.min(picks.length, n + shuffle)) {
      waiting.push(run.pulled.length);
      asked = doMap(asked);
    }
    const place = Math.min(Math.floor(picks[n] * waiting.length), waiting.length - 1);
    run.order.push(...waiting.splice(place, 1));
    run.emitted.push(asked);
    return asked;
  };
  for (let k = 0; k < batches; k++) {
    const asked = k ? run.ends[k - 1] : 0;
    let ready = prefetch ? Math.max(k >= prefetch ? run.starts[k - prefetch] : 0, k ? run.ready[k - 1] : 0) : asked;
    for (let n = 0; n < batch; n++) ready = doShuffle(ready);
    run.ready.push(ready);
    run.starts.push(Math.max(asked, ready));
    run.ends.push(run.starts[k] + options.step);
  }
  return { ...run, ...judge(run, { ...options, servers }) };
}

function judge({ reads, maps, starts, ends }, { batch, servers, reads: atOnce }) {
  const mean = (pairs) => pairs.reduce((sum, [begin, end]) => sum + end - begin, 0) / pairs.length;
  const half = Math.floor(ends.length / 2), batchSeconds = (ends.at(-1) - ends[half - 1]) / (ends.length - half);
  const needs = { read: (batch * mean(reads)) / atOnce, map: (batch * mean(maps)) / servers,
    step: mean(starts.map((start, k) => [start, ends[k]])) };
  const most = Math.max(...Object.values(needs));
  return { batchSeconds, needs, bottleneck: Object.keys(needs).find((name) => needs[name] === most),
    starved: Math.max(0, Number((1 - needs.step / batchSeconds).toFixed(9))) };
}
module.exports = { simulateInput };
