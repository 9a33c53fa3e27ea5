// The numbers of a sweep: planes read from a source, sliced and counted.

const VERDICTS = ["fail", "throughput_only", "latency_only", "pass"];
const PASS = 3;
const TOP_CODE = 2 ** 24 - 1;

/** Names of the planes a policy may have, the ones a verdict picture needs first; a comparison has those of A and B. */
const FIRST_PLANES = ["verdict"];
const LATER_PLANES = ["total_time", "reassigned_hit_blocks", "storage_time", "recompute_time", "decision_mode",
  ...["verdict", "total_time", "storage_time", "recompute_time"].flatMap((name) => [`${name}_a`, `${name}_b`])];
const SHARED_PLANES = ["total_blocks", "miss_blocks", "storage_throughput", "recompute_throughput", "tokens_per_block"];
/** Quantities shown in tokens, by those in blocks. */
const IN_TOKENS = { reassigned_tokens: "reassigned_hit_blocks" };

/** A sweep in memory. `source` has a `header` and `bytes(name)`, a promise of the bytes of a plane. */
class Cube {
  constructor(source) {
    this.source = source;
    this.header = source.header;
    this.dims = this.header.dims;
    this.policies = this.header.policies;
    this.views = this.header.views ?? VIEWS;
    this.shape = this.dims.map((dim) => dim.values.length);
    this.size = this.shape.reduce((product, length) => product * length, 1);
    this.planes = new Map();
    this.successCache = new Map();
  }

  /** Reads the planes of all policies named in `quantities` and, with `shared`, those no policy owns, if there are any. */
  async read(quantities, shared = false) {
    const names = quantities.flatMap((quantity) => this.policies.map((_, policy) => `${quantity}.${policy}`));
    if (shared) names.push(...SHARED_PLANES);
    await Promise.all(names.filter((name) => name in this.header.planes).map((name) => this.readPlane(name)));
  }

  async readPlane(name) {
    const spec = this.header.planes[name];
    if (spec.type === "derived") return;
    const strides = new Int32Array(this.dims.length);
    let stride = 1;
    for (let d = this.dims.length - 1; d >= 0; d--) {
      if (!spec.dims.includes(this.dims[d].name)) continue;
      strides[d] = stride;
      stride *= this.shape[d];
    }
    const plane = { strides, size: stride };
    if (spec.type === "log24") {
      const [high, low] = await Promise.all([this.source.bytes(`${name}.hi`), this.source.bytes(`${name}.lo`)]);
      plane.at = (i) => decodeLog(spec, high[i] * 65536 + low[plane.size + i] * 256 + low[i]);
    } else {
      const bytes = await this.source.bytes(name);
      const values = { u1: Uint8Array, f4: Float32Array, f8: Float64Array }[spec.type];
      plane.values = spec.type === "u1" ? bytes : new values(bytes.buffer, bytes.byteOffset, stride);
      plane.at = (i) => plane.values[i];
    }
    this.planes.set(name, plane);
  }

  /** Quantities that a picture of states does not need. */
  get later() {
    return this.header.quantities ?? LATER_PLANES;
  }

  /** Words for the map of the policy that is best in each cell; without others, the simplest that suffices. */
  get best() {
    return this.header.best ?? { title: "Simplest sufficient", caption: "Simplest policy that suffices", none: "None suffices",
      note: "covered" };
  }

  /** What the maps are of, one each. */
  get who() {
    return this.header.who ?? "Policy";
  }

  /** Name of the plane of codes that `view` draws, or counts in the legend where it draws numbers. */
  codePlane(view) {
    return this.views[view].plane ?? "verdict";
  }

  dim(name) {
    return this.dims[this.dimIndex(name)];
  }

  dimIndex(name) {
    return this.dims.findIndex((dim) => dim.name === name);
  }

  /** Offset of a point (indices by dim name) in a plane. */
  offset(plane, point) {
    let offset = 0;
    for (let d = 0; d < this.dims.length; d++) offset += plane.strides[d] * point[this.dims[d].name];
    return offset;
  }

  /** Stored value of `quantity` of a policy at a point. */
  stored(quantity, policy, point) {
    const plane = this.planes.get(policy === null ? quantity : `${quantity}.${policy}`);
    return plane.at(this.offset(plane, point));
  }

  /** Everything known of a policy at a point. */
  outcome(policy, point) {
    const get = (quantity) => this.value(quantity, policy, point);
    const stored = (name) => this.stored(name, null, point);
    const reassigned = get("reassigned_hit_blocks");
    const tokens = stored("tokens_per_block");
    return {
      verdict: this.stored("verdict", policy, point),
      mode: this.header.modes[this.stored("decision_mode", policy, point)] ?? "",
      total_time: get("total_time"),
      storage_time: get("storage_time"),
      recompute_time: get("recompute_time"),
      reassigned_tokens: reassigned * tokens,
      storage_tokens: (stored("total_blocks") - stored("miss_blocks") - reassigned) * tokens,
      recompute_tokens: (stored("miss_blocks") + reassigned) * tokens,
      gpu_utilization: get("gpu_utilization"),
      storage_utilization: get("storage_utilization"),
      slo_margin: get("slo_margin"),
    };
  }

  /** Value of any quantity, stored or derived, at a point. */
  value(quantity, policy, point) {
    const [x, y] = this.dims.map((dim) => dim.name);
    return this.reader(quantity, policy, { x, y, at: point })(point[x], point[y]);
  }

  /** Function (ix, iy) => value of any quantity, stored or derived, over the axes of `view`. */
  reader(quantity, policy, view) {
    if (quantity === "gpu_utilization" || quantity === "storage_utilization") {
      const time = this.reader(quantity === "gpu_utilization" ? "recompute_time" : "storage_time", policy, view);
      const rate = this.coordinateReader("request_rate", view);
      return (ix, iy) => rate(ix, iy) * time(ix, iy);
    }
    if (quantity === "slo_margin") {
      const time = this.reader("total_time", policy, view);
      const target = this.coordinateReader("p95_seconds", view);
      return (ix, iy) => target(ix, iy) - time(ix, iy);
    }
    if (quantity === "time_ratio") {
      const [a, b] = ["total_time_a", "total_time_b"].map((name) => this.reader(name, policy, view));
      // A request of no blocks takes no time in either: that is no change.
      return (ix, iy) => (a(ix, iy) === b(ix, iy) ? 1 : b(ix, iy) / a(ix, iy));
    }
    if (quantity in IN_TOKENS) {
      const [blocks, tokens] = [this.reader(IN_TOKENS[quantity], policy, view), this.planeReader("tokens_per_block", view)];
      return (ix, iy) => blocks(ix, iy) * tokens(ix, iy);
    }
    if (!this.isDerived(quantity, policy)) return this.planeReader(`${quantity}.${policy}`, view);
    if (quantity === "total_time") {
      const [restore, recompute] = ["storage_time", "recompute_time"].map((name) => this.reader(name, policy, view));
      return (ix, iy) => Math.max(restore(ix, iy), recompute(ix, iy));
    }
    const [missing, rate] = ["miss_blocks", "recompute_throughput"].map((name) => this.planeReader(name, view));
    const reassigned = this.reader("reassigned_hit_blocks", policy, view);
    return (ix, iy) => (missing(ix, iy) + reassigned(ix, iy)) / rate(ix, iy);
  }

  planeReader(name, view) {
    const plane = this.planes.get(name);
    const [, , sx, sy] = this.steps(plane, view);
    const base = this.offset(plane, { ...view.at, [view.x]: 0, [view.y]: 0 });
    return (ix, iy) => plane.at(base + ix * sx + iy * sy);
  }

  coordinateReader(name, view) {
    const values = this.dim(name)?.values;
    if (name === view.x) return (ix) => values[ix];
    if (name === view.y) return (ix, iy) => values[iy];
    const held = values ? values[view.at[name]] : this.header.scalars[name];
    return () => held;
  }

  isDerived(quantity, policy) {
    return this.header.planes[`${quantity}.${policy}`].type === "derived";
  }

  /** Codes of a stored byte plane over the axes of `view`, row by row from y = 0. */
  codes(quantity, policy, view) {
    const plane = this.planes.get(`${quantity}.${policy}`);
    const [nx, ny, sx, sy] = this.steps(plane, view);
    const base = this.offset(plane, { ...view.at, [view.x]: 0, [view.y]: 0 });
    const codes = new Uint8Array(nx * ny);
    for (let iy = 0, cell = 0; iy < ny; iy++) {
      for (let ix = 0, i = base + iy * sy; ix < nx; ix++, i += sx) codes[cell++] = plane.values[i];
    }
    return codes;
  }

  /** Values of any quantity over the axes of `view`, row by row from y = 0. */
  slice(quantity, policy, view) {
    const nx = this.dim(view.x).values.length;
    const ny = this.dim(view.y).values.length;
    const read = this.reader(quantity, policy, view);
    const values = new Float64Array(nx * ny);
    for (let iy = 0, cell = 0; iy < ny; iy++) {
      for (let ix = 0; ix < nx; ix++) values[cell++] = read(ix, iy);
    }
    return values;
  }

  steps(plane, view) {
    const x = this.dimIndex(view.x);
    const y = this.dimIndex(view.y);
    return [this.shape[x], this.shape[y], plane.strides[x], plane.strides[y]];
  }

  /** Index of the simplest policy that passes in each cell, the number of policies where none does. */
  sufficient(view, verdicts = this.policies.map((_, policy) => this.codes("verdict", policy, view))) {
    const codes = new Uint8Array(verdicts[0].length).fill(this.policies.length);
    for (const policy of [...this.header.simplest].reverse()) {
      const verdict = verdicts[policy];
      for (let i = 0; i < codes.length; i++) if (verdict[i] === PASS) codes[i] = policy;
    }
    return codes;
  }

  /**
   * Share of points that pass, for each value of the dim `name`: over the whole sweep, or with `view` over its two
   * axes with every other dim held.
   */
  success(policy, name, view = null) {
    if (view) return this.heldSuccess(policy, name, view);
    const key = `${policy} ${name}`;
    if (!this.successCache.has(key)) this.successCache.set(key, this.wholeSuccess(policy, name));
    return this.successCache.get(key);
  }

  wholeSuccess(policy, name) {
    const plane = this.planes.get(`verdict.${policy}`);
    const d = this.dimIndex(name);
    const length = this.shape[d];
    const stride = plane.strides[d];
    const passes = new Float64Array(length);
    let each = plane.size;
    if (stride) {
      each = plane.size / length;
      for (let i = 0; i < plane.size; i++) if (plane.values[i] === PASS) passes[Math.floor(i / stride) % length]++;
    } else {
      passes.fill(plane.values.reduce((sum, code) => sum + (code === PASS), 0));
    }
    return passes.map((count) => count / each);
  }

  heldSuccess(policy, name, view) {
    const length = this.dim(name).values.length;
    const shares = new Float64Array(length);
    if (name === view.x || name === view.y) {
      const codes = this.codes("verdict", policy, view);
      const nx = this.dim(view.x).values.length;
      codes.forEach((code, i) => {
        if (code === PASS) shares[name === view.x ? i % nx : Math.floor(i / nx)]++;
      });
      return shares.map((count) => (count * length) / codes.length);
    }
    for (let i = 0; i < length; i++) {
      const codes = this.codes("verdict", policy, { ...view, at: { ...view.at, [name]: i } });
      shares[i] = codes.reduce((sum, code) => sum + (code === PASS), 0) / codes.length;
    }
    return shares;
  }
}

/** Number of cells with each code below `length`. */
function countCodes(codes, length) {
  const counts = new Array(length).fill(0);
  for (let i = 0; i < codes.length; i++) counts[codes[i]]++;
  return counts;
}

function decodeLog(spec, code) {
  if (code === 0) return 0;
  return code === TOP_CODE ? Infinity : Math.exp(spec.low + (code - 1) * spec.step);
}
