// The charts of explorers: bars, lines, spans of time, a batch that is cut, small images. Each is
// {svg, update(glider, chart, width)}; the chart is what distlab/figures gives its pictures as plain data.
const { HALO, clamp, color, draw, inkOn, join, linear, logarithmic, replica, sayCount, sayNumber, ticks } = require("./core.js");

// A name's color follows the idea that the chart gives it (`chart.ideas`), else its place.
const ORDER = ["forward", "backward", "all-reduce", "variables", "data", "optimizer", "wait"];
const ideaOf = (chart, name, place) => chart.ideas?.[name] ?? ORDER[place % ORDER.length];
const wide = (text) => 7 * String(text).length;
const most = (items, measure) => Math.max(0, ...items.map(measure));

const CHARTS = { bars: makeBars, lines: makeLines, spans: makeSpans, cut: makeCut, images: makeImages, strip: makeStrip, map: makeMap };

function makeSvg(...names) {
  const layers = Object.fromEntries(names.map((name) => [name, draw("g")]));
  return { svg: draw("svg", { role: "img" }, ...Object.values(layers)), layers };
}

function setSize(glider, svg, width, height) {
  glider.to(svg, { height, viewBox: `0 0 ${width} ${height}` }, 0);
}

// Words: [{id, x, y, text, anchor, style}]
function write(glider, layer, words) {
  join(glider, layer, words, { key: (d) => d.id, tag: "text", text: (d) => d.text,
    end: (d) => ({ x: d.x, y: d.y, "text-anchor": d.anchor ?? "start", style: d.style ?? null }) });
}

// ---- bars, and a picture left of them

function makeBars() {
  const { svg, layers } = makeSvg("image", "bars", "limit", "words");
  return { svg, update(glider, chart, width) {
    const groups = chart.groups, rows = groups.flatMap(([, bars]) => bars), names = [...new Set(rows.map(([name]) => name))];
    const side = chart.image ? Math.min(224, width * 0.34) : 0, say = (value) => `${sayNumber(value)} ${chart.unit}`.replace(" %", "%");
    const start = side + (side ? 18 : 0), above = most(names, wide) > 0.4 * (width - start);  // a name above its bar, or left of it
    const left = start + (above ? 0 : 1.15 * most(names, wide) + 14), right = most(rows, ([, value]) => 1.2 * wide(say(value))) + 14;
    const high = chart.most ?? (Math.max(most(rows, ([, value]) => value), chart.limit?.[1] ?? 0) || 1), scale = linear([0, high], [0, Math.max(30, width - left - right)]);
    const bars = [], words = [], line = left + scale(chart.limit?.[1] ?? -1e9), clear = (x, text) => (line > x - 4 && line < x + 1.2 * wide(text) ? line + 8 : x);  // a number stands clear of the limit
    let y = chart.limit ? 24 : 4;
    groups.forEach(([group, own], g) => {
      if (group) { words.push({ id: `head ${g}`, x: side, y: y + 16, text: group, style: "font-weight: 600; font-size: 13px" }); y += 24; }
      for (const [name, value] of own) {
        const long = Math.max(0, scale(value)), idea = name === chart.wrong ? "over" : chart.ideas && !chart.ideas[name] ? "ink" : ideaOf(chart, name, groups.length > 1 ? names.indexOf(name) : 0);
        if (above) y += 17;
        const style = `font-size: 13px; ${HALO}${name === chart.bold ? "; font-weight: 700" : ""}`;
        bars.push({ id: `${g} ${name}`, x: left, y: y + 4, long, idea });
        words.push({ id: `name ${g} ${name}`, x: above ? left : left - 10, y: above ? y - 2 : y + 19, anchor: above ? "start" : "end", text: name, style },
          { id: `value ${g} ${name}`, x: clear(left + long + 7, say(value)), y: y + 19, text: say(value), style: `font-weight: 600; font-size: 13px; ${HALO}` });
        y += 29;
      }
      y += 8;
    });
    setSize(glider, svg, width, Math.max(y, side + 8));
    const limits = chart.limit ? [{ text: chart.limit[0], at: line }] : [];
    for (const { text, at } of limits) words.push({ id: "limit", x: clamp(at, 3.5 * text.length, width - 3.5 * text.length), y: 14, anchor: "middle", text, style: `font-weight: 600; font-size: 13px; fill: ${color("over")}` });
    join(glider, layers.limit, limits, { key: (d) => d.text, tag: "line", end: (d) => ({ x1: d.at, x2: d.at, y1: 20, y2: y - 8, stroke: color("over"), "stroke-width": 2.5, "stroke-dasharray": "7 4" }) });
    join(glider, layers.image, chart.image ? [chart.image] : [], { key: (d) => d, tag: "image",
      end: (d) => ({ href: d, x: 0, y: 4, width: side, height: side, style: "image-rendering: pixelated" }) });
    join(glider, layers.bars, bars, { key: (d) => d.id, tag: "rect", start: () => ({ width: 0 }),
      end: (d) => ({ x: d.x, y: d.y, width: d.long, height: 21, rx: 3, fill: color(d.idea) }) });
    write(glider, layers.words, words);
  } };
}

// ---- lines

const HEIGHT = 320, TOP = 26, BOTTOM = 46;

function makeLines() {
  const { svg, layers } = makeSvg("grid", "lines", "keys", "marks", "words");
  return { svg, update(glider, chart, width) {
    const lines = chart.lines.map(([name, xs, ys], k) => ({ name, k, idea: ideaOf(chart, name, k), points: xs.map((x, n) => [x, ys[n]]) }));
    const beside = width > 620, left = 52, right = beside ? Math.min(width * 0.34, most(lines, (d) => wide(d.name)) + 22) : 14;
    const spots = chart.marks.filter(([, at]) => Array.isArray(at)).map(([, at]) => at), all = [...lines.flatMap((d) => d.points), ...spots];
    const series = spots.length > 2 ? chart.marks.filter(([name]) => name.trim()).map(([name], k) => ({ name, k, idea: chart.ideas[name], y: TOP + 6 + 18 * (k + (beside ? 0 : lines.length)) })) : [];
    const top = TOP + 18 * ((beside ? 0 : lines.length) + series.length);
    const axis = (which, log, range) => {
      const values = all.map((point) => point[which]), low = which === 1 ? chart.low ?? Math.min(...values) : Math.min(...values), high = Math.max(...values);
      const room = which === 1 && high === low ? Math.abs(high) * 0.5 || 1 : 0, ends = [low - room, high + room];
      return { at: (log ? logarithmic : linear)(ends, range), ticks: log ? listLogTicks(...ends) : ticks(...ends, 6) };
    };
    const x = axis(0, chart.logX, [left, width - right]), y = axis(1, chart.logY, [HEIGHT - BOTTOM - (spots.length ? 20 : 0), top]);
    setSize(glider, svg, width, HEIGHT);
    join(glider, layers.grid, y.ticks, { key: (d) => d, tag: "path", end: (d) => ({ d: `M ${left} ${y.at(d)} L ${width - right} ${y.at(d)}`, stroke: color("line") }) });
    const walk = (points) => points.map(([a, b], k) => `${k ? "L" : "M"} ${x.at(a).toFixed(1)} ${y.at(b).toFixed(1)}`).join(" ");
    join(glider, layers.lines, lines, { key: (d) => d.k, tag: "path",
      end: (d) => ({ d: walk(d.points), fill: "none", stroke: color(d.idea), "stroke-width": d.idea === "wait" ? 1.6 : 2.8, "stroke-dasharray": d.idea === "wait" ? "6 4" : null }) });
    const marks = chart.marks.map(([name, at], k) => ({ name, k, a: x.at(Array.isArray(at) ? at[0] : at), b: Array.isArray(at) ? y.at(at[1]) : null }));
    const keys = beside ? [] : lines.map((d, k) => ({ idea: d.idea, k, y: TOP + 6 + 18 * k }));  // a dash before each name
    const dot = (x, y) => `M ${x - 6} ${y} a 6 6 0 1 0 12 0 a 6 6 0 1 0 -12 0`;
    join(glider, layers.keys, keys, { key: (d) => d.k, tag: "path", end: (d) => ({ d: `M ${left + 2} ${d.y} h 18`, stroke: color(d.idea), "stroke-width": 4 }) });
    join(glider, layers.marks, [...marks, ...series.map((d) => ({ ...d, k: `key ${d.k}`, a: left + 11, b: d.y }))], { key: (d) => d.k, tag: "path",
      end: (d) => ({ d: d.b === null ? `M ${d.a} ${top} L ${d.a} ${HEIGHT - BOTTOM}` : dot(d.a, d.b),
        fill: d.b === null ? "none" : color(chart.ideas?.[d.name] ?? "data"), stroke: color("ink"), "stroke-width": 1.4, "stroke-dasharray": d.b === null ? "3 3" : null }) });
    write(glider, layers.words, [...writeAxes(chart, x, y, { left, right, width }), ...nameLines(lines, y, { beside, left, right, width }),
      ...series.map((d) => ({ id: `series ${d.k}`, x: left + 28, y: d.y + 4, text: d.name, style: "font-weight: 600; font-size: 13px" })),
      ...marks.filter((d) => !series.length || d.b === null).map((d) => ({ id: `mark ${d.k}`, x: clamp(d.a + 9, left, width - (d.b === null || !beside ? 0 : right) - wide(d.name)), y: d.b === null ? top + 12 + 16 * d.k : d.b + 20, text: d.name, style: `font-weight: 600; ${HALO}` }))]);
  } };
}

function listLogTicks(low, high) {
  const tens = Array.from({ length: 31 }, (_, k) => 10 ** (k - 15)), many = Math.log10(high / low) < 2.5;
  const found = tens.flatMap((ten) => (many ? [1, 2, 5] : [1]).map((n) => Number((n * ten).toPrecision(1)))).filter((n) => n >= low * 0.999 && n <= high * 1.001);
  return found.length > 8 ? found.filter((_, k) => k % Math.ceil(found.length / 8) === 0) : found;
}

function writeAxes(chart, x, y, { left, right, width }) {
  const scale = width < 400 ? " (log)" : " (log scale)", name = chart.xLabel + (chart.logX ? scale : "");
  return [...x.ticks.map((n) => ({ id: `x ${n}`, x: x.at(n), y: HEIGHT - BOTTOM + 18, anchor: "middle", text: sayNumber(n) })),
    ...y.ticks.map((n) => ({ id: `y ${n}`, x: left - 8, y: y.at(n) + 4, anchor: "end", text: sayNumber(n) })),
    { id: "x name", x: Math.min((left + width - right) / 2, width - 0.45 * wide(name)), y: HEIGHT - 8, anchor: "middle", text: name },
    { id: "y name", x: 0, y: 14, text: chart.yLabel + (chart.logY ? scale : "") }];
}

// Names at the lines' ends, moved apart where they would meet; on a narrow page above the plot.
function nameLines(lines, y, { beside, left, right, width }) {
  const style = `font-weight: 600; font-size: 13px`;
  if (!beside) return lines.map((d, k) => ({ id: `line ${d.k}`, x: left + 28, y: TOP + 10 + 18 * k, text: d.name, style }));
  const order = lines.map((d) => ({ ...d, at: y.at(d.points.at(-1)[1]) })).sort((a, b) => a.at - b.at);
  order.forEach((d, k) => { if (k) d.at = Math.max(d.at, order[k - 1].at + 16); });
  const below = Math.max(0, order.at(-1).at + 4 - (HEIGHT - BOTTOM));
  return order.map((d) => ({ id: `line ${d.k}`, x: width - right + 8, y: d.at + 4 - below, text: d.name, style }));
}

// ---- spans of time in lanes

function makeSpans() {
  const { svg, layers } = makeSvg("grid", "spans", "words");
  return { svg, update(glider, chart, width) {
    const lanes = [...new Set(chart.rows.map(([lane]) => lane))], kinds = [...new Set(chart.rows.map((row) => row[4]))];
    const left = most(lanes, wide) + 12, key = placeKey(chart, kinds, width), start = key.at(-1).y + 24, tall = 28, seen = {}, group = (lane) => lane.split(", ").slice(0, -1).join();
    const tops = lanes.map((_, k) => start + tall * k + 12 * lanes.filter((lane, n) => n && n <= k && group(lane) !== group(lanes[n - 1])).length), top = start, bottom = tops.at(-1) + tall;  // groups stand apart
    const begin = Math.min(...chart.rows.map((row) => row[1])), end = Math.max(...chart.rows.map((row) => row[2]));
    const x = linear([begin, end], [left, width - 12]), counts = chart.rows.every((row) => Number.isInteger(row[1]) && Number.isInteger(row[2]));
    const at = ticks(begin, end, width < 520 ? 4 : 8).filter((tick) => !counts || Number.isInteger(tick));
    const spans = chart.rows.map(([lane, from, to, text, kind]) => {
      const id = `${lane} ${kind} ${(seen[lane + kind] = (seen[lane + kind] ?? 0) + 1)}`;
      return { id, text, idea: ideaOf(chart, kind, kinds.indexOf(kind)), from: x(from), wide: x(to) - x(from), y: tops[lanes.indexOf(lane)] };
    });
    setSize(glider, svg, width, bottom + 26);
    join(glider, layers.grid, at, { key: (d) => d, tag: "path", end: (d) => ({ d: `M ${x(d)} ${top} L ${x(d)} ${bottom}`, stroke: color("line") }) });
    join(glider, layers.spans, [...spans, ...key.map((d) => ({ id: `key ${d.kind}`, key: d }))], { key: (d) => d.id, tag: "rect",
      end: (d) => (d.key ? { x: d.key.x, y: d.key.y, width: 14, height: 14, rx: 3, fill: color(d.key.idea) }
        : { x: d.from + 0.75, y: d.y + 3, width: Math.max(1, d.wide - 1.5), height: tall - 6, rx: 3, fill: color(d.idea) }) });
    write(glider, layers.words, [...lanes.map((lane, k) => ({ id: `lane ${lane}`, x: left - 10, y: tops[k] + 19, anchor: "end", text: lane })),
      ...key.map((d) => ({ id: `key ${d.kind}`, x: d.x + 20, y: d.y + 12, text: d.kind })),
      ...at.map((n) => ({ n, text: `${sayNumber(n)}${n === at.at(-1) ? ` ${chart.unit}` : ""}` }))
        .map(({ n, text }) => ({ id: `x ${n}`, x: Math.min(x(n), width - 0.6 * wide(text)), y: bottom + 18, anchor: "middle", text })),
      ...spans.filter((d) => d.text && d.wide > wide(d.text) + 4).map((d) => ({ id: d.id, x: d.from + d.wide / 2, y: d.y + 19, anchor: "middle", text: d.text, style: `fill: ${inkOn(d.idea)}; font-weight: 600` }))]);
  } };
}

// Where each kind's color is told: one after the other, in as many lines as they need.
function placeKey(chart, kinds, width) {
  let x = 0, y = 4;
  return kinds.map((kind, k) => {
    if (x && x + wide(kind) + 20 > width) { x = 0; y += 20; }
    const here = { kind, x, y, idea: ideaOf(chart, kind, k) };
    x += wide(kind) + 38;
    return here;
  });
}

// ---- a batch, cut for workers and their replicas

function makeCut() {
  const { svg, layers } = makeSvg("boxes", "words");
  return { svg, update(glider, chart, width) {
    const pieces = chart.pieces.map((sizes) => sizes.map(Number)), sum = (all) => all.reduce((a, b) => a + b, 0), total = sum(pieces.map(sum));
    const every = pieces.flat(), high = Math.max(...every), uneven = high > Math.min(...every), gap = pieces.length > 8 ? 3 : 10;
    const own = (width - gap * (pieces.length - 1)) / pieces.length, boxes = [{ id: "all", x: 0, y: 2, wide: width, tall: 36, fill: color("data"), ink: color("on-data"), text: `global batch: ${sayNumber(total, 7)} examples` }];
    pieces.forEach((sizes, k) => {
      const x = k * (own + gap), each = own / sizes.length;
      boxes.push({ id: `worker ${k}`, x, y: 62, wide: own, tall: 36, fill: replica(k), ink: color("on-replica"), text: pick(own, `worker ${k}: ${sum(sizes)}`, sum(sizes)) });
      sizes.forEach((size, r) => boxes.push({ id: `replica ${k} ${r}`, x: x + r * each + 1, y: 122, wide: Math.max(1, each - 2), tall: 34, fill: size ? replica(k) : "none",
        edge: uneven && size === high ? color("ink") : replica(k), dashed: !size, opacity: size ? 1 : 0.8, ink: size ? color("on-replica") : color("ink"), text: pick(each, size) }));
    });
    setSize(glider, svg, width, chart.uneven ? 186 : 164);
    join(glider, layers.boxes, boxes, { key: (d) => d.id, tag: "rect",
      end: (d) => ({ x: d.x, y: d.y, width: d.wide, height: d.tall, rx: 4, fill: d.fill, stroke: d.edge ?? d.fill, "stroke-width": d.edge === color("ink") ? 2.4 : 1, "stroke-dasharray": d.dashed ? "3 2" : null }) });
    const words = boxes.filter((d) => d.text !== "").map((d) => ({ id: d.id, x: d.x + d.wide / 2, y: d.y + d.tall / 2 + 5, anchor: "middle", text: d.text, style: `font-weight: 600; font-size: 13px; fill: ${d.ink}` }));
    const rows = ["one part for each worker", "and of it one for each of its replicas"].map((text, k) => ({ id: text, x: 0, y: 56 + 60 * k, text }));
    write(glider, layers.words, [...words, ...rows, ...(chart.uneven ? [{ id: "uneven", x: 0, y: 178, text: chart.uneven }] : [])]);
  } };
}

// ---- a bar for each of many answers: upwards a right one, downwards a wrong one; one is marked

function makeStrip() {
  const { svg, layers } = makeSvg("bars", "mark", "words");
  return { svg, update(glider, chart, width) {
    const shares = chart.shares.split(" ").map(Number), left = 48, each = (width - left) / shares.length, middle = 72, tall = 58;
    setSize(glider, svg, width, 148);
    const walk = (sign) => shares.map((share, k) => `M ${(left + (k + 0.4) * each).toFixed(1)} ${middle} v ${(-(sign * share > 0 ? share : 0) * tall / 100).toFixed(1)}`).join(" ");
    join(glider, layers.bars, [["forward", 1], ["over", -1]], { key: ([idea]) => idea, tag: "path",
      end: ([idea, sign]) => ({ d: walk(sign), stroke: color(idea), "stroke-width": Math.max(1, each * 0.8) }) });
    join(glider, layers.mark, [chart.at], { key: () => "at", tag: "path", end: (at) => ({ d: `M ${left + (at + 0.4) * each} 8 V 138`, stroke: color("ink"), "stroke-width": 2.5 }) });
    write(glider, layers.words, [["100 %", 18], ["right", middle - 18], ["wrong", middle + 28], ["100 %", 134]].map(([text, y], k) => ({ id: k, x: left - 8, y, anchor: "end", text })));
  } };
}

// ---- what is advised where: cells in the colors of their names, and a mark where one is; a click goes there

function makeMap() {
  const { svg, layers } = makeSvg("cells", "mark", "words");
  let place = () => null;
  return { svg, pick: (event) => place(event), update(glider, chart, width) {
    const across = 13, left = 92, top = 4, each = (width - left) / across, tall = 20, count = chart.cells.length / across;
    const cells = [...chart.cells].map((name, k) => ({ name: chart.names[name], k, row: Math.floor(k / across), column: k % across }));
    place = ({ clientX, clientY }) => {
      const box = svg.getBoundingClientRect(), at = (way, start, size) => clamp(Math.floor(((way * width) / box.width - start) / size), 0, across - 1);
      return { devices: at(clientX - box.left, left, each), parameters: 12 - at(clientY - box.top, top, tall) / 2 };
    };
    const names = [...new Set(cells.map((d) => d.name))], spots = names.map((name) => findSpot(cells.filter((d) => d.name === name && d.row !== chart.at[0]), each, wide(name)));
    const key = placeKey(chart, names.filter((_, k) => !spots[k]), width), low = top + tall * count + 40;
    setSize(glider, svg, width, key.length ? low + key.at(-1).y + 22 : low);
    const box = (d) => `M ${(left + d.column * each).toFixed(1)} ${top + d.row * tall} h ${(each - 1).toFixed(1)} v ${tall - 1} h ${(1 - each).toFixed(1)} z`;
    const regions = names.map((name) => ({ name, d: cells.filter((d) => d.name === name).map(box).join(" ") + key.filter(({ kind }) => kind === name).map((d) => ` M ${d.x} ${low + d.y} h 14 v 14 h -14 z`).join("") }));
    join(glider, layers.cells, regions, { key: (d) => d.name, tag: "path", seconds: 0, end: (d) => ({ d: d.d, fill: color(chart.ideas[d.name]) }) });
    join(glider, layers.mark, [chart.at], { key: () => "at", tag: "rect",
      end: ([row, column]) => ({ x: left + column * each - 1, y: top + row * tall - 1, width: each + 1, height: tall + 1, rx: 4, fill: "none", stroke: color("ink"), "stroke-width": 3.5 }) });
    const bold = (name) => `font-weight: 600; fill: ${inkOn(chart.ideas[name])}`;
    write(glider, layers.words, [
      ...spots.filter(Boolean).map((d) => ({ id: `name ${d.name}`, x: left + d.x, y: top + d.row * tall + 14, anchor: "middle", text: d.name, style: bold(d.name) })),
      ...key.map((d) => ({ id: `name ${d.kind}`, x: d.x + 20, y: low + d.y + 12, text: d.kind })),
      ...[0, 3, 6, 9, 12].map((n) => ({ id: `x ${n}`, x: Math.min(left + (n + 0.5) * each, width - 18), y: top + tall * count + 16, anchor: "middle", text: sayNumber(2 ** n, 4) })),
      ...[12, 11, 10, 9, 8, 7, 6].map((n, k) => ({ id: `y ${n}`, x: left - 8, y: top + 2 * k * tall + 14, anchor: "end", text: sayCount(10 ** n) })),
      { id: "x name", x: left + (width - left) / 2, y: top + tall * count + 33, anchor: "middle", text: "devices, and on the left parameters" }]);
  } };
}

// Where a name of so many pixels stands in its region: in the middle of its longest row.
function findSpot(cells, each, room) {
  const runs = [];
  for (const d of cells) {
    const last = runs.at(-1)?.at(-1);
    if (last?.row === d.row && last.column === d.column - 1) runs.at(-1).push(d); else runs.push([d]);
  }
  const longest = Math.max(0, ...runs.map((run) => run.length)), best = runs.filter((run) => run.length === longest), run = best[Math.floor(best.length / 2)];
  return longest * each > room + 8 ? { name: run[0].name, row: run[0].row, x: (run[0].column + longest / 2) * each } : null;
}

const pick = (room, ...texts) => texts.map(String).find((text) => wide(text) + 6 < room) ?? "";

// ---- small images with a word below each

function makeImages() {
  const { svg, layers } = makeSvg("images", "frames", "words");
  return { svg, update(glider, chart, width) {
    const names = [...new Set(chart.items.map(([, name]) => name))], across = Math.max(1, Math.min(10, Math.floor(width / 72))), step = width / across, side = Math.min(96, step - 8);
    const items = chart.items.map(([href, name], k) => ({ id: k, href, name, idea: replica(names.indexOf(name)), x: (k % across) * step, y: Math.floor(k / across) * (side + 26) + 4 }));
    setSize(glider, svg, width, Math.ceil(items.length / across) * (side + 26) + 4);
    join(glider, layers.images, items, { key: (d) => d.id, tag: "image", end: (d) => ({ href: d.href, x: d.x + 4, y: d.y, width: side, height: side, style: "image-rendering: pixelated" }) });
    join(glider, layers.frames, items, { key: (d) => `${d.id} ${d.idea}`, tag: "rect", end: (d) => ({ x: d.x + 3, y: d.y - 1, width: side + 2, height: side + 2, rx: 3, fill: "none", stroke: d.idea, "stroke-width": 4 }) });
    write(glider, layers.words, items.map((d) => ({ id: d.id, x: d.x + 4 + side / 2, y: d.y + side + 17, anchor: "middle", text: d.name })));
  } };
}
module.exports = { CHARTS };
