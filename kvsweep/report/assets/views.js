// What a map can show, and the colour scale of each continuous quantity.

const VIEWS = {
  verdict: { label: "SLO state (four states)" },
  total_time: { label: "Total time [s]", unit: "s" },
  reassigned_hit_blocks: { label: "Hit blocks recomputed, k [blocks]", unit: "blocks" },
  gpu_utilization: { label: "GPU utilisation (limit 1)", unit: "" },
  storage_utilization: { label: "Storage utilisation (limit 1)", unit: "" },
  slo_margin: { label: "Margin to the latency target [s]", unit: "s" },
};

/**
 * Colour scale of a view, the same at every slider position: `code(value)` is 0..255, `ticks` are [{value, at 0..1}],
 * `limit` a value whose contour is drawn.
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
    const ticks = niceValues(0, reach, 4, false).concat(bend).filter((v) => v > 0);
    return scaleOf((v) => 0.5 - Math.asinh(v / bend) / full / 2, [0, ...thin(ticks), ...thin(ticks).map((v) => -v)], DIVERGING, 0);
  }
  const [low, high] = ranges[quantity];
  if (low > 0 && high / low > 30) {
    const span = Math.log(high / low);
    return scaleOf((v) => Math.log(v / low) / span, niceValues(low, high, 5, true), SEQUENTIAL);
  }
  const from = quantity === "total_time" ? low : 0;
  return scaleOf((v) => (v - from) / (high - from || 1), niceValues(from, high, 5, false), SEQUENTIAL);
}

function scaleOf(place, values, anchors, limit = null) {
  const clamp = (share) => (Number.isNaN(share) ? 0 : Math.min(1, Math.max(0, share)));
  const ticks = values.map((value) => ({ value, at: clamp(place(value)) })).sort((a, b) => a.at - b.at);
  return { code: (value) => Math.round(255 * clamp(place(value))), ticks, colors: ramp(anchors), limit };
}

function powers(low, high) {
  const found = [];
  for (let power = low; power <= high; power += high - low > 2 ? 1 : 0.5) found.push(Number((10 ** power).toPrecision(2)));
  return found;
}

function thin(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length <= 3 ? sorted : [sorted[0], sorted[sorted.length >> 1], sorted.at(-1)];
}

/** [least, greatest] value of an axis or fixed coordinate. */
function axisRange(cube, name) {
  const dim = cube.dim(name);
  const values = dim ? dim.values : [cube.header.scalars[name]];
  return [Math.min(...values), Math.max(...values)];
}

/** ln(T of restore / T of recompute) over a view; null where either policy is missing. */
function breakEvenField(cube, view) {
  const pair = ["default_policy", "all_compute"].map((id) => cube.policies.findIndex((policy) => policy.id === id));
  if (pair.includes(-1)) return null;
  const [restore, recompute] = pair.map((policy) => cube.slice("total_time", policy, view));
  return restore.map((time, i) => Math.max(-50, Math.min(50, Math.log(time / recompute[i]) || 0)));
}

/** Line segments [x0, y0, x1, y1], in cells from the first cell's centre, where `field` crosses zero. */
function zeroContour(field, nx, ny) {
  const segments = [];
  for (let y = 0; y + 1 < ny; y++) {
    for (let x = 0; x + 1 < nx; x++) {
      const corner = [field[y * nx + x], field[y * nx + x + 1], field[(y + 1) * nx + x + 1], field[(y + 1) * nx + x]];
      const places = [];
      for (let side = 0; side < 4; side++) {
        const from = corner[side];
        const to = corner[(side + 1) % 4];
        if (from > 0 === to > 0) continue;
        const t = from / (from - to);
        places.push([[x + t, y], [x + 1, y + t], [x + 1 - t, y + 1], [x, y + 1 - t]][side]);
      }
      for (let i = 0; i + 1 < places.length; i += 2) segments.push([...places[i], ...places[i + 1]]);
    }
  }
  return segments;
}
