// Everything known of one point, all policies side by side.

const READ_OUTS = [
  ["total_time", "Total time", "s"],
  ["storage_time", "Restore", "s"],
  ["recompute_time", "Recompute", "s"],
  ["slo_margin", "Margin", "s"],
  ["gpu_utilization", "GPU utilisation", ""],
  ["storage_utilization", "Storage utilisation", ""],
  ["storage_tokens", "Restored", "tokens"],
  ["recompute_tokens", "Recomputed", "tokens"],
  ["reassigned_tokens", "of these hits, k", "tokens"],
];

/** Width of the names of the rows, and least width of a column of numbers [px]. */
const ROW_NAMES = 112;
const LEAST_COLUMN = 84;

/** Text of a point: every axis with its value. */
function pointText(cube, point) {
  return cube.dims.filter((dim) => !dim.held).map((dim) => `${dim.label} ${dimValue(dim, point[dim.name])}`).join(" · ");
}

/**
 * The table of a point inside `root`; `id` prefixes the cells' ids. Built once, then only its texts change. What does not
 * fit beside each other stands in several tables, so that no column is out of sight.
 */
class ReadOut {
  constructor(root, id, name) {
    Object.assign(this, { root, id, name, cube: null, width: 0 });
  }

  /** Notes how wide the table may be; asked only when that may change. */
  measure() {
    this.width = this.root.clientWidth;
  }

  /** Shows a point, or with null the text `empty`. */
  show(cube, point, theme, empty = "") {
    if (!point) {
      this.cube = null;
      this.root.replaceChildren(make("p", { class: "where" }, empty));
      return;
    }
    if (!this.width) this.measure();
    const shown = [cube, theme, this.width];
    if (!this.cube || shown.some((part, i) => part !== this.shown[i])) this.build(cube, theme);
    this.shown = shown;
    this.update(point);
  }

  build(cube, theme) {
    Object.assign(this, { cube, theme, look: stateLook(cube, "verdict", theme) });
    this.where = make("p", { class: "where" });
    this.cells = cube.policies.map(() => ({}));
    const rows = [["State", "verdict", (policy) => {
      this.cells[policy].verdict = { swatch: makeSwatch(), data: make("data") };
      return Object.values(this.cells[policy].verdict);
    }], ...this.rows(cube)];
    const tables = this.pieces(cube.policies.length).map((policies) => this.table(cube, policies, rows));
    this.root.replaceChildren(this.where, ...tables);
  }

  /** Policies that share a table, as lists of their indices. */
  pieces(count) {
    const room = Math.max(1, Math.floor(((this.width || 480) - ROW_NAMES) / LEAST_COLUMN));
    const size = Math.ceil(count / Math.ceil(count / room));
    return Array.from({ length: Math.ceil(count / size) }, (_, i) => [...Array(count).keys()].slice(i * size, (i + 1) * size));
  }

  table(cube, policies, rows) {
    const heads = policies.map((i) => make("th", { scope: "col" }, wrapped(`${policyMark(i)} ${cube.policies[i].label}`)));
    const body = rows.map(([label, name, fill]) =>
      make("tr", {}, make("th", { scope: "row" }, label),
        ...policies.map((policy) => make("td", { id: `${this.id}-${name}-${policy}`, class: name }, ...fill(policy)))));
    return make("table", { class: "readout", "aria-label": this.name },
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, this.corner), ...heads)), make("tbody", {}, ...body));
  }

  /** Head of the column of names. */
  get corner() {
    return "Policy";
  }

  /** Rows below the state: label, name of the cells, and what fills the cell of a policy. */
  rows() {
    const numbers = READ_OUTS.map(([quantity, label, unit]) => [unit ? `${label} [${unit}]` : label, quantity, (policy) => {
      const parts = { data: make("data"), bar: null, over: null };
      if (quantity === "storage_time" || quantity === "recompute_time") {
        parts.bar = make("span", { class: `time-bar bar-${quantity}`, "aria-hidden": "true" });
      } else if (quantity.endsWith("_utilization")) parts.over = make("span", { class: "over" });
      this.cells[policy][quantity] = parts;
      return Object.values(parts).filter((part) => part);
    }]);
    return [...numbers, ["Decision", "mode", (policy) => [(this.cells[policy].mode = document.createTextNode(""))]]];
  }

  /** One sentence on a point, for screen readers. */
  spoken(cube, point) {
    return spokenPoint(cube, point, (policy) =>
      `${STATE_TEXTS[cube.stored("verdict", policy, point)]}, ${formatNumber(cube.value("total_time", policy, point), 3)} s`);
  }

  update(point) {
    const { cube } = this;
    const outcomes = cube.policies.map((_, policy) => cube.outcome(policy, point));
    const times = outcomes.flatMap((each) => [each.storage_time, each.recompute_time]).filter(Number.isFinite);
    const longest = Math.max(...times, 1e-300);
    this.where.replaceChildren(pointText(cube, point), make("br"), ratesText(cube, point));
    outcomes.forEach((outcome, policy) => {
      const cells = this.cells[policy];
      for (const [quantity] of READ_OUTS) {
        const { data, bar, over } = cells[quantity];
        setData(data, outcome[quantity], formatNumber(outcome[quantity]));
        if (bar) bar.style.width = `${Math.min(100, (100 * outcome[quantity]) / longest)}%`;
        if (over) over.textContent = outcome[quantity] > 1 ? " over" : "";
      }
      this.updateState(policy, point);
      cells.mode.data = outcome.mode.replaceAll("_", " ");
    });
  }

  updateState(policy, point) {
    const { cube, look } = this;
    const { swatch, data } = this.cells[policy].verdict;
    const code = cube.stored("verdict", policy, point);
    paintSwatch(swatch, look.tiles[code], look.letters[code], look.inks[code]);
    setData(data, code, look.texts[code]);
  }
}

function ratesText(cube, point) {
  const rate = (name) => formatNumber(cube.stored(name, null, point) * cube.stored("tokens_per_block", null, point));
  return `Restore ${rate("storage_throughput")} tokens/s, recompute ${rate("recompute_throughput")} tokens/s`;
}

/** One sentence on a point, for screen readers: what `spoken(policy)` says of each. */
function spokenPoint(cube, point, spoken) {
  const parts = cube.policies.map((policy, i) => `${policy.label.slice(0, 60)}: ${spoken(i)}`);
  return `${pointText(cube, point)}. ${parts.join("; ")}.`;
}
