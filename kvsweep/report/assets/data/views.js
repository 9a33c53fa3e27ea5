// What a map of a sweep can show, and the colour scale of each continuous quantity. A view with a `plane` draws its codes.

const VIEWS = {
  verdict: { label: "SLO state (four states)", plane: "verdict" },
  total_time: { label: "Total time [s]", unit: "s" },
  reassigned_tokens: { label: "Hits recomputed, k [tokens]", unit: "tokens" },
  gpu_utilization: { label: "GPU utilisation (limit 1)", unit: "" },
  storage_utilization: { label: "Storage utilisation (limit 1)", unit: "" },
  slo_margin: { label: "Margin to the latency target [s]", unit: "s" },
};

/**
 * Colour scale of a view, the same at every slider position: `code(value)` is 0..255, `ticks` are [{value, at 0..1}]
 * with the ones that matter most first, `limit` is a value whose contour is drawn.
 */
function colorScale(cube, quantity) {
  const { ranges } = cube.header;
  if (quantity.endsWith("_utilization")) {
    const [low, high] = ranges[quantity === "gpu_utilization" ? "recompute_time" : "storage_time"];
    const rates = axisRange(cube, "request_rate");
    const reach = Math.max(Math.abs(Math.log10(rates[0] * low || 1)), Math.abs(Math.log10(rates[1] * high || 1)));
    const decades = Math.min(2, Math.max(0.5, Math.ceil(reach * 2) / 2));
    return scaleOf((v) => Math.log10(v) / decades / 2 + 0.5, powers(-decades, decades), DIVERGING, 1);
  }
  if (quantity === "slo_margin") {
    const targets = axisRange(cube, "p95_seconds");
    const reach = Math.max(targets[1], ranges.total_time[1] - targets[0], 1e-9);
    const bend = Math.max(targets[0] / 4, reach / 1000);
    const full = Math.asinh(reach / bend);
    const sizes = niceValues(bend, reach, 4, true).reverse();
    return scaleOf((v) => 0.5 - Math.asinh(v / bend) / full / 2, [0, ...sizes.flatMap((v) => [v, -v])], DIVERGING, 0);
  }
  if (quantity === "time_ratio") {
    const decades = Math.log10(ranges.time_ratio) || 0.01;
    const sizes = niceValues(1, ranges.time_ratio, 3, ranges.time_ratio > 5).filter((v) => v > 1).reverse();
    return scaleOf((v) => Math.log10(v) / decades / 2 + 0.5, [1, ...sizes.flatMap((v) => [v, Number((1 / v).toPrecision(2))])], DIVERGING);
  }
  const [low, high] = ranges[quantity];
  if (low > 0 && high / low > 30) {
    const span = Math.log(high / low);
    return scaleOf((v) => Math.log(v / low) / span, niceValues(low, high, 5, true), SEQUENTIAL);
  }
  const free = quantity.startsWith("total_time") || cube.views[quantity]?.fromLow;
  const [from, to] = free ? wideRange(low, high) : [0, high];
  return scaleOf((v) => (v - from) / (to - from || 1), niceValues(from, to, 5, false), SEQUENTIAL);
}

function scaleOf(place, values, anchors, limit = null) {
  const clamp = (share) => (Number.isNaN(share) ? 0 : Math.min(1, Math.max(0, share)));
  const ticks = values.map((value) => ({ value, at: clamp(place(value)) }));
  return { code: (value) => Math.round(255 * clamp(place(value))), ticks, colors: ramp(anchors), limit };
}

function powers(low, high) {
  const found = [];
  for (let power = low; power <= high; power += high - low > 2 ? 1 : 0.5) found.push(Number((10 ** power).toPrecision(2)));
  return found;
}

/** [least, greatest] value of an axis or fixed coordinate. */
function axisRange(cube, name) {
  const dim = cube.dim(name);
  const values = dim ? dim.values : [cube.header.scalars[name]];
  return [Math.min(...values), Math.max(...values)];
}

/** Least |ln| of two times that counts as a difference: below it they are the same number, rounded differently. */
const TIE = 2e-6;

/** ln(T of restore / T of recompute) over a view; null where either policy is missing. */
function breakEvenField(cube, view) {
  if (!("total_time.0" in cube.header.planes)) return null;
  const pair = ["default_policy", "all_compute"].map((id) => cube.policies.findIndex((policy) => policy.id === id));
  if (pair.includes(-1)) return null;
  const [restore, recompute] = pair.map((policy) => cube.slice("total_time", policy, view));
  const field = restore.map((time, i) => Math.max(-50, Math.min(50, Math.log(time / recompute[i]) || 0)));
  return settleTies(field, cube.dim(view.x).values.length);
}

/** `field` with ties on the side of a neighbour, so that a whole edge of them (no hits, say) draws no line. */
function settleTies(field, nx) {
  for (const step of [1, -1, nx, -nx]) {
    for (let n = 0; n < field.length; n++) {
      const i = step > 0 ? field.length - 1 - n : n;
      const sameRow = Math.floor(i / nx) === Math.floor((i + step) / nx);
      if (Math.abs(field[i]) > TIE || !(Math.abs(step) === nx || sameRow)) continue;
      const beside = field[i + step];
      if (beside && Math.abs(beside) > TIE) field[i] = Math.sign(beside) * 2 * TIE;
    }
  }
  return field.map((value) => (Math.abs(value) > TIE ? value : 0));
}

/**
 * Line segments [x0, y0, x1, y1], in cells from the first cell's centre, where `field` crosses zero. The outermost
 * half cells repeat the values at the rim, so that lines reach it.
 */
function zeroContour(field, nx, ny) {
  const [xs, ys] = [nx, ny].map((n) => [-0.5, ...Array(n).keys(), n - 0.5]);
  const value = (i, j) => field[clampIndex(j - 1, ny) * nx + clampIndex(i - 1, nx)];
  const segments = [];
  for (let j = 0; j <= ny; j++) {
    for (let i = 0; i <= nx; i++) {
      const corner = [value(i, j), value(i + 1, j), value(i + 1, j + 1), value(i, j + 1)];
      const places = [];
      for (let side = 0; side < 4; side++) {
        const [from, to] = [corner[side], corner[(side + 1) % 4]];
        if (from > 0 === to > 0) continue;
        const t = from / (from - to);
        const [x, y] = [[t, 0], [1, t], [1 - t, 1], [0, 1 - t]][side];
        places.push([xs[i] + x * (xs[i + 1] - xs[i]), ys[j] + y * (ys[j + 1] - ys[j])]);
      }
      for (let k = 0; k + 1 < places.length; k += 2) segments.push([...places[k], ...places[k + 1]]);
    }
  }
  return segments;
}
