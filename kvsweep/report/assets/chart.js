// Success rate along one axis, one line per policy.

const CHART = { width: 760, height: 300, left: 62, right: 190, top: 14, bottom: 48 };

/** The drawing inside `root`; while its lines stay the same only the marker of the current value moves. */
class SuccessChart {
  constructor(root) {
    Object.assign(this, { root, shown: [] });
  }

  /** Shows the success rate along the dim `state.chart`. */
  show(cube, state, theme) {
    const dim = cube.dim(state.chart);
    const shown = [cube, dim, theme];
    if (state.held || this.held || shown.some((part, i) => part !== this.shown[i])) this.build(cube, dim, state, theme);
    this.shown = shown;
    this.held = state.held;
    const x = chartPlace(dim).x(state.at[dim.name]);
    for (const end of ["x1", "x2"]) this.marker.setAttribute(end, x);
  }

  build(cube, dim, state, theme) {
    const rates = cube.policies.map((_, policy) => cube.success(policy, dim.name, state.held ? state : null));
    const place = chartPlace(dim);
    this.marker = makeSvg("line", { y1: CHART.top, y2: chartY(0), stroke: theme.muted, "stroke-dasharray": "4 4" });
    const svg = makeSvg("svg", { viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img",
      "aria-label": `Success rate by ${dim.label}, one line per policy; the numbers are in the table below the drawing` });
    svg.append(...chartGrid(dim, place, theme), ...chartLines(cube, dim, rates, place, theme), this.marker);
    this.root.replaceChildren(svg);
  }
}

/** Fills `root` with the numbers of the chart. */
function showChartTable(root, cube, state) {
  const dim = cube.dim(state.chart);
  const rates = cube.policies.map((_, policy) => cube.success(policy, dim.name, state.held ? state : null));
  const heads = cube.policies.map((policy) => make("th", { scope: "col", title: policy.label }, make("span", { class: "clip" }, policy.label)));
  const rows = dim.values.map((_, i) =>
    make("tr", {}, make("th", { scope: "row" }, dimValue(dim, i, 6)),
      ...rates.map((rate) => make("td", {}, makeData(rate[i], rate[i].toFixed(4))))));
  root.replaceChildren(make("table", { class: "numbers" },
    make("caption", {}, `Share of points that pass, by ${dim.label}`),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, dimTitle(dim)), ...heads)), make("tbody", {}, ...rows)));
}

function chartPlace(dim) {
  const kind = spacing(dim);
  const { values } = dim;
  const span = CHART.width - CHART.left - CHART.right;
  const scaled = kind === "log" ? values.map(Math.log) : kind === "linear" ? values : values.map((_, i) => i);
  const low = Math.min(scaled[0], scaled.at(-1));
  const wide = Math.abs(scaled.at(-1) - scaled[0]);
  const inset = kind === "index" ? span / values.length / 2 : 0;
  const along = (value) => CHART.left + inset + (wide ? ((value - low) / wide) * (span - 2 * inset) : span / 2);
  return { x: (index) => along(scaled[index]), ofValue: (value) => along(kind === "log" ? Math.log(value) : value), kind };
}

function chartY(rate) {
  return CHART.top + (1 - rate) * (CHART.height - CHART.top - CHART.bottom);
}

function chartGrid(dim, place, theme) {
  const right = CHART.width - CHART.right;
  const parts = [];
  const text = (x, y, content, anchor, color = theme.text) =>
    makeSvg("text", { x, y, "text-anchor": anchor, fill: color, "font-size": 13 }, content);
  for (const rate of [0, 0.25, 0.5, 0.75, 1]) {
    parts.push(makeSvg("line", { x1: CHART.left, x2: right, y1: chartY(rate), y2: chartY(rate), stroke: theme.line }));
    parts.push(text(CHART.left - 8, chartY(rate) + 4, `${rate * 100} %`, "end"));
  }
  const bottom = chartY(0);
  const span = right - CHART.left;
  const ticks = place.kind === "index"
    ? axisTicks(dim, span, (content) => Math.min(90, content.length * 7.5)).map(({ at, text: content }) => [place.x(Math.round(at)), content])
    : niceValues(Math.min(dim.values[0], dim.values.at(-1)), Math.max(dim.values[0], dim.values.at(-1)), 8, place.kind === "log")
      .map((value) => [place.ofValue(value), formatTick(value)]);
  const longest = place.kind === "index" ? Math.max(4, Math.floor(span / Math.max(1, ticks.length) / 7.5)) : 20;
  for (const [x, content] of ticks) {
    parts.push(makeSvg("line", { x1: x, x2: x, y1: bottom, y2: bottom + 5, stroke: theme.muted }));
    parts.push(text(x, bottom + 19, content.length > longest ? `${content.slice(0, longest - 1)}…` : content, "middle"));
  }
  parts.push(text(CHART.left + span / 2, CHART.height - 6, dimTitle(dim), "middle", theme.muted));
  return parts;
}

function chartLines(cube, dim, rates, place, theme) {
  const parts = [];
  const ends = rates.map((rate, policy) => ({ policy, y: chartY(rate.at(-1)), label: 0 }));
  spreadLabels(ends);
  const order = cube.policies.map((_, i) => i).reverse();
  for (const policy of order) {
    const color = policyColor(cube.policies, policy);
    const points = Array.from(rates[policy], (rate, i) => `${place.x(i).toFixed(1)},${chartY(rate).toFixed(1)}`);
    const dash = DASHES[policy % DASHES.length];
    // Coinciding lines stay visible: the ones drawn first are wider.
    const width = 2 + 1.5 * policy;
    const line = { points: points.join(" "), fill: "none", stroke: color, "stroke-width": Math.min(8, width), "stroke-linejoin": "round" };
    parts.push(makeSvg("polyline", policy && dash ? { ...line, "stroke-dasharray": dash } : line));
    if (points.length === 1) parts.push(makeSvg("circle", { cx: place.x(0), cy: chartY(rates[policy][0]), r: 3 + policy * 2, fill: color }));
    const { y, label } = ends[policy];
    const x = place.x(dim.values.length - 1);
    const right = CHART.width - CHART.right;
    parts.push(makeSvg("line", { x1: x, y1: y, x2: right + 18, y2: label, stroke: color, "stroke-width": 1 }));
    parts.push(makeSvg("rect", { x: right + 18, y: label - 9, width: 18, height: 18, rx: 3, fill: color }));
    parts.push(makeSvg("text", { x: right + 27, y: label + 4.5, "text-anchor": "middle", "font-size": 13, "font-weight": 600,
      fill: inkOn(color) }, policyMark(policy)));
    const name = cube.policies[policy].label;
    parts.push(makeSvg("text", { x: right + 42, y: label + 4.5, "font-size": 13, fill: theme.text },
      name.length > 19 ? `${name.slice(0, 18)}…` : name));
  }
  return parts;
}

/** Moves the labels of line ends apart, within the drawing. */
function spreadLabels(ends) {
  const gap = Math.min(22, (CHART.height - 24) / ends.length);
  const sorted = [...ends].sort((a, b) => a.y - b.y || a.policy - b.policy);
  sorted.forEach((end, i) => { end.label = Math.max(end.y, i ? sorted[i - 1].label + gap : 12); });
  let lowest = CHART.height - 14;
  for (const end of sorted.reverse()) {
    end.label = Math.min(end.label, lowest);
    lowest = end.label - gap;
  }
}
