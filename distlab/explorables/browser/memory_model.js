// Bytes on each device and on the wires, as in utils.simulate.memory and utils.simulate.transformer:
// a test compares them on the same random choices.

const EACH = { mixed: { weights: 2, gradients: 2, optimizer: 12, number: 2 }, float32: { weights: 4, gradients: 4, optimizer: 8, number: 4 } };

function findShape(parameters) {
  const layers = (parameters / (12 * 128 ** 2)) ** (1 / 3);
  return { layers, width: 128 * layers };
}

// Attention's scores count unless FlashAttention leaves them out; sequence parallelism splits what the layer norms keep.
function findActivationBytes({ layers, width }, { sequence, batch, tensor, number, scores, sequenceParallel }) {
  const split = 12 + (scores ? (2 * sequence) / 128 : 0), norms = sequenceParallel ? 4 / tensor : 4;
  return layers * sequence * batch * width * number * (split / tensor + norms);
}

// What a device of pipeline stage `place` holds: {weights, gradients, optimizer, activations}.
function findDevice(options, place) {
  const { parameters, data, tensor, pipeline, zero, recompute, precision, micros } = options;
  const each = EACH[precision], shape = findShape(parameters), own = parameters / (tensor * pipeline);
  const share = (from) => (zero >= from ? 1 / data : 1);
  const kept = Math.min(micros, pipeline - place) / pipeline;
  const again = recompute ? Math.min(1, 2 / Math.sqrt(Math.max(1, Math.round(shape.layers / pipeline)))) : 1;
  return {
    weights: own * each.weights * share(3),
    gradients: own * each.gradients * share(2),
    optimizer: own * each.optimizer * share(1),
    activations: findActivationBytes(shape, { ...options, number: each.number }) * kept * again,
  };
}

// What a device sends in a step: {data, tensor, pipeline}.
function findWires({ parameters, sequence, batch, micros, data, tensor, pipeline, zero, recompute, precision }) {
  const { number } = EACH[precision], shape = findShape(parameters);
  const output = sequence * batch * shape.width * number, ring = (ranks) => (2 * (ranks - 1)) / ranks;
  return {
    data: ring(data) * (parameters / (tensor * pipeline)) * number * (zero === 3 ? 1.5 : 1),
    tensor: ring(tensor) * output * (recompute ? 6 : 4) * (shape.layers / pipeline) * micros,
    pipeline: pipeline > 1 ? 2 * output * micros : 0,
  };
}
module.exports = { findShape, findDevice, findWires };
