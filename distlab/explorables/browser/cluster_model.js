// The errors of TF_CONFIG, as utils/tf_config finds them: those of one text, and those between several.
// A fault is {where, what, cure} in the linter's own words; tests compare. Warnings, notes and a key that stands
// twice are the linter's alone.

const JOBS = ["chief", "worker", "ps", "evaluator"], KEYS = ["cluster", "task", "environment", "rpc_layer", "session_master", "job"];
const OLD_NAMES = { master: "chief", coordinator: "chief", parameter_server: "ps", server: "ps", eval: "evaluator" };
const OTHER_KEYS = { type: ["job", "job_name", "name"], index: ["id", "task_id", "rank", "task_index"] };
const TASK_EXAMPLE = '"task": {"type": "worker", "index": 0}', CLUSTER_EXAMPLE = '"cluster": {"worker": ["host:2222", …]}';
const LOOPBACK = ["localhost", "127.0.0.1", "::1"], DUMPS = "write json.dumps(config), not str(config)";
const PORT_WORDS = ["port", "<port>", "PORT", "{port}", "$PORT"];  // as documents write it
const HOST = /^([A-Za-z0-9_.-]+|[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.%a-z]*)$/;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isLocal = (host) => LOOPBACK.includes(host.toLowerCase()) || host.startsWith("127.");
const put = (value) => (typeof value === "string" ? `'${value}'` : value === true ? "True" : value === false ? "False" : value === null ? "None"
  : Array.isArray(value) ? `[${value.map(put).join(", ")}]` : isObject(value) ? `{${Object.entries(value).map(([k, v]) => `'${k}': ${put(v)}`).join(", ")}}` : String(value));

// What one text says: {jobs: {job: [address]}, task: {job, index} or null, faults, alone}. `alone`: TensorFlow would train on one machine.
function lintText(text) {
  const faults = [], fault = (where, what, cure) => faults.push({ where, what, cure });
  const value = readObject(text, fault);
  if (!value) return { jobs: {}, task: null, faults, alone: false };
  for (const [key, meaning, example] of [["cluster", "trains alone, without a word", CLUSTER_EXAMPLE], ["task", "cannot tell which it is", TASK_EXAMPLE]]) {
    const near = findNear(key, Object.keys(value).filter((each) => !KEYS.includes(each)));
    if (!(key in value)) fault(key, `is missing: TensorFlow ${meaning}`, near ? `rename '${near}' to '${key}'` : `add ${example}`);
  }
  const jobs = "cluster" in value ? checkCluster(value.cluster, fault) : {}, task = "task" in value ? checkTask(value.task, fault) : null;
  checkAddresses(jobs, task, fault);
  if (Object.keys(jobs).length && task) checkMembership(jobs, task, fault);
  checkRoles(jobs, task, fault);
  const count = Object.values(jobs).flat().length, none = !("cluster" in value) || (isObject(value.cluster) && !Object.keys(value.cluster).length);
  return { jobs, task, faults, alone: none || (count === 1 && !faults.length) };
}

function readObject(text, fault) {
  const trimmed = text.trim(), say = (what, cure) => { fault("TF_CONFIG", what, cure); return null; };
  if (!trimmed) return say("is empty, which TensorFlow cannot read", "unset TF_CONFIG to train on one machine, or write an object");
  let value;
  try { value = JSON.parse(trimmed); } catch {
    if (/[“”‘’]/.test(text)) return say("is not JSON: it has typographic quotes", 'write straight ones: "');
    if (/^'[^]*{[^]*'$|^"[^]*{[^]*"$/.test(trimmed)) return say("is not JSON: the shell's quotes are part of the value", "quote the value once, in the shell only");
    if (text.includes("'")) {
      try { JSON.parse(text.replaceAll("'", '"')); } catch { return say("is not JSON: single quotes round names or addresses", `JSON knows double quotes only; ${DUMPS}`); }
      return say("is not JSON but a Python dict as str() prints it", DUMPS);
    }
    if (/,\s*[\]}]/.test(trimmed)) return say("is not JSON: a comma too many", "take the last comma away");
    return say("is not JSON", trimmed.startsWith("{") ? "close every quote, bracket and brace" : "give the JSON itself, not a file name or a command");
  }
  if (typeof value === "string") return say("is a JSON string, not an object", "call json.dumps once, not twice");
  const kind = Array.isArray(value) ? "list" : value === null ? "NoneType" : typeof value === "boolean" ? "bool" : Number.isInteger(value) ? "int" : "float";
  return isObject(value) ? value : say(`is a JSON ${kind}, not an object`, 'write {"cluster": …, "task": …}');
}

function checkCluster(cluster, fault) {
  if (!isObject(cluster)) fault("cluster", `is ${put(cluster)}, not an object of jobs`, `write ${CLUSTER_EXAMPLE}`);
  else if (!Object.keys(cluster).length) fault("cluster", "lists no task: TensorFlow trains alone", `write ${CLUSTER_EXAMPLE}`);
  const jobs = {};
  for (const [job, told] of isObject(cluster) ? Object.entries(cluster) : []) {
    const where = `cluster.${job}`, numbered = isObject(told) && Object.keys(told).length && Object.keys(told).every((key, k) => key === String(k));
    const listed = numbered ? Object.values(told) : told;  // TensorFlow also takes index -> address
    if (!JOBS.includes(job)) fault(where, `${put(job)} isn't a job that TensorFlow knows`, suggestJob(job));
    if (typeof listed === "string") fault(where, `is one text, ${put(listed)}, not a list`, `write [${put(listed)}]`);
    else if (isObject(listed)) fault(where, "does not list every task from 0 on", 'write a list: ["host:2222", …]');
    else if (!Array.isArray(listed)) fault(where, `is ${put(listed)}, not a list of addresses`, 'write ["host:2222", …]');
    else if (!listed.length) fault(where, "lists no task", "add its addresses or drop the job");
    else if (listed.every((address) => typeof address === "string")) jobs[job] = listed;
    else listed.forEach((each, k) => { if (typeof each !== "string") fault(`${where}[${k}]`, `${put(each)} is no text`, 'write "host:port" in quotes'); });
  }
  return jobs;
}

function checkTask(task, fault) {
  if (!isObject(task)) { fault("task", `is ${put(task)}, not an object`, `write ${TASK_EXAMPLE}`); return null; }
  for (const key of ["type", "index"]) {
    const near = OTHER_KEYS[key].find((each) => each in task) ?? findNear(key, Object.keys(task));
    if (!(key in task)) fault(`task.${key}`, "is missing", near ? `rename '${near}' to '${key}'` : `write ${TASK_EXAMPLE}`);
  }
  const { type: job, index } = task, number = ["number", "string"].includes(typeof index) && /^\s*[+-]?\d+\s*$/.test(index) ? Number(index) : null;
  if ("type" in task && !JOBS.includes(job)) fault("task.type", `${put(job)} isn't a job that TensorFlow knows`, suggestJob(job));
  if ("index" in task) {
    if (number === null) fault("task.index", `${put(index)} is not a whole number`, "write 0, 1, … without quotes");
    else if (number < 0) fault("task.index", `${number} is negative`, "the first task is 0");
    else if (typeof index === "string") fault("task.index", `is ${put(index)}, which TensorFlow converts and your \`index == ${number}\` does not`, `write ${number} without quotes`);
  }
  return typeof job === "string" && number !== null ? { job, index: number } : null;
}

function checkMembership(jobs, { job, index }, fault) {
  if (!JOBS.includes(job)) return;
  const listed = jobs[job]?.length ?? (job === "evaluator" ? 1 : 0), known = Object.keys(jobs).find((each) => JOBS.includes(each));
  if (!listed) fault("task.type", `${put(job)} is not in the cluster, which has ${Object.keys(jobs).join(", ")}`, `add its address${known ? `, or write "type": "${known}"` : ""}`);
  else if (index >= listed) fault("task.index", `${index} is out of range: the cluster has ${listed} ${job} task${listed === 1 ? "" : "s"}`, listed === 1 ? "the only index is 0" : `indexes count from 0: 0 to ${listed - 1}`);
}

function checkRoles(jobs, task, fault) {
  for (const job of ["chief", "evaluator"]) if (jobs[job]?.length > 1) fault(`cluster.${job}`, `lists ${jobs[job].length} tasks: there is one ${job} at most`, "keep one, the rest are workers");
  if ("evaluator" in jobs && "ps" in jobs) fault("cluster.evaluator", "the evaluator is not part of the training cluster: the coordinator waits for every task that is listed", "leave it out: its own task is type evaluator, index 0");
  if ("ps" in jobs && !("worker" in jobs) && task?.job !== "evaluator") fault("cluster", "there is ps and no worker: nobody would compute", 'add "worker" addresses');
}

function checkAddresses(jobs, own, fault) {
  const places = Object.entries(jobs).flatMap(([job, all]) => all.map((address, index) => ({ job, index, address, where: `cluster.${job}[${index}]`, ...splitAddress(address) })));
  for (const { where, address, host, port } of places) checkAddress(where, address, host, port, fault);
  const first = new Map(), remote = places.find(({ host }) => !isLocal(host));
  for (const { job, index, address, where, host, port } of places) {
    const key = `${LOOPBACK.includes(host.toLowerCase()) ? "loopback" : host.toLowerCase()} ${port}`;
    if (PORT_WORDS.includes(port) && first.has(key)) continue;
    if (first.has(key)) fault(where, `${put(address)} is the address of ${first.get(key)} too`, "give each task its own port, or its own host");
    else first.set(key, `${job}:${index}`);
  }
  for (const { job, index, address, where, host } of remote ? places : []) {
    if (isLocal(host) && !(own?.job === job && own.index === index)) fault(where, `${put(address)} is each machine's own, but ${remote.job}:${remote.index} is elsewhere`, "write the host name that the other machines know");
  }
}

function splitAddress(address) {
  const at = address.startsWith("[") ? address.indexOf("]:") + 1 : address.lastIndexOf(":");
  if (address.startsWith("[")) return { host: address.slice(1, at ? at - 1 : address.indexOf("]")), port: at ? address.slice(at + 1) : null };
  return at < 0 ? { host: address, port: null } : { host: address.slice(0, at), port: address.slice(at + 1) };
}

function checkAddress(where, address, host, port, fault) {
  if (address.includes("://")) return fault(where, `${put(address)} has a scheme, ${address.split("://")[0]}://`, `write ${put(address.split("://").slice(1).join("://").replace(/^\/+|\/+$/g, "") || "host:port")}`);
  if (/\s/.test(address)) return fault(where, `${put(address)} has a space in it`, `write ${put(address.replace(/\s/g, ""))}`);
  if (address.includes(",")) return fault(where, `${put(address)} is several addresses in one text`, 'write a list: ["a:2222", "b:2222"]');
  if (address.split(":").length > 2 && !address.startsWith("[")) return fault(where, `${put(address)} has several colons`, "write host:port, an IPv6 host in brackets: [::1]:2222");
  if (!host) fault(where, `${put(address)} names no host`, "write the name under which the other tasks reach it");
  else if (["0.0.0.0", "::"].includes(host)) fault(where, `${host} is where a server listens, not an address that others can reach`, "write this task's own host name or address");
  else if (!HOST.test(host)) fault(where, `${put(host)} is no host name`, "letters, digits, dots and hyphens only");
  if (!port) fault(where, `${put(address)} has no port`, "write host:port");
  else if (PORT_WORDS.includes(port)) return;
  else if (!/^\d+$/.test(port)) fault(where, `the port ${put(port)} is not a number`, "write a number from 1 to 65535");
  else if (port.length > 9 || Number(port) < 1 || Number(port) > 65535) fault(where, `there is no port ${port.slice(0, 12)} for peers to call`, "choose from 1 to 65535");
}

const suggestJob = (job) => {
  const near = typeof job === "string" ? OLD_NAMES[job] ?? findNear(job, JOBS) : null;
  return near ? `did you mean '${near}'?` : `choose from ${JOBS.join(", ")}`;
};

// The choice that shares most letters in the same order, if it shares 70 % of both words' letters.
function findNear(name, choices) {
  const share = (a, b) => {
    let row = Array(b.length + 1).fill(0);
    for (const letter of a) row = row.reduce((next, up, k) => [...next, k === 0 ? 0 : letter === b[k - 1] ? row[k - 1] + 1 : Math.max(up, next[k - 1])], []);
    return (2 * row.at(-1)) / (a.length + b.length);
  };
  const found = choices.map((each) => [share(name.toLowerCase(), each.toLowerCase()), each]).filter(([ratio]) => ratio >= 0.7);
  return found.sort(([a], [b]) => b - a)[0]?.[1];
}

// What is wrong between texts that are right one by one: `configs` is [name, what lintText gave].
function lintTogether(configs) {
  const found = [], fault = (where, what, cure) => found.push({ where, what, cure });
  const known = configs.filter(([, { jobs, task }]) => task && Object.keys(jobs).length && Object.keys(jobs).every((job) => JOBS.includes(job)));
  const members = known.filter(([, { task }]) => task.job !== "evaluator"), claims = new Map();
  for (const [name, config] of members.slice(1)) compareClusters(members[0], [name, config], fault);
  for (const [name, { task }] of known) claims.set(`${task.job}:${task.index}`, [...(claims.get(`${task.job}:${task.index}`) ?? []), name]);
  for (const [task, names] of claims) if (names.length > 1) fault("task", `${names.join(" and ")} are ${names.length > 2 ? "all" : "both"} ${task}`, "give each process an index of its own");
  const listed = new Set(members.flatMap(([, { jobs }]) => JOBS.slice(0, 3).flatMap((job) => (jobs[job] ?? []).map((_, k) => `${job}:${k}`))));
  for (const task of known.length === configs.length ? listed : []) {
    const [job, index] = task.split(":");
    if (!claims.has(task)) fault(task, "is in the cluster, and no configuration here is for it: the others wait", `add one with "task": {"type": "${job}", "index": ${index}}`);
  }
  return found;
}

function compareClusters([first, { jobs: mine }], [name, { jobs: theirs }], fault) {
  const cure = "give every task the same cluster, in the same order", order = JOBS.filter((job) => job in mine);
  for (const job of [...order, ...JOBS.filter((each) => each in theirs && !order.includes(each))]) {
    const here = mine[job] ?? [], there = theirs[job] ?? [], k = here.findIndex((address, n) => address !== there[n]);
    if (here.length !== there.length) return fault(`cluster.${job}`, `${first} lists ${here.length} ${job} tasks, ${name} ${there.length}`, cure);
    if (k >= 0) return fault(`cluster.${job}[${k}]`, `${first} has ${put(here[k])}, ${name} ${put(there[k])}`, cure);
  }
}

// Tasks on a machine that isn't theirs: [{host, where, what, cure}]. The linter can't see it, as it doesn't know where a TF_CONFIG is set.
// An IP address may be any machine's.
function findMisplaced(configs) {
  const isOn = (host, machine) => isLocal(host) || /^[\d.]+$|:/.test(host) || host.split(".")[0].toLowerCase() === machine;
  return configs.flatMap(([machine, { jobs, task: { job, index } }]) => {
    const places = Object.entries(jobs).flatMap(([name, all]) => all.map((address, k) => ({ name, k, ...splitAddress(address) })));
    const claimed = places.find(({ name, k }) => name === job && k === index), own = places.find(({ host }) => isOn(host, machine));
    if (!claimed || isOn(claimed.host, machine)) return [];
    const cure = !own ? `list ${machine}'s own address` : own.name === job ? `write index ${own.k}` : `write "type": "${own.name}", "index": ${own.k}`;
    return [{ host: machine, where: "task", what: `${job}:${index} lives on ${claimed.host}, and this is ${machine}`, cure }];
  });
}
module.exports = { lintText, lintTogether, findMisplaced };
