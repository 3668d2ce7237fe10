// All-reduce step by step, as in utils.collectives and utils.simulate.collective: a test compares
// messages and seconds. A vector is shown as as many slices as there are ranks.

const range = (count) => [...Array(count).keys()];

// [{phase, messages: [{source, destination, from, to, share, adds}]}]: slices `from` to `to`,
// `share` of the vector's bytes; `adds` is whether the receiver adds or replaces.
function listSteps(algorithm, ranks, perNode = 1) {
  const all = { from: 0, to: ranks, share: 1 };
  if (algorithm === "ring") return listRing(range(ranks), ranks);
  if (algorithm === "naive") {
    const others = range(ranks).slice(1);
    return [...others.map((rank) => ({ phase: "gather", messages: [{ source: rank, destination: 0, ...all, adds: true }] })),
      ...others.map((rank) => ({ phase: "broadcast", messages: [{ source: 0, destination: rank, ...all, adds: false }] }))];
  }
  if (algorithm === "recursive-doubling") return listDoubling(ranks, all);
  if (algorithm === "tree") return listTree(ranks, all);
  const nodes = range(Math.ceil(ranks / perNode)).map((k) => k * perNode);
  const inside = (down) => range(perNode).slice(1).map((member) => ({
    phase: down ? "broadcast in node" : "reduce in node",
    messages: nodes.filter((leader) => leader + member < ranks).map((leader) => (
      { source: down ? leader : leader + member, destination: down ? leader + member : leader, ...all, adds: !down })),
  }));
  return [...inside(false), ...listRing(nodes, ranks), ...inside(true)];
}

function listRing(members, ranks) {
  const count = members.length, steps = [];
  const edge = (chunk) => chunk * Math.floor(ranks / count) + Math.min(chunk, ranks % count);
  for (const [phase, ahead] of [["reduce-scatter", 0], ["all-gather", 1]]) {
    for (let turn = 0; turn < count - 1; turn++) {
      steps.push({ phase, messages: members.map((source, place) => {
        const chunk = (((place + ahead - turn) % count) + count) % count;
        return { source, destination: members[(place + 1) % count], from: edge(chunk), to: edge(chunk + 1), share: 1 / count, adds: !ahead };
      }) });
    }
  }
  return steps;
}

function listDoubling(ranks, all) {
  const core = 2 ** Math.floor(Math.log2(ranks)), extra = range(ranks).slice(core), steps = [];
  const fold = (adds) => ({ phase: adds ? "fold" : "unfold", messages: extra.map((rank) => (
    { source: adds ? rank : rank - core, destination: adds ? rank - core : rank, ...all, adds })) });
  if (extra.length) steps.push(fold(true));
  for (let distance = 1; distance < core; distance *= 2) {
    steps.push({ phase: "swap", messages: range(core).map((rank) => ({ source: rank, destination: rank ^ distance, ...all, adds: true })) });
  }
  if (extra.length) steps.push(fold(false));
  return steps;
}

function listTree(ranks, all) {
  const distances = range(Math.ceil(Math.log2(ranks))).map((bit) => 2 ** bit);
  const step = (distance, adds) => ({ phase: adds ? "reduce" : "broadcast",
    messages: range(ranks - distance).filter((rank) => rank % (2 * distance) === 0).map((rank) => (
      { source: adds ? rank + distance : rank, destination: adds ? rank : rank + distance, ...all, adds })) });
  return [...distances.map((distance) => step(distance, true)), ...distances.reverse().map((distance) => step(distance, false))];
}

// Seconds of one step: its slowest message. Ranks of one node talk over `inside` times the speed.
function timeStep({ messages }, { bytes, latency, bandwidth, perNode = 1, inside = 1 }) {
  return Math.max(0, ...messages.map(({ source, destination, share }) => {
    const near = Math.floor(source / perNode) === Math.floor(destination / perNode) ? inside : 1;
    return (latency + (share * bytes) / bandwidth) / near;
  }));
}

// Seconds of all `steps` for vectors of `bytes`, of a network with another size: what a curve needs.
function makeClock(steps, network) {
  const { latency, bandwidth, perNode = 1, inside = 1 } = network;
  const kinds = steps.map(({ messages }) => {
    const found = new Map();
    for (const { source, destination, share } of messages) {
      const near = Math.floor(source / perNode) === Math.floor(destination / perNode) ? inside : 1;
      found.set(`${share} ${near}`, [share, near]);
    }
    return [...found.values()];
  });
  return (bytes) => kinds.reduce((sum, each) =>
    sum + Math.max(0, ...each.map(([share, near]) => (latency + (share * bytes) / bandwidth) / near)), 0);
}

// {seconds, steps, messages, bytes}: in all, and the most messages and bytes that one rank sends.
function findCost(algorithm, network) {
  const steps = listSteps(algorithm, network.ranks, network.perNode);
  const messages = Array(network.ranks).fill(0), bytes = Array(network.ranks).fill(0);
  for (const step of steps) {
    for (const { source, share } of step.messages) { messages[source] += 1; bytes[source] += share * network.bytes; }
  }
  const seconds = steps.reduce((sum, step) => sum + timeStep(step, network), 0);
  return { seconds, steps: steps.length, messages: Math.max(...messages), bytes: Math.max(...bytes) };
}

// held[step][rank][slice]: a bit for each rank whose numbers are in it, after `step` steps; `start` before them.
function listHeld(steps, ranks, start = range(ranks).map((rank) => Array(ranks).fill(2 ** rank))) {
  const held = [start];
  for (const { messages } of steps) {
    const before = held.at(-1), after = before.map((row) => [...row]);
    for (const { source, destination, from, to, adds } of messages) {
      for (let slice = from; slice < to; slice++) {
        after[destination][slice] = adds ? after[destination][slice] | before[source][slice] : before[source][slice];
      }
    }
    held.push(after);
  }
  return held;
}
module.exports = { listSteps, timeStep, makeClock, findCost, listHeld };
