const { check } = require("./compare.js");
const { makeSchedule, runSchedule } = require("../../distlab/explorables/browser/schedule_model.js");

check("schedules", ([name, stages, micros, chunks, times]) => {
  const { bubble, peaks, done } = runSchedule(makeSchedule(name, stages, micros, chunks), times);
  done.sort((a, b) => a.stage - b.stage || a.place - b.place);
  const blocks = done.map((each) => [each.stage, each.place, each.kind, each.micro, each.chunk]);
  return { bubble, peaks, blocks, ends: done.map((each) => each.end) };
});
