"use strict";
/* Drawing: every text becomes a text node and every shape an SVG element, so no name can turn into markup. */
const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, children = [], space = null) {
  const node = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  for (const child of [].concat(children)) node.append(child);
  return node;
}
const html = (name, attributes, children) => element(name, attributes, children);
const svg = (name, attributes, children) => element(name, attributes, children, SVG);

/* Round steps of 1, 2 or 5 times a power of ten that cut [low, high] into about `count` parts. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

/* On a log axis: all of 1, 2, 5 times powers of ten; where these are too few, round linear steps. */
function logTicks(low, high, count) {
  const found = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++)
    for (const f of [1, 2, 5]) if (f * 10 ** p >= low * 0.999 && f * 10 ** p <= high * 1.001) found.push(Number((f * 10 ** p).toPrecision(6)));
  return found.length >= 3 ? found : ticks(low, high, count);
}

function axisScale(low, high, from, to, log) {
  const f = log ? Math.log : (v) => v;
  return (v) => from + ((f(v) - f(low)) / (f(high) - f(low))) * (to - from);
}

const short = (value) => (value === null ? "–" : String(Number(value.toPrecision(3))));

/* Points that exist, as stretches without gaps. */
function stretches(points) {
  const found = [];
  let open = false;
  for (const point of points) {
    if (point.some((v) => v === null || !Number.isFinite(v))) { open = false; continue; }
    if (open) found[found.length - 1].push(point); else found.push([point]);
    open = true;
  }
  return found;
}
const pathOf = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function linePath(xs, ys, kind) {
  return stretches(xs.map((x, i) => [x, ys[i]])).map((part) => svg("path", { d: pathOf(part), class: `line ${kind}` }));
}
function bandPath(xs, lows, highs, kind) {
  return stretches(xs.map((x, i) => [x, lows[i], highs[i]])).map((part) => {
    const forth = part.map(([x, low]) => [x, low]);
    const back = part.map(([x, , high]) => [x, high]).reverse();
    return svg("path", { d: `${pathOf(forth.concat(back))}Z`, class: kind });
  });
}

/* Frame, grid, ticks and axis titles; returns the group to draw into. */
function frame(view, box, x, y, xTicks, yTicks, xTitle, yTitle) {
  for (const tick of yTicks) {
    view.append(svg("line", { x1: box.left, x2: box.right, y1: y(tick), y2: y(tick), class: "grid" }));
    view.append(svg("text", { x: box.left - 7, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  for (const tick of xTicks) {
    view.append(svg("line", { x1: x(tick), x2: x(tick), y1: box.bottom, y2: box.bottom + 4, class: "grid" }));
    view.append(svg("text", { x: x(tick), y: box.bottom + 18, "text-anchor": "middle" }, short(tick)));
  }
  view.append(svg("text", { x: (box.left + box.right) / 2, y: box.bottom + 36, "text-anchor": "middle", class: "title" }, xTitle));
  view.append(svg("text", { x: box.left - 38, y: box.top - 10, class: "title" }, yTitle));
  const inside = svg("g");
  view.append(inside);
  return inside;
}

/* Move tags apart so that none covers another, keeping their order. */
function spread(tags, least, top, bottom) {
  tags.sort((a, b) => a.y - b.y);
  for (let i = 1; i < tags.length; i++) tags[i].y = Math.max(tags[i].y, tags[i - 1].y + least);
  const excess = tags.length ? tags[tags.length - 1].y - bottom : 0;
  if (excess > 0) for (let i = tags.length - 1, limit = bottom; i >= 0; i--, limit -= least) tags[i].y = Math.max(top, Math.min(tags[i].y, limit));
  return tags;
}
