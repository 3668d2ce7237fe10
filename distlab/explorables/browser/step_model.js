// One data-parallel step with buckets, as in utils.simulate.step: a test runs both on the same
// random numbers. Seconds and bytes; `bandwidth` is in bytes a second.

const ringSeconds = (workers, bytes, { latency, bandwidth }) =>
  2 * (workers - 1) * (latency + bytes / workers / bandwidth);

// When each bucket fills, is ready to leave, leaves and has arrived: [{size, from, full, ready, start, end}],
// and what the step takes.
function simulateStep(options) {
  const { forward, backward, update, gradients, bucket, workers, overlap } = options;
  const compute = forward + backward, buckets = [], count = Math.ceil(gradients / bucket);
  let free = 0, communication = 0;
  for (let k = 0; k < count; k++) {
    const done = Math.min(gradients, (k + 1) * bucket), size = done - k * bucket;
    const full = forward + (backward * done) / gradients, ready = overlap ? full : compute;
    const seconds = ringSeconds(workers, size, options), start = Math.max(free, ready);
    free = start + seconds;
    communication += seconds;
    buckets.push({ number: k, size, from: forward + (backward * k * bucket) / gradients, full, ready, start, end: free });
  }
  const reduced = Math.max(compute, free), step = reduced + update;
  return { buckets, compute, communication, reduced, step, exposed: reduced - compute, efficiency: (compute + update) / step };
}

// The seconds that are not hidden, for each bucket size of `sizes`.
const listWaits = (options, sizes) => sizes.map((bucket) => simulateStep({ ...options, bucket }).exposed);
module.exports = { simulateStep, listWaits };
