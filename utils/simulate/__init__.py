"""Predictors of time, memory and cost, with published measurements next to them.

- `collective`: what an all-reduce costs on links that you describe: a model with inputs, not a
  table
- `comparisons`: published runs next to the simulators' predictions for them
- `failures`: how often to save: what checkpoints cost, and what a failure loses
- `input`: what an input pipeline delivers, and when: every element followed from the file to the
  step
- `layouts`: one training step of a Transformer on many devices, cut in any of six ways: memory and
  seconds
- `llm_foundry`: the runs of llm-foundry's benchmark page as the planner's input, and the numbers
  fitted to them
- `machines`: known machines as data: their public specifications, with source and date
- `measured`: measured all-reduces: read from nccl-tests' output or a CSV,
  interpolated
- `memory`: bytes on each device: weights, gradients, optimizer state and activations
- `parameter_server`: workers and parameter servers on a clock: steps/s, and how stale the
  updates are
- `pipeline`: a pipeline schedule's time, its idle stages, and the memory that it
  needs
- `planner`: a run of a Transformer, planned: the best layouts of all, hours, cost, MFU, and why
- `questions`: the simulators as questions: the inputs of each one, and its answer
- `step`: one data-parallel training step: compute, all-reduce that overlaps it, and the slowest
  worker
- `stragglers`: how long synchronous steps wait for their slowest worker
- `transformer`: a Transformer in numbers: its shape, FLOPs, memory traffic, and the activations
  that it keeps
- `units`: numbers as people write and read them: "400Gb/s", "5us", "1.3e9"; 0.00125 s is 1.25 ms
- `published`: published measurements to compare the simulators with
"""
