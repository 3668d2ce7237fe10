// Workers and parameter servers on a clock, as in utils.simulate.parameter_server, and the descent of
// descend_stale in tests/course/test_explorables.py: a test runs both on the same random workers.

const MODES = ["asynchronous", "bounded", "backup", "synchronous"];
const CURVATURES = [1, 0.35, 0.1];

// Run `updates` updates, or as many as begin their write before `until`. `seconds` are the workers' step
// times, `factors` what each step in turn is longer by. Returns {steps, updates, end}: a step is {worker,
// begun, ended, update, late}, an update {at, version, staleness, workers}.
function race({ mode, seconds, factors = [1], backup = 0, bound = 0, updates = 1e9, until = Infinity }) {
  let drawn = 0;
  const draw = (worker) => seconds[worker] * factors[drawn++ % factors.length];
  const rounds = mode === "synchronous" || mode === "backup";
  return rounds ? runRounds(seconds.length, mode === "backup" ? backup : 0, draw, updates, until)
    : runFree(seconds.length, mode === "bounded" ? bound : Infinity, draw, updates, until);
}

// The running step that ends first; of several at once the lowest worker.
function takeFirst(running) {
  let first = 0;
  running.forEach((each, k) => {
    const best = running[first];
    if (each.ended < best.ended || (each.ended === best.ended && each.worker < best.worker)) first = k;
  });
  return running.splice(first, 1)[0];
}

// Each worker goes on by itself, at most `bound` steps ahead of the slowest.
function runFree(workers, bound, draw, updates, until) {
  const steps = [], written = [], running = [], done = Array(workers).fill(0), waiting = new Set(done.keys());
  let now = 0;
  while (written.length < updates && now < until) {
    const slowest = Math.min(...done);
    for (const worker of [...waiting].sort((a, b) => a - b)) {
      if (done[worker] - slowest > bound) continue;
      waiting.delete(worker);
      running.push({ worker, begun: now, ended: now + draw(worker), version: written.length });
    }
    const step = takeFirst(running);
    now = Math.max(now, step.ended);
    steps.push({ ...step, update: written.length, late: false });
    written.push({ at: now, version: step.version, staleness: written.length - step.version, workers: [step.worker] });
    done[step.worker] += 1;
    waiting.add(step.worker);
  }
  return { steps: [...steps, ...running.map((step) => ({ ...step, update: -1, late: false }))], updates: written, end: now };
}

// Rounds that end with the first N - backup gradients of the round's parameters; a late one is dropped.
function runRounds(workers, backup, draw, updates, until) {
  const steps = [], written = [], running = [], wanted = workers - backup;
  let idle = [...Array(workers).keys()], now = 0;
  while (written.length < updates && now < until) {
    const number = written.length, taken = [];
    let at = now;
    while (taken.length < wanted) {
      for (const worker of idle.sort((a, b) => a - b)) running.push({ worker, begun: at, ended: at + draw(worker), version: number });
      idle = [];
      const step = takeFirst(running), late = step.version < number;
      steps.push({ ...step, update: late ? -1 : number, late });
      if (late) { at = Math.max(at, step.ended); idle.push(step.worker); } else { taken.push(step.worker); now = step.ended; }
    }
    written.push({ at: now, version: number, staleness: 0, workers: taken });
    idle = taken;
  }
  return { steps: [...steps, ...running.map((step) => ({ ...step, update: -1, late: false }))], updates: written, end: now };
}

// The loss before each update and after the last.
function descendStale(staleness, rate) {
  const weights = [CURVATURES.map(() => 1)];
  staleness.forEach((stale, update) => {
    const read = weights[update - stale];
    weights.push(weights[update].map((weight, k) => weight - rate * CURVATURES[k] * read[k]));
  });
  return weights.map((each) => each.reduce((sum, weight, k) => sum + (CURVATURES[k] * weight * weight) / 2, 0))
    .map((loss) => (Number.isFinite(loss) ? loss : Infinity));
}
module.exports = { MODES, race, descendStale };
