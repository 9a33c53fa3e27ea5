// Line charts: a value along one axis, a line for each policy, with a key that names them below.

const CHART = { top: 12, plot: 220, bottom: 46, badge: 34 };
const CHART_FONT = 12;
const MOST_DOTS = 40;

/** The chart inside `root`; while its lines stay the same only the marker of the current value moves. */
class LineChart {
  constructor(root) {
    Object.assign(this, { root, shown: [], width: 0 });
    this.drawing = make("div", { class: "drawing" });
    this.key = make("ul", { class: "line-key" });
    root.replaceChildren(this.drawing, this.key);
  }

  /** Notes how wide the chart may be; asked only when that may change. */
  measure() {
    this.width = Math.min(1000, this.root.clientWidth);
  }

  /**
   * Shows `spec`: `dim` along the axis, `lines` of values a policy, `y` of `valueScale`, a `name` for screen readers; the
   * marker is at `index`.
   */
  show(cube, spec, index, theme) {
    const shown = [cube, theme, this.width, spec.dim, spec.key];
    if (shown.some((part, i) => part !== this.shown[i])) this.build(cube, spec, theme);
    this.shown = shown;
    const x = this.place.x(index);
    for (const end of ["x1", "x2"]) this.marker.setAttribute(end, x);
  }

  build(cube, { dim, lines, y, name }, theme) {
    const width = this.width || 760;
    const left = Math.max(...y.ticks.map(({ text }) => text.length)) * 7.4 + 14;
    const right = width - CHART.badge;
    const slant = slantRoom(dim, right - left, chartText);
    const box = { left, right, slant, height: CHART.top + CHART.plot + CHART.bottom + slant,
      y: (value) => CHART.top + (1 - y.place(value)) * CHART.plot };
    this.place = chartPlace(dim, box);
    this.marker = makeSvg("line", { y1: CHART.top, y2: CHART.top + CHART.plot, stroke: theme.muted, "stroke-dasharray": "4 4" });
    const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${box.height}`, role: "img", "aria-label": name });
    svg.append(...chartGrid(dim, this.place, box, y, theme), ...chartLines(cube, dim, lines, this.place, box), this.marker);
    this.drawing.replaceChildren(svg);
    const items = cube.policies.map((policy, i) => make("li", {}, lineSample(cube.policies, i), wrapped(policy.label)));
    this.key.replaceChildren(...items);
  }

  /** Index of the value of the axis nearest to a place of the window. */
  indexAt(dim, clientX) {
    const x = clientX - this.drawing.getBoundingClientRect().left;
    const distances = dim.values.map((_, i) => Math.abs(this.place.x(i) - x));
    return distances.indexOf(Math.min(...distances));
  }
}

/** Spec of the success rate along `dim`. */
function successSpec(cube, dim, state) {
  const lines = cube.policies.map((_, policy) => cube.success(policy, dim.name, state.held ? state : null));
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((value) => ({ value, text: `${value * 100} %` }));
  return { dim, lines, y: { place: (value) => value, ticks, title: "" }, key: state.held ? lines : "",
    name: `Success rate by ${dim.label}, one line per policy; the numbers are in the table below the drawing` };
}

/** Fills `root` with the numbers of the chart; the caption names the policies, so that any number fits. */
function showChartTable(root, cube, state) {
  const dim = cube.dim(state.chart);
  const { lines } = successSpec(cube, dim, state);
  const heads = cube.policies.map((policy, i) => make("th", { scope: "col", title: policy.label, "aria-label": policy.label }, policyMark(i)));
  const rows = dim.values.map((_, i) =>
    make("tr", {}, make("th", { scope: "row" }, dimValue(dim, i, 6)),
      ...lines.map((rate) => make("td", {}, makeData(rate[i], rate[i].toFixed(4))))));
  const names = cube.policies.map((policy, i) => `${policyMark(i)} ${policy.label.slice(0, 60)}`).join(", ");
  root.replaceChildren(make("table", { class: "numbers" },
    make("caption", {}, `Share of points that pass, by ${dim.label}: ${names}`),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, dimTitle(dim)), ...heads)), make("tbody", {}, ...rows)));
}

/** Scale of the values of `lines`: from 0 unless they are far from it, and never so narrow that a trifle fills it. */
function valueScale(lines) {
  const values = lines.flatMap((line) => [...line]).filter(Number.isFinite);
  const [least, most] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  if (least > 0 && most / least > 20) {
    const ticks = niceValues(least, most, 5, true);
    const [low, high] = [Math.min(least, ticks[0]), Math.max(most, ticks.at(-1))].map(Math.log);
    return { place: (value) => (Math.log(value) - low) / (high - low), ticks: ticks.map(valueTick) };
  }
  const [low, high] = wideRange(least, most, true);
  return { place: (value) => (value - low) / (high - low), ticks: niceValues(low, high, 5, false).map(valueTick) };
}

/** About how wide a text of the chart is [px]. */
function chartText(text) {
  return tickName(text).length * 7.2;
}

function valueTick(value) {
  return { value, text: formatTick(value) };
}

function chartPlace(dim, box) {
  const kind = spacing(dim);
  const { values } = dim;
  const span = box.right - box.left;
  const scaled = kind === "log" ? values.map(Math.log) : kind === "linear" ? values : values.map((_, i) => i);
  const low = Math.min(scaled[0], scaled.at(-1));
  const wide = Math.abs(scaled.at(-1) - scaled[0]);
  const inset = kind === "index" ? span / values.length / 2 : 0;
  const along = (value) => box.left + inset + (wide ? ((value - low) / wide) * (span - 2 * inset) : (span - 2 * inset) / 2);
  return { x: (index) => along(scaled[index]), ofValue: (value) => along(kind === "log" ? Math.log(value) : value), kind };
}

function chartGrid(dim, place, box, y, theme) {
  const { left, right } = box;
  const parts = [];
  const text = (x, at, content, anchor, color = theme.text) =>
    makeSvg("text", { x, y: at, "text-anchor": anchor, fill: color, "font-size": CHART_FONT }, content);
  for (const { value, text: content } of y.ticks) {
    const at = box.y(value);
    parts.push(makeSvg("line", { x1: left, x2: right, y1: at, y2: at, stroke: theme.line }), text(left - 7, at + 4, content, "end"));
  }
  const bottom = CHART.top + CHART.plot;
  const span = right - left;
  const ticks = place.kind === "index"
    ? axisTicks(dim, span, chartText).map(({ at, text: content }) => [place.x(Math.round(at)), content])
    : niceValues(Math.min(dim.values[0], dim.values.at(-1)), Math.max(dim.values[0], dim.values.at(-1)), Math.min(8, span / 70), place.kind === "log")
      .map((value) => [place.ofValue(value), formatTick(value)]);
  for (const [x, content] of ticks) {
    parts.push(makeSvg("line", { x1: x, x2: x, y1: bottom, y2: bottom + 5, stroke: theme.muted }));
    const label = text(x, bottom + 17, tickName(content), box.slant ? "end" : "middle");
    if (box.slant) label.setAttribute("transform", `rotate(${-SLANT} ${x} ${bottom + 11})`);
    parts.push(label);
  }
  parts.push(text(left + span / 2, box.height - 4, dimTitle(dim), "middle", theme.muted));
  return parts;
}

function chartLines(cube, dim, lines, place, box) {
  const ends = lines.map((line, policy) => ({ policy, y: box.y(line.findLast(Number.isFinite) ?? 0), label: 0 }));
  spreadLabels(ends);
  return cube.policies.map((_, i) => i).reverse().flatMap((policy) => {
    const color = policyColor(cube.policies, policy);
    const stroke = { fill: "none", stroke: color, "stroke-width": lineWidth(policy), "stroke-linejoin": "round" };
    if (lineDash(policy)) stroke["stroke-dasharray"] = lineDash(policy);
    const points = Array.from(lines[policy], (value, i) => [place.x(i).toFixed(1), value]);
    const path = points.map(([x, value], i) =>
      (Number.isFinite(value) ? `${i && Number.isFinite(points[i - 1][1]) ? "L" : "M"}${x} ${box.y(value).toFixed(1)}` : "")).join("");
    const parts = [makeSvg("path", { ...stroke, d: path })];
    const dots = points.length <= MOST_DOTS ? points.filter(([, value]) => Number.isFinite(value)) : [];
    for (const [x, value] of dots) parts.push(makeSvg("circle", { cx: x, cy: box.y(value).toFixed(1), r: 2 + lineWidth(policy) / 2, fill: color }));
    return [...parts, ...endBadge(ends[policy], place.x(dim.values.length - 1), box.right, color)];
  });
}

/** Coinciding lines stay visible: the ones drawn first are wider. */
function lineWidth(policy) {
  return Math.min(8, 2 + 1.5 * policy);
}

function lineDash(policy) {
  return policy ? DASHES[policy % DASHES.length] : "";
}

function endBadge({ policy, y, label }, x, right, color) {
  const mark = { x: right + 23, y: label + 4.5, "text-anchor": "middle", "font-size": CHART_FONT, "font-weight": 600, fill: inkOn(color) };
  return [makeSvg("line", { x1: x, y1: y, x2: right + 14, y2: label, stroke: color, "stroke-width": 1 }),
    makeSvg("rect", { x: right + 14, y: label - 9, width: 18, height: 18, rx: 3, fill: color }),
    makeSvg("text", mark, policyMark(policy))];
}

/** A piece of a line with its number, for the key. */
function lineSample(policies, policy) {
  const color = policyColor(policies, policy);
  const line = { x1: 0, x2: 30, y1: 9, y2: 9, stroke: color, "stroke-width": lineWidth(policy), "stroke-dasharray": lineDash(policy) || "none" };
  return makeSvg("svg", { viewBox: "0 0 56 18", width: 56, height: 18, "aria-hidden": "true" }, makeSvg("line", line),
    makeSvg("rect", { x: 36, width: 18, height: 18, rx: 3, fill: color }),
    makeSvg("text", { x: 45, y: 13.5, "text-anchor": "middle", "font-size": CHART_FONT, "font-weight": 600, fill: inkOn(color) }, policyMark(policy)));
}

/** Moves the labels of line ends apart, within the drawing. */
function spreadLabels(ends) {
  const gap = Math.min(20, (CHART.plot + 20) / ends.length);
  const sorted = [...ends].sort((a, b) => a.y - b.y || a.policy - b.policy);
  sorted.forEach((end, i) => { end.label = Math.max(end.y, i ? sorted[i - 1].label + gap : 10); });
  let lowest = CHART.top + CHART.plot + 14;
  for (const end of sorted.reverse()) {
    end.label = Math.min(end.label, lowest);
    lowest = end.label - gap;
  }
}
