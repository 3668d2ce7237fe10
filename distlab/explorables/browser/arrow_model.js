// One linear model of two weights, its examples spread over replicas, and what each way to scale
// the loss applies. The divisors are those of distlab.lessons.scaled_updates; a test compares both.

const DIVISORS = {
  "tf.reduce_mean": (own) => own,
  "Keras's loss object": (own, { replicas }) => own * replicas,
  "Keras's loss object / replicas": (own, { replicas }) => own * replicas ** 2,
  "compute_average_loss(written size)": (own, { written }) => written,
  "compute_average_loss(real count)": (own, { examples }) => examples,
  "tf.reduce_sum": () => 1,
};

// How many examples each replica holds: shares rounded up until none are left, as TensorFlow splits.
function splitBatch(examples, replicas) {
  const share = Math.ceil(examples / replicas);
  return [...Array(replicas).keys()].map((k) => Math.min(share, Math.max(0, examples - k * share)));
}

// The gradient of half the squared error at weights [a, b], summed over examples from..to.
function sumGradients({ inputs, targets }, [a, b], from, to) {
  const sum = [0, 0];
  for (let k = from; k < to; k++) {
    const error = a * inputs[k][0] + b * inputs[k][1] - targets[k];
    sum[0] += error * inputs[k][0];
    sum[1] += error * inputs[k][1];
  }
  return sum;
}

// {parts: each replica's own [a, b], update: their sum, wanted: the mean over the batch}.
function findUpdate(data, weights, batch) {
  const divide = DIVISORS[batch.way];
  let from = 0;
  const parts = splitBatch(batch.examples, batch.replicas).map((own) => {
    const sum = sumGradients(data, weights, from, (from += own));
    return own ? sum.map((each) => each / divide(own, batch)) : [0, 0];
  });
  const wanted = sumGradients(data, weights, 0, batch.examples).map((each) => each / batch.examples);
  return { parts, wanted, update: parts.reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0]) };
}

// The ratio of the update to the gradient, and its angle to it in degrees.
function compare([a, b], [c, d]) {
  const along = (a * c + b * d) / (c * c + d * d), across = (b * c - a * d) / (c * c + d * d);
  return { ratio: along, degrees: (Math.atan2(across, along) * 180) / Math.PI };
}

// The weights before each of `steps` steps and after the last: of the replicas, or of one device.
function takeSteps(data, batch, steps, alone = false) {
  const path = [data.start];
  for (let k = 0; k < steps; k++) {
    const { update, wanted } = findUpdate(data, path[k], batch), step = alone ? wanted : update;
    path.push(path[k].map((weight, n) => weight - data.rate * step[n]));
  }
  return path;
}

// The mean loss of the batch at `weights`.
function findLoss({ inputs, targets }, [a, b], examples) {
  let sum = 0;
  for (let k = 0; k < examples; k++) sum += (a * inputs[k][0] + b * inputs[k][1] - targets[k]) ** 2 / 2;
  return sum / examples;
}
module.exports = { DIVISORS, findUpdate, compare, takeSteps, findLoss };
