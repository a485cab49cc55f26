"use strict";
/* The two kinds of plots: curves over the radius, and the trade-off. */
const DATA = JSON.parse(document.getElementById("data").textContent);
const state = { measure: DATA.first, scale: "linear", seed: "", shown: new Set(DATA.shown) };

const styleOf = (label) => DATA.styles[label];
const classOf = (label) => { const s = styleOf(label); return `${s.role} c${s.color} l${s.line}`; };
const measureOf = () => DATA.measures.find((m) => m.key === state.measure);

/* One curve: a seed's own, or the mean over seeds with the lowest low and the highest high. */
function curveOf(seeds, index) {
  if (index >= 0) return seeds[index] || null;
  const over = (key, f) => (seeds[0][key] || []).map((_, k) => { const all = seeds.map((s) => s[key][k]); return all.includes(null) ? null : f(all); });
  return { value: over("value", (v) => v.reduce((a, b) => a + b, 0) / v.length), low: over("low", (v) => Math.min(...v)), high: over("high", (v) => Math.max(...v)) };
}
function shownCurves(panel) {
  const index = state.seed ? panel.seeds.indexOf(state.seed) : -1;
  const table = panel.curves[state.measure];
  return Object.keys(table).filter((label) => state.shown.has(label))
    .map((label) => ({ label, curve: state.seed && index < 0 ? null : curveOf(table[label], index) })).filter((entry) => entry.curve);
}

/* Range of the panels that share a perturbation, so that runs can be compared by eye. */
function valueRange(panels, measure, log) {
  const values = [];
  for (const panel of panels) {
    for (const { curve } of shownCurves(panel)) values.push(...curve.value, ...curve.low, ...curve.high);
  }
  const known = values.filter((v) => v !== null && (!log || v > 0));
  if (measure.neutral !== null && (!log || measure.neutral > 0)) known.push(measure.neutral);
  if (!known.length) return log ? [0.1, 10] : [0, 1];
  let low = Math.min(...known), high = Math.max(...known);
  if (low === high) { low -= 0.05; high += 0.05; }
  [low, high] = withFloors(panels, low, high, log);
  const pad = (high - low) * 0.05;
  return log ? [low / 1.05, high * 1.05] : [measure.neutral === null && low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
}

/* A floor far wider than the curves is cut, so that it does not press them flat. */
function withFloors(panels, low, high, log) {
  const ends = panels.flatMap((p) => (p.floors[state.measure] ? [...p.floors[state.measure].low, ...p.floors[state.measure].high] : [])).filter((v) => v !== null && (!log || v > 0));
  const span = high - low, factor = high / low;
  return log ? [Math.max(low / factor, Math.min(low, ...ends)), Math.min(high * factor, Math.max(high, ...ends))] : [Math.max(low - span / 2, Math.min(low, ...ends)), Math.min(high + span / 2, Math.max(high, ...ends))];
}

function drawCurves(place, panel, peers) {
  const measure = measureOf(), log = state.scale === "log" && measure.ratio;
  const width = Math.max(280, place.clientWidth - 30), height = Math.round(Math.min(430, Math.max(280, width * 0.66)));
  const entries = shownCurves(panel);
  const tagWidth = width > 420 ? Math.min(120, 12 + 7 * Math.max(4, ...entries.map((e) => Math.min(15, e.label.length)))) : 8;
  const box = { left: 52, right: width - tagWidth, top: 30, bottom: height - 46 };
  const [low, high] = valueRange(peers, measure, log);
  const x = axisScale(panel.taus[0], panel.taus[panel.taus.length - 1] || 1, box.left, box.right, false);
  const y = axisScale(low, high, box.bottom, box.top, log);
  const safe = (v) => (v === null || (log && v <= 0) ? null : y(v));
  const name = `${measure.title} over the radius of ${panel.perturbation}${several() ? `, run ${panel.run}` : ""}`;
  const view = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": `${name}. ${ariaText(entries, panel)} Arrow keys read values.` });
  const inside = frame(view, box, x, y, panel.taus.length <= 8 && width > 420 ? panel.taus : ticks(panel.taus[0], panel.taus[panel.taus.length - 1], width > 420 ? 6 : 4), log ? logTicks(low, high, 5) : ticks(low, high, 5), `radius: ${panel.axis}`, measure.axis);
  const xs = panel.taus.map(x), floor = panel.floors[state.measure], clip = `clip${DATA.panels.indexOf(panel)}`;
  view.append(svg("clipPath", { id: clip }, svg("rect", { x: box.left, y: box.top - 4, width: box.right - box.left + 4, height: box.bottom - box.top + 8 })));
  const shapes = svg("g", { "clip-path": `url(#${clip})` });
  inside.append(shapes);
  if (entries.every((e) => e.curve.value.every((v) => v === null))) inside.append(svg("text", { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, "text-anchor": "middle", class: "title" }, entries.length ? "no value exists here: the retrained model is never right; see Difference" : "choose a method above"));
  if (floor) shapes.append(...floorBand(xs, floor, safe, DATA.panels.indexOf(panel)), ...floorName(xs, floor, safe, box));
  if (measure.neutral !== null && safe(measure.neutral) !== null) inside.append(svg("line", { x1: box.left, x2: box.right, y1: y(measure.neutral), y2: y(measure.neutral), class: "neutral" }));
  for (const { label, curve } of entries) if (curve.low.length && !(floor && styleOf(label).role === "control")) shapes.append(...bandPath(xs, curve.low.map(safe), curve.high.map(safe), `band ${classOf(label)}`));
  for (const { label, curve } of entries) {
    const group = svg("g", { "data-row": label });
    group.append(...linePath(xs, curve.value.map(safe), classOf(label)));
    curve.value.forEach((v, k) => { if (safe(v) !== null) group.append(svg("circle", { cx: xs[k], cy: safe(v), r: 2.6, class: `dot ${classOf(label)}` })); });
    inside.append(group);
  }
  if (tagWidth > 8) inside.append(...tagsOf(entries, safe, box));
  const cursor = svg("line", { y1: box.top, y2: box.bottom, x1: -9, x2: -9, class: "cursor" });
  inside.append(cursor);
  place.replaceChildren(html("figcaption", {}, caption(panel)), view, html("div", { class: "readout", "aria-live": "polite", hidden: "" }), numbers(panel, entries, name));
  readable(place, view, { panel, entries, xs, cursor, floor, width });
}
const several = () => new Set(DATA.panels.map((p) => p.run)).size > 1;
const caption = (panel) => (several() ? `${panel.run}: ${panel.perturbation}` : panel.perturbation);

/* The noise floor is hatched, so that it differs from the curves' bands in shape and not in color alone. */
function floorBand(xs, floor, safe, number) {
  const [lows, highs, id] = [floor.low.map(safe), floor.high.map(safe), `hatch${number}`];
  const hatch = svg("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("line", { x1: 0, y1: 0, x2: 0, y2: 7, class: "hatch" }));
  const over = bandPath(xs, lows, highs, "floor");
  for (const shape of over) shape.setAttribute("fill", `url(#${id})`);
  return [svg("defs", {}, hatch), ...bandPath(xs, lows, highs, "floor-back"), ...over];
}
/* The words "noise floor" inside the band, where it is high enough to hold them. */
function floorName(xs, floor, safe, box) {
  const places = xs.map((x, k) => [x, safe(floor.low[k]), safe(floor.high[k])]).filter((p) => !p.includes(null) && p[1] - p[2] > 18 && p[0] < box.right - 70);
  const place = places.sort((a, b) => (b[1] - b[2]) - (a[1] - a[2]))[0];
  return place ? [svg("text", { x: place[0] + 6, y: place[1] - 6, class: "floor-name" }, "noise floor")] : [];
}
function tagsOf(entries, safe, box) {
  const tags = entries.map(({ label, curve }) => ({ label, y: safe(curve.value[curve.value.length - 1]) })).filter((t) => t.y !== null);
  return spread(tags, 13, box.top, box.bottom).map((t) => svg("text", { x: box.right + 7, y: t.y + 4, class: `tag ${classOf(t.label)}` }, t.label.length > 15 ? `${t.label.slice(0, 14)}…` : t.label));
}
function ariaText(entries, panel) {
  const last = panel.taus.length - 1;
  return entries.length ? `At radius ${short(panel.taus[last])}: ${entries.map((e) => `${e.label} ${short(e.curve.value[last])}`).join(", ")}.` : "No method is shown.";
}

/* The numbers behind a plot, as a table. */
function numbers(panel, entries, name) {
  const head = html("tr", {}, [html("th", { scope: "col" }, "radius"), ...panel.taus.map((t) => html("th", { scope: "col", class: "r" }, short(t)))]);
  const body = entries.map(({ label, curve }) => html("tr", {}, [html("th", { scope: "row" }, label), ...curve.value.map((v, k) => html("td", { class: "r num" }, interval(v, curve, k)))]));
  const table = html("table", {}, [html("caption", { class: "hidden" }, name), html("thead", {}, head), html("tbody", {}, body)]);
  return html("details", { class: "numbers" }, [html("summary", {}, "The numbers behind this plot"), html("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Numbers: ${name}` }, table)]);
}
const interval = (v, curve, k) => (curve.low.length && v !== null ? `${short(v)} [${short(curve.low[k])}, ${short(curve.high[k])}]` : short(v));

/* Pointer and arrow keys choose a radius and show what every curve says there. */
function readable(place, view, plot) {
  const box = place.querySelector(".readout");
  let at = -1;
  const show = (k) => {
    at = k;
    plot.cursor.setAttribute("x1", plot.xs[k]); plot.cursor.setAttribute("x2", plot.xs[k]);
    const order = [...plot.entries].sort((a, b) => (b.curve.value[k] ?? -Infinity) - (a.curve.value[k] ?? -Infinity));
    const lines = order.map(({ label, curve }) => html("li", {}, [html("span", {}, label), html("b", { class: "num" }, interval(curve.value[k], curve, k))]));
    if (plot.floor && plot.floor.low[k] !== null) lines.push(html("li", {}, [html("span", {}, "noise floor"), html("b", { class: "num" }, `${short(plot.floor.low[k])} to ${short(plot.floor.high[k])}`)]));
    box.replaceChildren(`radius ${short(plot.panel.taus[k])}`, html("ul", {}, lines));
    box.hidden = false;
    const left = (plot.xs[k] / plot.width) * view.clientWidth + 14;
    const flip = left > place.clientWidth / 2;
    box.style.left = flip ? "auto" : `${left + 12}px`;
    box.style.right = flip ? `${place.clientWidth - left + 12}px` : "auto";
    box.style.top = "3.4rem";
  };
  const hide = () => { box.hidden = true; plot.cursor.setAttribute("x1", -9); plot.cursor.setAttribute("x2", -9); at = -1; };
  view.addEventListener("pointermove", (event) => {
    const seen = view.getBoundingClientRect(), x = ((event.clientX - seen.left) / seen.width) * plot.width;
    show(plot.xs.reduce((best, v, k) => (Math.abs(v - x) < Math.abs(plot.xs[best] - x) ? k : best), 0));
  });
  view.addEventListener("pointerleave", hide);
  view.addEventListener("blur", hide);
  view.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    show(Math.min(plot.xs.length - 1, Math.max(0, at + step)));
  });
}

/* Test accuracy against residual knowledge; the circle's area is the cost. */
function drawTradeOff(place, study) {
  const neutral = study.form === "class" ? 0 : 1;
  const points = study.points.filter((p) => state.shown.has(p.label) && p.x !== null && p.y !== null);
  const width = Math.max(280, place.clientWidth - 30), height = Math.round(Math.min(430, Math.max(280, width * 0.66)));
  const box = { left: 52, right: width - 18, top: 30, bottom: height - 46 };
  const bounds = (values, pad) => { let low = Math.min(...values), high = Math.max(...values); const room = Math.max((high - low) * 0.08, pad); return [low - room, high + room]; };
  const [xl, xh] = bounds([...points.map((p) => p.x), neutral], 0.02), [yl, yh] = bounds(points.length ? points.map((p) => p.y) : [0, 100], 0.2);
  const x = axisScale(xl, xh, box.left, box.right, false), y = axisScale(yl, yh, box.bottom, box.top, false);
  const title = `Trade-off under ${study.perturbation}${several() ? `, run ${study.run}` : ""}`;
  const view = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: test accuracy against residual knowledge, ${points.length} points. The numbers stand below.` });
  const inside = frame(view, box, x, y, ticks(xl, xh, width > 420 ? 6 : 4), ticks(yl, yh, 5), `${study.form === "class" ? "difference" : "r"} over all radii${width > 420 ? " (left: over-forgotten, right: residual knowledge)" : ""}`, "test accuracy, %");
  inside.append(svg("line", { x1: x(neutral), x2: x(neutral), y1: box.top, y2: box.bottom, class: "neutral" }));
  for (const p of points) {
    const circle = svg("circle", { cx: x(p.x), cy: y(p.y), r: radiusOf(p.cost), class: `bubble ${classOf(p.label)}`, "data-row": p.label });
    circle.append(svg("title", {}, `${p.label}, seed ${p.seed}: ${short(p.x)}, test accuracy ${short(p.y)} %, cost ${short(p.cost)} % of retraining`));
    inside.append(circle);
  }
  inside.append(...nameTags(points, x, y, box));
  place.replaceChildren(html("figcaption", {}, caption(study)), view, tradeNumbers(points, title));
}
const radiusOf = (cost) => (cost === null ? 4 : 3.5 + 11 * Math.sqrt(Math.min(cost, 150) / 150));
/* Each row's name stands at one of its points, where it covers no other name and, if possible, no point. */
function nameTags(points, x, y, box) {
  const circles = points.map((p) => ({ label: p.label, x: x(p.x), y: y(p.y), r: radiusOf(p.cost) }));
  const bubbles = circles.map((c) => ({ x: c.x - c.r, y: c.y - c.r, w: 2 * c.r, h: 2 * c.r })), names = [];
  return [...new Set(points.map((p) => p.label))].map((label) => {
    const text = label.length > 18 ? `${label.slice(0, 17)}…` : label, own = circles.filter((c) => c.label === label);
    const spots = own.flatMap((c) => spotsAround(c, 7 * text.length)).filter((s) => s.x >= box.left && s.x + s.w <= box.right + 14 && s.y >= box.top - 8 && s.y + s.h <= box.bottom);
    const free = spots.filter((s) => names.every((o) => apart(s, o)));
    const spot = free.find((s) => bubbles.every((o) => apart(s, o))) || free[0] || spots[0] || spotsAround(own[0], 0)[0];
    names.push(spot);
    return svg("text", { x: spot.x, y: spot.y + 11, class: `tag ${classOf(label)}`, "data-at": label }, text);
  });
}
const apart = (a, b) => a.x + a.w < b.x || b.x + b.w < a.x || a.y + a.h < b.y || b.y + b.h < a.y;
function spotsAround(c, w) {
  const h = 13, d = c.r + 2, low = d * 0.7;
  return [[d, -h / 2], [-d - w, -h / 2], [-w / 2, -d - h], [-w / 2, d], [low, -low - h], [low, low], [-low - w, -low - h], [-low - w, low]].map(([dx, dy]) => ({ x: c.x + dx, y: c.y + dy, w, h }));
}
function tradeNumbers(points, title) {
  const head = html("tr", {}, ["Model", "Seed", "Residual knowledge", "Test accuracy, %", "Cost, % of retraining"].map((t, i) => html("th", { scope: "col", class: i ? "r" : "" }, t)));
  const body = points.map((p) => html("tr", {}, [html("th", { scope: "row" }, p.label), ...[p.seed, short(p.x), short(p.y), short(p.cost)].map((t) => html("td", { class: "r num" }, t))]));
  const table = html("table", {}, [html("caption", { class: "hidden" }, title), html("thead", {}, head), html("tbody", {}, body)]);
  return html("details", { class: "numbers" }, [html("summary", {}, "The numbers behind this plot"), html("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Numbers: ${title}` }, table)]);
}
