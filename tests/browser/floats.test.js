const { check } = require("./compare.js");
const { findLost, roundFloat } = require("../../distlab/explorables/browser/floats_model.js");

check("rounded", (value) => ["float32", "bfloat16", "float16"].map((type) => roundFloat(type, value)), { relative: 0, absolute: 0 });
check("lost", ([bins, shift]) => findLost(bins, "float16", shift));
