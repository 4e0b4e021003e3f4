"use strict";
/* The page of weft.view: reads the data in the page, and draws it as SVG. Where boxes stand is part of
   the data (boxes.py); what is opened here pushes the boxes around it apart. */
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const canvas = $("canvas"), view = $("view");
const MOST = 420, READABLE = 160; // boxes that are drawn at once: at all, and without being asked to
const MARGIN = 40;
const ROLES = ["forward", "backward", "update"];
const SIGNS = { while: "↻", scan: "↻", if: "◇", switch: "◇" };

/* --- small things ------------------------------------------------------------------------- */

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(canvas.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
function amount(count, unit, step = 1000) {
  if (count === undefined || count === null) return "not known";
  let i = 0, rest = count;
  for (; rest >= step && i < 4; i++) rest /= step;
  const digits = i && rest < 100 ? rest.toPrecision(3) : String(Math.round(rest));
  return `${digits} ${["", "k", "M", "G", "T"][i]}${unit}`;
}
const bytes = (count) => amount(count, "B");
const short = (text, most) => (text.length <= most ? text : text.slice(0, most - 1) + "…");
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const pen = document.createElement("canvas").getContext("2d");
function width(text, font) {
  pen.font = font;
  return pen.measureText(text).width;
}
const style = getComputedStyle(document.documentElement);
const SANS = style.getPropertyValue("--sans"), MONO = style.getPropertyValue("--mono");

/* --- the model: one graph, one folding ------------------------------------------------------ */

const state = { graph: 0, folding: 0, open: new Set(), chosen: null, hits: new Set(), constants: false, spot: "", file: -1 };
let graph, folding, children, sums, users, operands, homes, boxes = new Map(), links = [];
const pan = { x: 0, y: 0, k: 1 };

function load(keep) {
  graph = data.graphs[state.graph];
  folding = graph.foldings[Math.min(state.folding, graph.foldings.length - 1)];
  const { items, edges } = graph;
  users = items.map(() => []);
  operands = items.map(() => []);
  for (const [from, to, result] of edges) {
    users[from].push(to);
    operands[to].push([from, result]);
  }
  homes = items.map((item, i) => (["input", "leaf"].includes(item.kind) && users[i].length ? Math.min(...users[i]) : -1));
  children = new Map([[-1, []]]);
  folding.folds.forEach((_, i) => children.set(i, []));
  sums = folding.folds.map(() => ({ ops: 0, flops: 0, moved: 0, names: new Map(), first: Infinity }));
  items.forEach((item, i) => {
    children.get(folding.of[i]).push({ key: `i${i}`, first: i });
    for (let at = folding.of[i]; at >= 0; at = folding.folds[at].parent) {
      const sum = sums[at];
      sum.first = Math.min(sum.first, i);
      sum.flops += item.flops || 0;
      sum.moved += item.moved || 0;
      if (item.kind === "op" || item.kind === "control") {
        sum.ops++;
        sum.names.set(item.title, (sum.names.get(item.title) || 0) + 1);
      }
    }
  });
  folding.folds.forEach((fold, i) => children.get(fold.parent).push({ key: `f${i}`, first: sums[i].first }));
  for (const list of children.values()) list.sort((a, b) => a.first - b.first);
  if (!keep) {
    state.open = new Set(folding.open);
    state.chosen = null;
    state.hits = new Set();
  }
}
const isFold = (key) => key[0] === "f";
const number = (key) => Number(key.slice(1));
const isSeen = (i) => !graph.items[i].hidden || (state.constants && graph.items[i].kind === "constant");

/** The items in a fold, or the item itself. */
function itemsIn(key) {
  if (!isFold(key)) return [number(key)];
  return children.get(number(key)).flatMap((child) => itemsIn(child.key));
}
/** The item whose source line represents a box. */
function leadOf(key) {
  if (!isFold(key)) return number(key);
  const fold = folding.folds[number(key)];
  if (fold.item !== undefined) return fold.item;
  return itemsIn(key).find((i) => graph.items[i].kind === "op" && graph.items[i].at !== undefined);
}
/** The derivative partners of all items in a box. */
function partnersOf(key) {
  const own = new Set(itemsIn(key));
  const found = new Set([...own].flatMap((i) => graph.items[i].partners || []));
  return [...found].filter((i) => !own.has(i)).sort((a, b) => a - b);
}
/** The visible box of an item: its own, or the outermost closed fold that contains it. */
function seen(i) {
  let found = `i${i}`;
  for (let at = folding.of[i]; at >= 0; at = folding.folds[at].parent) if (!state.open.has(at)) found = `f${at}`;
  return found;
}
function roleOf(key) {
  if (isFold(key)) return folding.folds[number(key)].role || "forward";
  return graph.items[number(key)].role || "forward";
}
function labelOf(key) {
  if (!isFold(key)) return graph.items[number(key)].title;
  const fold = folding.folds[number(key)];
  return (SIGNS[fold.label] && fold.kind === "control" ? `${SIGNS[fold.label]} ` : "") + fold.label;
}

/** The visible boxes: items and closed folds, and the open folds that contain them. */
function shown() {
  const found = { nodes: [], clusters: [] };
  const visit = (parent) => {
    for (const { key } of children.get(parent)) {
      if (!isFold(key)) {
        if (isSeen(number(key))) found.nodes.push(key);
      } else if (state.open.has(number(key))) {
        found.clusters.push(key);
        visit(number(key));
      } else found.nodes.push(key);
    }
  };
  visit(-1);
  return found;
}

function texts(key) {
  if (isFold(key)) {
    const sum = sums[number(key)];
    const fold = folding.folds[number(key)];
    if (fold.kind === "results") return { title: `▸ ${children.get(number(key)).length} results`, side: "", type: "" };
    const work = sum.flops ? ` · ${amount(sum.flops, "flop")}` : "";
    return { title: `▸ ${short(labelOf(key), 30)}`, side: "", type: plural(sum.ops, "op") + work };
  }
  const item = graph.items[number(key)];
  const types = (item.outputs || []).map((output) => output.type);
  const type = types.length > 1 ? `${types[0]} +${types.length - 1}` : types[0] || "";
  const side = item.kind === "op" || item.kind === "control" ? item.note || "" : "";
  // Long names keep their end: opt_param_groups_0_params_8.
  const title = item.kind === "input" && item.title.length > 20 ? `…${item.title.slice(-17)}` : short(item.title, 26);
  return { title, side: short(side, 22), type: short(type, 30) };
}
function measure(key) {
  const text = texts(key);
  const head = width(text.title, `600 12.5px ${SANS}`) + (text.side ? 6 + width(text.side, `12.5px ${SANS}`) : 0);
  return { width: Math.max(48, head, width(text.type, `10.5px ${MONO}`)) + 22, height: text.type ? 40 : 28, text };
}

/* --- layout and drawing --------------------------------------------------------------------- */

const HEAD = 28, PAD = 14; // of an open fold: above what is in it, and around it

/** Are a fold and all folds around it open? */
function isOpen(fold) {
  for (; fold >= 0; fold = folding.folds[fold].parent) if (!state.open.has(fold)) return false;
  return true;
}
const isCluster = (key) => isFold(key) && state.open.has(number(key));

/** The edges between visible boxes, each with its number of values and its pieces. */
function drawnLinks() {
  const found = new Map();
  graph.edges.forEach(([from, to], i) => {
    const a = seen(from), b = seen(to);
    if (a === b || !folding.paths[i].length || !isSeen(from) || !isSeen(to)) return;
    const id = `${a} ${b}`, path = folding.paths[i];
    if (!found.has(id)) {
      const pieces = path.flatMap((fold, at) => (at % 2 || !isOpen(fold) ? [] : [[fold, path[at + 1]]]));
      found.set(id, { a, b, count: 0, far: true, pieces });
    }
    const link = found.get(id);
    link.count++;
    link.far &&= graph.items[from].role !== graph.items[to].role;
  });
  return [...found.values()];
}
const GAP_X = 22, GAP_Y = 32, BEND = 16;

/** Lay out a fold, after the open folds in it: the given columns and layers, with the real sizes. */
function arrange(fold, plans) {
  const { boxes: given, pieces } = folding.layouts[fold + 1];
  const nodes = given.map(([key, x, layer]) => ({ key, x, layer, width: 0, height: 0, room: BEND, ...sizeOf(key, plans) }));
  const bends = pieces.map(([a, b, list]) => {
    const step = nodes[a].layer < nodes[b].layer ? 1 : -1;
    return list.map((x, i) => ({ x, layer: nodes[a].layer + step * (i + 1), width: 0, room: BEND }));
  });
  const points = [...nodes, ...bends.flat()].sort((a, b) => a.x - b.x);
  spread(points);
  relax(points, pieces.map(([a, b], i) => [nodes[a], ...bends[i], nodes[b]]));
  const left = Math.min(...points.map((p) => p.x - p.width / 2)), right = Math.max(...points.map((p) => p.x + p.width / 2));
  for (const point of points) point.x -= left;
  const bands = [];
  for (const { layer, height = 0 } of points) bands[layer] = Math.max(bands[layer] || 0, height);
  let top = 0, last = 0;
  for (let i = 0; i < bands.length; i++) {
    const height = bands[i] || 0;
    last = top + height;
    bands[i] = [top, last];
    top += height + (height ? GAP_Y : GAP_Y / 2);
  }
  for (const node of nodes) node.y = (bands[node.layer][0] + bands[node.layer][1]) / 2;
  const plan = { nodes, bends, bands, width: points.length ? right - left : 0, height: last };
  plans.set(fold, plan);
  return plan;
}
function sizeOf(key, plans) {
  if (key.includes(" ") || (!isFold(key) && !isSeen(number(key)))) return {}; // a port, or a constant that is not drawn
  let size = measure(key);
  if (isCluster(key)) {
    const inner = arrange(number(key), plans);
    const label = width(`▾ ${short(labelOf(key), 60)}`, `600 12px ${SANS}`) + 24;
    size = { width: Math.max(inner.width + 2 * PAD, label), height: inner.height + HEAD + PAD };
  }
  return { ...size, room: size.width + GAP_X };
}
/** Move points apart, from left to right, so that none overlap in a layer; columns stay columns. */
function spread(points) {
  const last = new Map(); // the rightmost point so far of each layer
  let old = 0, x = 0;
  for (let i = 0, end; i < points.length; i = end) {
    for (end = i; end < points.length && points[end].x === points[i].x; end++);
    const column = points.slice(i, end);
    [old, x] = [points[i].x, x + points[i].x - old];
    for (const p of column) if (last.has(p.layer)) x = Math.max(x, last.get(p.layer).x + (last.get(p.layer).room + p.room) / 2);
    for (const p of column) {
      p.x = x;
      last.set(p.layer, p);
    }
  }
}
/** Move points towards the mean of their neighbours along edges, as far as those beside them allow. */
function relax(points, chains) {
  const near = new Map(points.map((p) => [p, []])), layers = [];
  for (const chain of chains) {
    for (let i = 1; i < chain.length; i++) {
      near.get(chain[i]).push(chain[i - 1]);
      near.get(chain[i - 1]).push(chain[i]);
    }
  }
  for (const p of points) (layers[p.layer] ||= []).push(p);
  const gap = (a, b) => (a.room + b.room) / 2;
  for (let round = 0; round < 8; round++) {
    for (const layer of round % 2 ? layers.slice().reverse() : layers) {
      (layer || []).forEach((p, i) => {
        if (!near.get(p).length) return;
        const wish = near.get(p).reduce((sum, other) => sum + other.x, 0) / near.get(p).length;
        const low = i ? layer[i - 1].x + gap(layer[i - 1], p) : -Infinity;
        const high = i + 1 < layer.length ? layer[i + 1].x - gap(p, layer[i + 1]) : Infinity;
        p.x = Math.min(Math.max(wish, low), high);
      });
    }
  }
}
/** Compute the positions of boxes in the whole picture, from the outermost fold inwards. */
function settle(fold, x, y, plans) {
  const plan = Object.assign(plans.get(fold), { x, y });
  for (const node of plan.nodes) {
    if (!node.width) continue;
    const box = { ...node, cluster: isCluster(node.key), x: node.x + x, y: node.y + y };
    boxes.set(node.key, box);
    if (!box.cluster) continue;
    const inner = plans.get(number(node.key));
    settle(number(node.key), box.x - inner.width / 2, box.y - box.height / 2 + HEAD, plans);
  }
}
/** The points of an edge, piece by piece. It crosses the border of a fold at a port, and is vertical
 *  inside a layer, so that it crosses no tall box. */
function points(link, plans) {
  const found = [];
  for (const [fold, at] of link.pieces) {
    const { nodes, bends, bands, x, y } = plans.get(fold);
    const [a, b] = folding.layouts[fold + 1].pieces[at].map((i) => nodes[i]);
    const down = a.layer < b.layer ? 1 : 0;
    const border = fold < 0 ? null : boxes.get(`f${fold}`);
    const edge = (node, side) => ({ x: node.x, y: bands[node.layer][side] });
    const piece = [edge(a, down), ...bends[at].flatMap((bend) => [edge(bend, 1 - down), edge(bend, down)]), edge(b, 1 - down)].map((p) => ({ x: p.x + x, y: p.y + y }));
    // At an open fold, the edge continues at a port.
    if (isCluster(a.key)) piece.shift();
    if (isCluster(b.key)) piece.pop();
    if (a.key.startsWith("in ")) found.push({ x: a.x + x, y: border.y - border.height / 2 });
    else if (!isCluster(a.key)) found.push({ x: a.x + x, y: a.y + y + a.height / 2 });
    found.push(...piece);
    if (b.key.startsWith("out ")) found.push({ x: b.x + x, y: border.y + border.height / 2 });
    else if (!isCluster(b.key)) found.push({ x: b.x + x, y: b.y + y - b.height / 2 });
  }
  return found.filter((p, i) => !i || p.x !== found[i - 1].x || p.y !== found[i - 1].y);
}
function layout() {
  links = drawnLinks();
  const plans = new Map();
  const all = arrange(-1, plans);
  boxes = new Map();
  settle(-1, 0, 0, plans);
  for (const link of links) link.points = points(link, plans);
  return { width: Math.max(all.width, 1), height: Math.max(all.height, 1) };
}
let whole = { width: 1, height: 1 };

function curve(points) {
  const at = (p) => `${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
  if (points.length < 3) return `M${points.map(at).join("L")}`;
  let path = `M${at(points[0])}`;
  for (let i = 1; i < points.length - 1; i++) {
    const next = points[i + 1];
    const end = i === points.length - 2 ? next : { x: (points[i].x + next.x) / 2, y: (points[i].y + next.y) / 2 };
    path += `Q${at(points[i])} ${at(end)}`;
  }
  return path;
}
function drawCluster(box) {
  const fold = folding.folds[number(box.key)];
  const x = box.x - box.width / 2, y = box.y - box.height / 2;
  const group = svg("g", { class: `cluster ${fold.kind} ${roleOf(box.key)}`, "data-key": box.key });
  group.append(svg("rect", { class: "box", x, y, width: box.width, height: box.height, rx: 10 }));
  group.append(svg("rect", { class: "bar", x, y, width: box.width, height: 24, rx: 10 }));
  const label = short(`▾ ${labelOf(box.key)}`, Math.max(8, Math.floor(box.width / 7.2)));
  group.append(svg("text", { class: "title", x: x + 10, y: y + 17 }, label));
  return group;
}
function drawNode(box) {
  const fold = isFold(box.key);
  const kind = fold ? "fold" : graph.items[number(box.key)].kind;
  const x = box.x - box.width / 2, y = box.y - box.height / 2;
  const group = svg("g", { class: `node ${kind} ${roleOf(box.key)}`, "data-key": box.key });
  const round = { op: 7, control: 7, fold: 7 }[kind] || box.height / 2;
  if (fold) for (const away of [6, 3]) group.append(svg("rect", { class: "box under", x: x + away, y: y + away, width: box.width, height: box.height, rx: round }));
  group.append(svg("rect", { class: "box", x, y, width: box.width, height: box.height, rx: round }));
  const { title, side, type } = box.text;
  const head = svg("text", { x: box.x, y: box.y + (type ? -3 : 4), "text-anchor": "middle" });
  head.append(svg("tspan", { class: "title" }, title));
  if (side) head.append(svg("tspan", { class: "side", dx: 6 }, side));
  group.append(head);
  if (type) group.append(svg("text", { class: "type", x: box.x, y: box.y + 13, "text-anchor": "middle" }, type));
  if (fold) group.append(svg("rect", { class: "fold-sign", x, y, width: 26, height: box.height }));
  return group;
}
function draw() {
  whole = layout();
  const list = [...boxes.values()];
  $("clusters").replaceChildren(...list.filter((box) => box.cluster).map(drawCluster));
  $("nodes").replaceChildren(...list.filter((box) => !box.cluster).map(drawNode));
  $("edges").replaceChildren(...links.map((link) => {
    link.path = svg("path", { class: `edge${link.far ? " far" : ""}${link.count > 1 ? " many" : ""}`, d: curve(link.points) });
    link.path.append(svg("title", {}, link.count > 1 ? plural(link.count, "value") : `${labelOf(link.a)} → ${labelOf(link.b)}`));
    return link.path;
  }));
  mark();
}
const shapeOf = (key) => view.querySelector(`[data-key="${key}"]`);

/** Highlight the selection and its neighbours, search results, and the role selected in the legend. */
function mark() {
  for (const shape of view.querySelectorAll("[data-key]")) shape.classList.remove("chosen", "kin", "found", "lit");
  for (const badge of view.querySelectorAll(".badge, .badge-text")) badge.remove();
  for (const link of links) {
    link.path.classList.remove("on");
    if (state.chosen && (link.a === state.chosen || link.b === state.chosen)) link.path.classList.add("on");
  }
  $("overlay").replaceChildren();
  const found = new Map();
  for (const i of state.hits) found.set(seen(i), (found.get(seen(i)) || 0) + 1);
  for (const [key, count] of found) {
    const shape = shapeOf(key), box = boxes.get(key);
    if (!shape) continue;
    shape.classList.add("found", "lit");
    if (!isFold(key)) continue;
    const x = box.x + box.width / 2, y = box.y - box.height / 2;
    shape.append(svg("circle", { class: "badge", cx: x, cy: y, r: 9 }), svg("text", { class: "badge-text", x, y: y + 3.5, "text-anchor": "middle" }, String(count)));
  }
  const dims = state.spot && !state.hits.size;
  if (dims) for (const shape of view.querySelectorAll(`.node.${state.spot}, .cluster.${state.spot}`)) shape.classList.add("lit");
  view.classList.toggle("dim", Boolean(dims || state.hits.size));
  if (!state.chosen) return;
  const own = shapeOf(state.chosen);
  if (own) own.classList.add("chosen", "lit");
  const i = leadOf(state.chosen);
  if (i === undefined) return;
  const lines = partnersOf(state.chosen).map((other) => [i, other, "partner"]);
  if (homes[i] >= 0) for (const user of users[i]) lines.push([i, user, ""]);
  if (!isFold(state.chosen)) for (const [from] of operands[i]) if (homes[from] >= 0) lines.push([from, i, ""]);
  for (const [from, to, kind] of lines) {
    const a = boxes.get(seen(from)), b = boxes.get(seen(to));
    if (!a || !b || a === b) continue;
    for (const box of [a, b]) shapeOf(box.key)?.classList.add("kin", "lit");
    if (!kind && links.some((link) => link.a === a.key && link.b === b.key)) continue;
    const bend = Math.max(40, Math.abs(a.y - b.y) / 3), side = a.x < b.x ? 1 : -1;
    const middle = { x: (a.x + b.x) / 2 + side * bend * 0.4, y: (a.y + b.y) / 2 };
    $("overlay").append(svg("path", { class: `edge on ${kind}`, d: curve([border(a, middle), middle, border(b, middle)]) }));
  }
}

/** The point where the line from the center of a box to a point leaves the box. */
function border(box, point) {
  const dx = point.x - box.x, dy = point.y - box.y;
  const part = Math.min(box.width / 2 / Math.abs(dx || 1e-9), box.height / 2 / Math.abs(dy || 1e-9), 1);
  return { x: box.x + dx * part, y: box.y + dy * part };
}

/* --- panning and zooming -------------------------------------------------------------------- */

function apply() {
  view.setAttribute("transform", `translate(${pan.x.toFixed(2)} ${pan.y.toFixed(2)}) scale(${pan.k.toFixed(4)})`);
  $("stage").style.backgroundPosition = `${pan.x}px ${pan.y}px`;
}
const room = () => canvas.getBoundingClientRect();
function fit() {
  const { width: w, height: h } = room();
  const low = 60; // the legend
  pan.k = Math.max(0.06, Math.min(1.25, (w - MARGIN) / whole.width, (h - MARGIN - low) / whole.height));
  pan.x = (w - whole.width * pan.k) / 2;
  pan.y = Math.max(MARGIN / 2, (h - low - whole.height * pan.k) / 2);
  apply();
}
/** The initial view: the whole graph, or its beginning if the text would be too small. */
function begin() {
  fit();
  const readable = 0.62, { width: w } = room();
  if (pan.k >= readable || !boxes.size) return;
  pan.k = readable;
  const first = [...boxes.values()][0];
  const most = (w - MARGIN) / pan.k;
  const left = whole.width <= most ? whole.width / 2 : Math.min(Math.max(first.x, most / 2), whole.width - most / 2);
  pan.x = w / 2 - left * pan.k;
  pan.y = MARGIN / 2;
  apply();
}
function zoom(factor, x, y) {
  const { width: w, height: h } = room();
  x ??= w / 2;
  y ??= h / 2;
  const k = Math.min(4, Math.max(0.04, pan.k * factor));
  pan.x = x - ((x - pan.x) * k) / pan.k;
  pan.y = y - ((y - pan.y) * k) / pan.k;
  pan.k = k;
  apply();
}
function center(key) {
  const box = boxes.get(key);
  if (!box) return;
  const { width: w, height: h } = room();
  pan.k = Math.max(pan.k, 0.7);
  pan.x = w / 2 - box.x * pan.k;
  pan.y = Math.min(h / 2, box.height * pan.k > h ? h / 2 : Infinity) - box.y * pan.k;
  if (box.height * pan.k > h) pan.y = 30 - (box.y - box.height / 2) * pan.k;
  apply();
}
/** Is a box inside the window? */
function inSight(key) {
  const box = boxes.get(key), { width: w, height: h } = room();
  const x = box.x * pan.k + pan.x, y = box.y * pan.k + pan.y;
  return x > 20 && y > 20 && x < w - 20 && y < h - 40;
}

/* --- folding -------------------------------------------------------------------------------- */

/** Redraw after folds were opened or closed; the clicked box keeps its position. */
function redraw(anchor) {
  const before = anchor && boxes.get(anchor);
  const old = before && { x: before.x, y: before.y - before.height / 2 };
  draw();
  const after = anchor && boxes.get(anchor);
  if (old && after) {
    pan.x += (old.x - after.x) * pan.k;
    pan.y += (old.y - (after.y - after.height / 2)) * pan.k;
    apply();
  }
}
function toggle(key) {
  const fold = isFold(key) ? number(key) : folding.of[number(key)];
  if (fold < 0) return;
  if (state.open.has(fold)) state.open.delete(fold);
  else if (shown().nodes.length + children.get(fold).length > MOST) {
    return notice(`Close a fold first: more than ${MOST} boxes are slow to draw and hard to read.`);
  } else state.open.add(fold);
  redraw(`f${fold}`);
  choose(`f${fold}`);
}
const HAND = new Set(["results", "update", "chain", "derivative"]); // opened by hand only
function openAll() {
  for (let round = 0, count = shown().nodes.length; round < 40; round++) {
    let more = false;
    folding.folds.forEach((fold, i) => {
      if (state.open.has(i) || (fold.parent >= 0 && !state.open.has(fold.parent))) return;
      const added = children.get(i).filter(({ key }) => isFold(key) || isSeen(number(key))).length - 1;
      if (count + added > READABLE || HAND.has(fold.kind)) return;
      count += added;
      state.open.add(i);
      more = true;
    });
    if (!more) break;
  }
  const left = folding.folds.filter((fold, i) => !state.open.has(i) && !HAND.has(fold.kind)).length;
  if (left) notice(`Unfolded as far as it stays readable: open the other boxes one by one.`);
  redraw();
  begin();
}
function closeAll() {
  state.open.clear();
  if (state.chosen) state.chosen = isFold(state.chosen) ? state.chosen : seen(number(state.chosen));
  redraw();
  fit();
}
function reveal(i) {
  for (let at = folding.of[i]; at >= 0; at = folding.folds[at].parent) state.open.add(at);
  if (graph.items[i].kind === "constant" && graph.items[i].hidden && !state.constants) setConstants(true);
  draw();
}
let noticeTimer = 0;
function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = false;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => ($("notice").hidden = true), 4500);
}
function setConstants(on) {
  state.constants = on;
  $("constants").setAttribute("aria-pressed", String(on));
}

/* --- the selection and its details ---------------------------------------------------------- */

function choose(key, move) {
  state.chosen = key;
  if (key && !boxes.has(key) && !isFold(key)) reveal(number(key));
  mark();
  if (key && boxes.has(key) && (move || !inSight(key))) center(key);
  details();
  code();
}
const chip = (role) => element("span", { class: `chip ${role}` }, role);
const place = (at) => {
  const [file, line, name] = data.locations[at];
  return `${data.files[file].name}:${line} in ${name}`;
};
const withPlace = (i) => [i, graph.items[i].at === undefined ? "" : place(graph.items[i].at).split(" in ")[0]];
function facts(list) {
  const made = element("dl", { class: "facts" });
  for (const [name, value, mono] of list) {
    if (value === undefined || value === null || value === "") continue;
    made.append(element("dt", {}, name), element("dd", mono ? { class: "mono" } : {}, value));
  }
  return made;
}
const titled = (title, made) => (made.children.length ? [element("h3", {}, title), made] : []);
function linkList(title, list) {
  if (!list.length) return [];
  const made = element("ul", { class: "links" });
  for (const [i, type] of list.slice(0, 30)) {
    const item = graph.items[i];
    const note = ["op", "control"].includes(item.kind) ? item.note : item.kind === item.title ? "" : item.kind;
    made.append(element("li", {}, element("button", { onclick: () => choose(`i${i}`, true) },
      element("span", { class: `dot ${item.kind === "input" ? "" : item.role}` }), item.title,
      element("span", { style: "color:var(--soft)" }, note || ""), element("span", { class: "type" }, type || ""))));
  }
  if (list.length > 30) made.append(element("li", {}, element("p", {}, `and ${list.length - 30} more`)));
  return [element("h3", {}, title), made];
}
function bars(names) {
  const made = element("div", { class: "bars" });
  const list = [...names].sort((a, b) => b[1] - a[1]).slice(0, 12);
  for (const [name, count] of list) made.append(element("b", {}, name), element("u", { style: `width:${(100 * count) / list[0][1]}%` }), element("em", {}, String(count)));
  return made;
}
function details() {
  const panel = $("details");
  panel.scrollTop = 0;
  if (!state.chosen) return panel.replaceChildren(...overview());
  const fold = isFold(state.chosen) ? folding.folds[number(state.chosen)] : null;
  if (fold && fold.item === undefined) return panel.replaceChildren(...foldDetails(state.chosen, fold));
  const i = fold ? fold.item : number(state.chosen);
  panel.replaceChildren(...itemDetails(i, fold ? state.chosen : null));
}
function overview() {
  const ops = graph.items.filter((item) => item.kind === "op" || item.kind === "control");
  const names = new Map(), roles = new Map();
  let flops = 0, moved = 0;
  for (const item of ops) {
    names.set(item.title, (names.get(item.title) || 0) + 1);
    roles.set(item.role, (roles.get(item.role) || 0) + 1);
    flops += item.flops || 0;
    moved += item.moved || 0;
  }
  const kernels = new Set(graph.items.map((item) => item.kernel).filter(Boolean));
  return [
    element("h2", {}, graph.name, element("span", { class: "chip" }, graph.stage || graph.kind)),
    element("p", {}, "Data flows from top to bottom. Click a box for its details; double-click a stacked box, or click its ▸, to open it. Press ? for the keys."),
    element("h3", {}, "In short"),
    facts([["ops", String(ops.length)], ...ROLES.filter((role) => roles.get(role)).map((role) => [role, String(roles.get(role))]),
      ["kernels", kernels.size ? String(kernels.size) : ""], ["work", flops ? amount(flops, "flop") : ""], ["moved", moved ? bytes(moved) : ""]]),
    element("h3", {}, "Most frequent ops"), bars(names),
    ...(graph.notes.length ? [element("h3", {}, "History"), ...graph.notes.map((note) => element("p", {}, note))] : []),
  ];
}
function foldDetails(key, fold) {
  const sum = sums[number(key)];
  const kinds = { module: "module", lines: "source line", part: "neighbours", kernel: "kernel", graph: "nested graph", update: "optimizer step", chain: "the update of one parameter", derivative: "the backward steps of one forward op", results: "the results of the graph: gradients and new values" };
  return [
    element("h2", {}, fold.label, fold.role ? chip(fold.role) : null),
    element("p", {}, kinds[fold.kind] || fold.kind),
    element("button", { onclick: () => toggle(key) }, state.open.has(number(key)) ? "Fold" : "Unfold"),
    element("h3", {}, "Content"),
    facts([["ops", String(sum.ops)], ["work", amount(sum.flops, "flop")], ["moved", bytes(sum.moved)]]),
    ...linkList(fold.role === "backward" ? "Derivative of" : "Its backward steps", partnersOf(key).map(withPlace)),
    element("h3", {}, "Ops"), bars(sum.names),
  ];
}
/** The call as the graph prints it: %0: f32[2] = sum[axis=(0,)] %x */
function asText(i) {
  const item = graph.items[i];
  const results = (item.outputs || []).map((output) => `${output.name}: ${output.type}`).join(", ");
  const attrs = Object.entries(item.attrs || {}).map(([name, value]) => `${name}=${short(value, 200)}`).join(", ");
  const given = operands[i].map(([from, result]) => graph.items[from].outputs?.[result]?.name || graph.items[from].title).join(", ");
  return `${results} = ${item.title}${attrs ? `[${attrs}]` : ""} ${given}`;
}
const moduleOf = (item) => (item.at === undefined ? "" : data.locations[item.forward ?? item.at][3]);
function itemDetails(i, key) {
  const item = graph.items[i];
  const kinds = { input: "an input of the graph", result: "a result of the graph", constant: "a constant", leaf: "a tensor that gets a gradient" };
  const doc = data.docs[item.title];
  const outputs = item.outputs || [];
  const partners = (item.partners || []).map(withPlace);
  const fellows = item.kernel ? graph.items.map((other, j) => [j, other]).filter(([j, other]) => j !== i && other.kernel === item.kernel).map(([j, other]) => [j, other.outputs[0]?.type]) : [];
  const ratio = item.moved ? ` (${(item.flops / item.moved).toPrecision(2)} flop/B)` : "";
  return [
    element("h2", {}, item.title, item.kind === "input" ? element("span", { class: "chip" }, "input") : chip(item.role || "forward")),
    kinds[item.kind] ? element("p", {}, kinds[item.kind]) : doc ? element("p", {}, doc) : null,
    key ? element("button", { onclick: () => toggle(key) }, state.open.has(number(key)) ? "Fold" : "Unfold") : null,
    outputs.length ? element("h3", {}, outputs.length > 1 ? "Results" : "Type") : null,
    facts(outputs.map((output) => [output.name || "result", `${output.type}${output.bytes === null ? "" : `   ${bytes(output.bytes)}`}`, true])),
    ...titled("Facts", facts([...Object.entries(item.attrs || {}).map(([name, value]) => [name, short(value, 120), true]),
      ["work", item.flops === undefined ? "" : amount(item.flops, "flop") + ratio], ["moved", item.moved === undefined ? "" : bytes(item.moved)],
      ["module", moduleOf(item)], ["kernel", item.kernel], ["line", item.at === undefined ? "" : place(item.at), true],
      ["forward line", item.forward === undefined ? "" : place(item.forward), true], ...Object.entries(item.more || {})])),
    ...linkList(item.role === "backward" ? `Derivative of${item.of ? ` ${item.of}` : ""}` : "Its backward steps", partners),
    ...linkList("Takes", operands[i].map(([from, result]) => [from, graph.items[from].outputs?.[result]?.type])),
    ...linkList("Used by", [...new Set(users[i])].map((to) => [to, graph.items[to].outputs?.[0]?.type])),
    ...linkList("In the same kernel", fellows),
    item.kind === "op" && outputs[0]?.name ? element("h3", {}, "As text") : null,
    item.kind === "op" && outputs[0]?.name ? element("pre", {}, asText(i)) : null,
  ].filter((part) => part !== null);
}

/* --- the user's code ------------------------------------------------------------------------ */

const WORDS = "and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False|self";
const TOKEN = new RegExp(`(#.*)|("(?:[^"\\\\]|\\\\.)*"|'(?:[^'\\\\]|\\\\.)*')|\\b(${WORDS})\\b|\\b(\\d[\\d_.e+-]*)\\b`, "g");
function coloured(text) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    found.push(text.slice(end, match.index));
    const kind = ["c", "t", "w", "n"][[1, 2, 3, 4].findIndex((group) => match[group] !== undefined)];
    found.push(element("span", { class: kind }, match[0]));
    end = match.index + match[0].length;
  }
  return [...found, text.slice(end)];
}
let lineItems = new Map(), codeOf = "";
function linesOf() {
  lineItems = new Map();
  graph.items.forEach((item, i) => {
    for (const at of [item.at, item.forward]) {
      if (at === undefined) continue;
      const [file, line] = data.locations[at];
      const key = `${file}:${line}`;
      if (!lineItems.has(key)) lineItems.set(key, []);
      lineItems.get(key).push(i);
    }
  });
}
function code() {
  const item = state.chosen ? graph.items[leadOf(state.chosen)] : null;
  const at = item?.at ?? data.start ?? firstPlace();
  if (at === undefined) return $("code").replaceChildren();
  const own = item?.at === undefined ? null : data.locations[item.at];
  const origin = item?.forward === undefined || item?.forward === null ? null : data.locations[item.forward];
  // Show the forward line of a backward step: all of them share the line that called backward.
  const lead = origin || own;
  if (lead) state.file = lead[0];
  else if (state.file < 0) state.file = data.locations[at][0];
  const file = data.files[state.file];
  const panel = $("code");
  const wanted = `${state.graph} ${state.file}`;
  if (codeOf !== wanted) {
    codeOf = wanted;
    const names = element("div", { class: "file" });
    data.files.forEach((other, i) => {
      if (![...lineItems.keys()].some((key) => key.startsWith(`${i}:`))) return;
      names.append(element("button", { title: other.path, "aria-pressed": String(i === state.file), onclick: () => { state.file = i; state.chosen = null; mark(); details(); code(); } }, other.name));
    });
    panel.replaceChildren(names);
    file.parts.forEach(([first, lines], part) => {
      if (part) panel.append(element("div", { class: "gap" }, "⋮"));
      lines.forEach((text, i) => {
        const line = first + i, key = `${state.file}:${line}`;
        const row = element("div", { class: "row", "data-line": line }, element("span", { class: "number" }, String(line)), element("span", {}, ...coloured(text)));
        if (lineItems.has(key)) {
          row.classList.add("used");
          row.title = plural(new Set(lineItems.get(key)).size, "op");
          row.addEventListener("click", () => { state.hits = new Set(lineItems.get(key).filter(isSeen)); state.chosen = null; mark(); details(); });
        }
        panel.append(row);
      });
    });
    if (!file.parts.length || !file.parts[0][1].length) panel.append(element("div", { class: "gap" }, `${file.path} is not available`));
  }
  for (const row of panel.querySelectorAll(".here, .origin")) row.classList.remove("here", "origin");
  const show = (where, kind) => {
    if (!where || where[0] !== state.file) return null;
    const row = panel.querySelector(`[data-line="${where[1]}"]`);
    row?.classList.add(kind);
    return row;
  };
  const rows = [show(own, "here"), show(origin, "origin")];
  const row = origin ? rows[1] : rows[0];
  if (row) panel.scrollTop = row.offsetTop - panel.offsetTop - panel.clientHeight / 2;
  else if (!item && data.locations[at][0] === state.file) {
    const first = panel.querySelector(`[data-line="${data.locations[at][1]}"]`);
    if (first) panel.scrollTop = first.offsetTop - panel.offsetTop - 2 * first.offsetHeight;
  }
}
function firstPlace() {
  const item = graph.items.find((other) => other.at !== undefined && other.role === "forward") || graph.items.find((other) => other.at !== undefined);
  return item?.at;
}

/* --- searching ------------------------------------------------------------------------------ */

let results = [], picked = -1;
function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  results = [];
  state.hits = new Set();
  picked = -1;
  if (words.length) {
    graph.items.forEach((item, i) => {
      const where = item.at === undefined ? "" : `${data.files[data.locations[item.at][0]].name}:${data.locations[item.at][1]} ${data.locations[item.at][2]}`;
      const hay = [item.title, item.note, moduleOf(item), item.role, item.kernel, where, ...(item.outputs || []).flatMap((output) => [output.name, output.type])].join(" ").toLowerCase();
      if (words.every((word) => hay.includes(word))) results.push(i);
    });
    for (const i of results) if (isSeen(i)) state.hits.add(i);
  }
  const list = $("hits");
  list.hidden = !words.length;
  $("search").setAttribute("aria-expanded", String(!list.hidden));
  list.replaceChildren(element("li", { class: "count" }, results.length ? `${plural(results.length, "match").replace("matchs", "matches")}: Enter goes to the next` : "nothing found"),
    ...results.slice(0, 60).map((i, at) => element("li", { role: "option", "data-at": at, onmousedown: (event) => { event.preventDefault(); pick(at); } },
      element("span", { class: `dot ${graph.items[i].role}` }), graph.items[i].title,
      element("span", { class: "mono", style: "color:var(--soft)" }, graph.items[i].outputs?.[0]?.type || ""),
      element("span", { class: "where" }, moduleOf(graph.items[i]) || (graph.items[i].at === undefined ? "" : place(graph.items[i].at).split(" in ")[0])))));
  mark();
}
function pick(at) {
  if (!results.length) return;
  picked = (at + results.length) % results.length;
  for (const option of $("hits").querySelectorAll("[data-at]")) option.setAttribute("aria-selected", String(Number(option.dataset.at) === picked));
  $("hits").querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  choose(`i${results[picked]}`, true);
}
function stopSearch() {
  $("hits").hidden = true;
  state.hits = new Set();
  $("search").value = "";
  results = [];
  mark();
}

/* --- the keys ------------------------------------------------------------------------------- */

function walk(direction) {
  const order = [...boxes.values()].filter((box) => !box.cluster);
  if (!order.length) return;
  if (!state.chosen || !boxes.has(state.chosen)) return choose(order[0].key, true);
  const here = boxes.get(state.chosen);
  const joined = links.filter((link) => (direction === "up" ? link.b : link.a) === here.key && (direction === "up" || direction === "down"));
  if (joined.length) return choose(direction === "up" ? joined[0].a : joined[0].b);
  const score = (box) => {
    const dx = box.x - here.x, dy = box.y - here.y;
    const [along, across] = { left: [-dx, dy], right: [dx, dy], up: [-dy, dx], down: [dy, dx] }[direction];
    return along > 1 ? along + 3 * Math.abs(across) : Infinity;
  };
  const next = order.filter((box) => box.key !== here.key).reduce((best, box) => (score(box) < score(best) ? box : best), order[0]);
  if (score(next) < Infinity) choose(next.key);
}
const KEYS = {
  "/": ["search", () => $("search").focus()],
  Enter: ["fold or unfold the selection", () => state.chosen && toggle(state.chosen)],
  " ": ["", () => state.chosen && toggle(state.chosen)],
  ArrowUp: ["move along the graph, with ↓ ← →", () => walk("up")],
  ArrowDown: ["", () => walk("down")],
  ArrowLeft: ["", () => walk("left")],
  ArrowRight: ["", () => walk("right")],
  p: ["go to the backward step, or back to the forward op", () => { const found = state.chosen ? partnersOf(state.chosen) : []; if (found.length) choose(`i${found[0]}`, true); }],
  f: ["fit the graph into the window", fit],
  "+": ["zoom in", () => zoom(1.25)],
  "=": ["", () => zoom(1.25)],
  "-": ["zoom out", () => zoom(0.8)],
  o: ["unfold as far as it stays readable", openAll],
  c: ["fold all", closeAll],
  k: ["show or hide constant numbers", () => { setConstants(!state.constants); redraw(); }],
  s: ["save the picture as SVG", save],
  t: ["switch between light and dark", theme],
  Escape: ["clear the selection and the search", () => { stopSearch(); state.spot = ""; legend(); choose(null); }],
  "?": ["these keys", () => $("keys").showModal()],
};

/* --- the frame of the page ------------------------------------------------------------------ */

function legend() {
  const present = new Set(graph.items.map((item) => item.role));
  const kinds = new Set(graph.items.map((item) => item.kind));
  $("legend").replaceChildren(
    ...ROLES.filter((role) => present.has(role)).map((role) => element("button", { "aria-pressed": String(state.spot === role), title: `Single out ${role}`, onclick: () => { state.spot = state.spot === role ? "" : role; legend(); mark(); } }, element("i", { class: role }), role)),
    ...(kinds.has("input") || kinds.has("leaf") ? [element("span", {}, element("i", { class: "input" }), kinds.has("leaf") ? "leaf" : "input")] : []),
    element("span", {}, element("i", { class: "result" }), "result"),
    ...(folding.folds.length ? [element("span", {}, element("i", { class: "fold" }), "folded")] : []),
  );
}
function theme() {
  const root = document.documentElement;
  const dark = root.style.colorScheme ? root.style.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.style.colorScheme = dark ? "light" : "dark";
}
/** The picture as a standalone SVG: every shape has its own colours. */
function picture() {
  const clone = canvas.cloneNode(true);
  const shapes = "rect, path, text, tspan, circle";
  const originals = canvas.querySelectorAll(shapes);
  clone.querySelectorAll(shapes).forEach((shape, i) => {
    const found = getComputedStyle(originals[i]);
    for (const name of ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight"]) {
      const value = found.getPropertyValue(name);
      if (value) shape.setAttribute(name, value);
    }
    shape.removeAttribute("class");
    if (found.markerEnd && found.markerEnd !== "none") shape.setAttribute("marker-end", found.markerEnd);
  });
  clone.querySelector("#view").removeAttribute("transform");
  const pad = 20;
  clone.setAttribute("viewBox", `${-pad} ${-pad} ${whole.width + 2 * pad} ${whole.height + 2 * pad}`);
  clone.setAttribute("width", Math.round(whole.width + 2 * pad));
  clone.setAttribute("height", Math.round(whole.height + 2 * pad));
  clone.setAttribute("style", `background:${getComputedStyle(document.body).backgroundColor}`);
  for (const name of ["id", "tabindex", "role", "aria-label"]) clone.removeAttribute(name);
  return new XMLSerializer().serializeToString(clone);
}
function save() {
  const address = URL.createObjectURL(new Blob([picture()], { type: "image/svg+xml" }));
  const link = element("a", { href: address, download: `${graph.name.replace(/\W+/g, "_") || "graph"}.svg` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
function change(keep) {
  codeOf = "";
  state.file = -1;
  load(keep);
  linesOf();
  frame();
  draw();
  begin();
  legend();
  details();
  code();
}
function frame() {
  $("title").replaceChildren(data.title, element("small", {}, graph.kind));
  const names = [...new Set(data.graphs.map((other) => other.recording))];
  $("recording-pick").hidden = names.length < 2;
  $("recording").replaceChildren(...names.map((name) => element("option", name === graph.recording ? { value: name, selected: "" } : { value: name }, name)));
  const stages = data.graphs.map((other, i) => [other, i]).filter(([other]) => other.recording === graph.recording && other.stage);
  $("stages").replaceChildren(...stages.map(([other, i]) => element("button", { role: "radio", "aria-checked": String(i === state.graph), onclick: () => { state.graph = i; state.folding = 0; change(); } }, other.stage)));
  $("folding-pick").hidden = graph.foldings.length < 2;
  $("folding").replaceChildren(...graph.foldings.map((other, i) => element("option", i === state.folding ? { value: i, selected: "" } : { value: i }, other.name)));
}
function tabs() {
  if (!data.panels.length) return;
  const show = (at) => {
    $("graph-tab").hidden = at >= 0;
    document.body.classList.toggle("in-panel", at >= 0);
    $("panels").style.display = at >= 0 ? "flex" : "none";
    if (at >= 0) $("panels").replaceChildren(element("iframe", { srcdoc: data.panels[at].html, title: data.panels[at].title, sandbox: "allow-scripts" }));
    [...$("tabs").children].forEach((tab, i) => tab.setAttribute("aria-selected", String(i - first === at)));
  };
  const first = data.graphs.length ? 1 : 0;
  const names = [...(first ? ["Graph"] : []), ...data.panels.map((panel) => panel.title)];
  $("tabs").replaceChildren(...names.map((name, i) => element("button", { role: "tab", onclick: () => show(i - first) }, name)));
  show(first ? -1 : 0);
}
function listen() {
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, moved: false };
    canvas.focus({ preventScroll: true });
  });
  addEventListener("pointermove", (event) => {
    if (!drag) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    Object.assign(drag, { moved: true, x: event.clientX, y: event.clientY });
    canvas.classList.add("drag");
    pan.x += dx;
    pan.y += dy;
    apply();
  });
  addEventListener("pointerup", () => { canvas.classList.remove("drag"); setTimeout(() => (drag = null), 0); });
  canvas.addEventListener("click", (event) => {
    if (drag?.moved) return;
    const shape = event.target.closest("[data-key]");
    if (!shape) { if (state.hits.size || state.chosen) { state.hits = new Set(); choose(null); } return; }
    if (shape.classList.contains("cluster") && !event.target.classList.contains("bar")) return choose(null);
    if (event.target.classList.contains("fold-sign")) return toggle(shape.dataset.key);
    choose(shape.dataset.key);
  });
  canvas.addEventListener("dblclick", (event) => {
    const shape = event.target.closest("[data-key]");
    if (shape && isFold(shape.dataset.key) && !event.target.classList.contains("fold-sign")) toggle(shape.dataset.key);
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { left, top } = room();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - left, event.clientY - top);
  }, { passive: false });
  addEventListener("keydown", (event) => {
    if ($("keys").open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === $("search")) {
      if (event.key === "Enter" || event.key === "ArrowDown") { event.preventDefault(); pick(picked + (event.shiftKey ? -1 : 1)); }
      else if (event.key === "ArrowUp") { event.preventDefault(); pick(picked - 1); }
      else if (event.key === "Escape") { stopSearch(); canvas.focus(); }
      return;
    }
    if (["INPUT", "SELECT"].includes(event.target.tagName) || (event.target.tagName === "BUTTON" && ["Enter", " "].includes(event.key))) return;
    const known = KEYS[event.key];
    if (known && data.graphs.length) { event.preventDefault(); known[1](); }
  });
  $("search").addEventListener("input", (event) => search(event.target.value));
  $("search").addEventListener("blur", () => ($("hits").hidden = true));
  $("search").addEventListener("focus", (event) => { if (event.target.value) search(event.target.value); });
  const clicks = { "close-all": closeAll, "open-all": openAll, export: save, theme, fit, "zoom-in": () => zoom(1.25), "zoom-out": () => zoom(0.8), constants: KEYS.k[1], help: KEYS["?"][1] };
  for (const [id, action] of Object.entries(clicks)) $(id).addEventListener("click", action);
  $("recording").addEventListener("change", (event) => {
    const same = (other) => other.recording === event.target.value;
    const at = data.graphs.findIndex((other) => same(other) && other.stage === graph.stage);
    state.graph = at < 0 ? data.graphs.findIndex(same) : at;
    change();
  });
  $("folding").addEventListener("change", (event) => { state.folding = Number(event.target.value); change(); });
  $("divider").addEventListener("pointerdown", (event) => {
    const aside = document.querySelector("aside"), start = event.clientX, before = aside.offsetWidth;
    const move = (now) => (aside.style.width = `${Math.max(240, before + start - now.clientX)}px`);
    addEventListener("pointermove", move);
    addEventListener("pointerup", () => removeEventListener("pointermove", move), { once: true });
  });
  $("keys").append(element("h2", { style: "margin:0" }, "Keys"), element("dl", {}, ...Object.entries(KEYS).filter(([, [text]]) => text).flatMap(([key, [text]]) => [element("dt", {}, element("kbd", {}, key.replace("Arrow", "↑").replace("↑Up", "↑"))), element("dd", {}, text)])));
  $("keys").addEventListener("click", () => $("keys").close());
}

listen();
tabs();
if (data.graphs.length) change();
else $("title").textContent = data.title;
/** For tests. */
window.weft = { state, boxes: () => boxes, links: () => links, picture, choose, toggle, search, openAll, closeAll };
})();
