// Pipeline schedules and their replay, as in utils.schedules and utils.simulate.pipeline:
// a test runs both on the same random sizes. An operation is {kind, micro, chunk}.

const SCHEDULES = ["gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-h2"];

const range = (count) => [...Array(count).keys()];
const list = (kind, micros) => range(micros).map((micro) => ({ kind, micro, chunk: 0 }));

function listByGroup(kind, stages, micros, chunks) {
  const found = [];
  for (let first = 0; first < micros; first += stages) {
    for (const chunk of chunks) {
      for (let micro = first; micro < Math.min(first + stages, micros); micro++) found.push({ kind, micro, chunk });
    }
  }
  return found;
}

function alternate(forward, backward, ahead) {
  const order = forward.slice(0, ahead);
  backward.forEach((operation, place) => {
    order.push(operation, ...forward.slice(ahead + place, ahead + place + 1));
  });
  return order;
}

// 1F1B with each W put off until its memory is wanted (zero bubble).
function deferWeights(micros, ahead, mostLive) {
  const [forward, backward, weight] = ["F", "B", "W"].map((kind) => list(kind, micros));
  const order = forward.slice(0, ahead);
  let live = order.length, done = 0;
  backward.forEach((operation, place) => {
    order.push(operation);
    const coming = forward.slice(ahead + place, ahead + place + 1);
    if (live === mostLive || !coming.length) { order.push(weight[done++]); live -= 1; }
    order.push(...coming);
    live += coming.length;
  });
  return [...order, ...weight.slice(done)];
}

// What is wrong with the sizes, in words, or "".
function findFault(name, stages, micros, chunks) {
  if (name !== "interleaved-1f1b" || chunks === 1 || micros % stages === 0) return "";
  return `Interleaved 1F1B takes micro-batches in groups of ${stages}, one for each stage: choose a multiple of ${stages}.`;
}

// orders[stage] of one of SCHEDULES; `chunks` is for interleaved 1F1B.
function makeSchedule(name, stages, micros, chunks = 2) {
  const forward = list("F", micros), backward = list("BW", micros);
  const own = name === "interleaved-1f1b" ? chunks : 1;
  const makers = {
    gpipe: () => [...forward, ...[...backward].reverse()],
    "1f1b": (stage) => alternate(forward, backward, stages - stage),
    "interleaved-1f1b": (stage) => {
      const ahead = own > 1 ? (own - 1) * stages + 2 * (stages - stage - 1) + 1 : stages - stage;
      return alternate(listByGroup("F", stages, micros, range(own)),
        listByGroup("BW", stages, micros, range(own).reverse()), ahead);
    },
    "zb-h1": (stage) => deferWeights(micros, stages - stage, stages),
    "zb-h2": (stage) => deferWeights(micros, 2 * (stages - stage) - 1, 2 * stages - 1),
  };
  return { name, micros, chunks: own, orders: range(stages).map(makers[name]) };
}

// Run a schedule: each operation as early as it can be. `times` are {forward, backward, hop}, of one
// whole stage; the backward pass is half for inputs, half for weights. Returns the operations as
// {stage, place, kind, micro, chunk, start, end}, and what the run wastes and keeps.
// Throws where stages wait for one another for ever, unless `schedule.wrong` says so: then `stuck` lists
// what each of them waits to do, and from when.
function runSchedule(schedule, { forward, backward, hop }) {
  const { orders, chunks } = schedule, stages = orders.length;
  const lengths = { F: forward, B: backward / 2, W: backward / 2, BW: backward };
  const ends = new Map(), next = orders.map(() => 0), free = orders.map(() => 0), done = [];
  const name = (way, part, micro) => `${way} ${part} ${micro}`;
  const find = ({ kind, micro, chunk }, stage) => {
    const part = chunk * stages + stage;
    if (kind === "F") return part ? [name("F", part - 1, micro)] : [];
    return kind === "W" || part === stages * chunks - 1 ? [] : [name("B", part + 1, micro)];
  };
  for (let moved = true; moved;) {
    moved = false;
    orders.forEach((order, stage) => {
      for (; next[stage] < order.length; next[stage]++) {
        const operation = order[next[stage]], [need] = find(operation, stage);
        if (need && !ends.has(need)) break;
        const lag = stages > 1 ? hop : 0;
        const start = Math.max(free[stage], need ? ends.get(need) + lag : 0);
        const end = start + lengths[operation.kind] / chunks;
        free[stage] = end;
        if (operation.kind !== "W") ends.set(name(operation.kind === "F" ? "F" : "B", operation.chunk * stages + stage, operation.micro), end);
        done.push({ ...operation, stage, place: next[stage], start, end });
        moved = true;
      }
    });
  }
  const waits = orders.flatMap((order, stage) => order.slice(next[stage], next[stage] + 1).map((operation) => (
    { ...operation, stage, place: next[stage], start: free[stage], end: free[stage] + lengths[operation.kind] / chunks })));
  if (waits.length && !schedule.wrong) throw new Error("stages wait for one another for ever");
  return { ...summarize(schedule, done), stuck: waits };
}

function summarize({ orders, chunks }, done) {
  const lanes = orders.map((_, stage) => done.filter((each) => each.stage === stage));
  const firsts = lanes.map((lane) => lane[0]?.start ?? 0);
  const spans = lanes.map((lane, stage) => (lane.at(-1)?.end ?? 0) - firsts[stage]);
  const busy = lanes.map((lane) => lane.reduce((sum, each) => sum + each.end - each.start, 0));
  const span = Math.max(...spans, 1e-9);
  const kept = lanes.map((lane) => countKept(lane, chunks));
  return {
    done, firsts, span, kept,
    makespan: Math.max(1, ...done.map((each) => each.end)),
    bubble: Math.max(0, 1 - busy.reduce((a, b) => a + b) / busy.length / span),
    peaks: kept.map((steps) => Math.max(...steps.map(([, count]) => count))),
  };
}

// [[time, micro-batches kept from then on]] of one stage: from the start of F to the end of W.
function countKept(lane, chunks) {
  const steps = [[0, 0]];
  let count = 0;
  for (const { kind, start, end } of lane) {
    if (kind === "F") steps.push([start, ++count / chunks]);
    else if (kind !== "B") steps.push([end, --count / chunks]);
  }
  return steps;
}
module.exports = { SCHEDULES, findFault, makeSchedule, runSchedule };
