const { check } = require("./compare.js");
const { findDevice, findWires } = require("../../distlab/explorables/browser/memory_model.js");

check("devices", (options) => ({ held: findDevice(options, options.stage), wires: findWires(options) }));
