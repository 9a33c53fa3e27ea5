// Everything known of one point, all policies side by side.

const READ_OUTS = [
  ["total_time", "Total time", "s"],
  ["storage_time", "Restore", "s"],
  ["recompute_time", "Recompute", "s"],
  ["slo_margin", "Margin", "s"],
  ["gpu_utilization", "GPU utilisation", ""],
  ["storage_utilization", "Storage utilisation", ""],
  ["storage_blocks", "Blocks restored", ""],
  ["recompute_blocks", "Blocks recomputed", ""],
  ["reassigned_hit_blocks", "of these hits, k", ""],
];

/** Text of a point: every axis with its value. */
function pointText(cube, point) {
  return cube.dims.map((dim) => `${dim.label} ${dimValue(dim, point[dim.name])}`).join(" · ");
}

/** The table of a point inside `root`; `id` prefixes the cells' ids. Built once, then only its texts change. */
class ReadOut {
  constructor(root, id, name) {
    Object.assign(this, { root, id, name, cube: null });
  }

  /** Shows a point, or with null the text `empty`. */
  show(cube, point, theme, empty = "") {
    if (!point) {
      this.cube = null;
      this.root.replaceChildren(make("p", { class: "where" }, empty));
      return;
    }
    if (this.cube !== cube || this.theme !== theme) this.build(cube, theme);
    this.update(point);
  }

  build(cube, theme) {
    Object.assign(this, { cube, theme, tiles: stateTiles(theme) });
    this.where = make("p", { class: "where" });
    const heads = cube.policies.map((policy, i) =>
      make("th", { scope: "col", title: policy.label }, make("span", { class: "clip" }, `${policyMark(i)} ${policy.label}`)));
    const row = (label, name, fill) =>
      make("tr", {}, make("th", { scope: "row" }, label),
        ...cube.policies.map((_, policy) => make("td", { id: `${this.id}-${name}-${policy}`, class: name }, ...fill(policy))));
    this.cells = cube.policies.map(() => ({}));
    const numbers = READ_OUTS.map(([quantity, label, unit]) =>
      row(unit ? `${label} [${unit}]` : label, quantity, (policy) => {
        const parts = { data: make("data"), bar: null, over: null };
        if (quantity === "storage_time" || quantity === "recompute_time") {
          parts.bar = make("span", { class: `time-bar bar-${quantity}`, "aria-hidden": "true" });
        } else if (quantity.endsWith("_utilization")) parts.over = make("span", { class: "over" });
        this.cells[policy][quantity] = parts;
        return Object.values(parts).filter((part) => part);
      }));
    const state = row("State", "verdict", (policy) => {
      this.cells[policy].verdict = { swatch: makeSwatch(), data: make("data") };
      return Object.values(this.cells[policy].verdict);
    });
    const mode = row("Decision", "mode", (policy) => [(this.cells[policy].mode = document.createTextNode(""))]);
    this.root.replaceChildren(this.where,
      make("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": this.name },
        make("table", { class: "readout" },
          make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Policy"), ...heads)),
          make("tbody", {}, state, ...numbers, mode))));
  }

  /** One sentence on a point, for screen readers. */
  spoken(cube, point) {
    return spokenPoint(cube, point, (policy) =>
      `${VERDICTS[cube.stored("verdict", policy, point)]}, ${formatNumber(cube.value("total_time", policy, point), 3)} s`);
  }

  update(point) {
    const { cube, theme } = this;
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
      const { verdict } = outcome;
      paintSwatch(cells.verdict.swatch, this.tiles[verdict], STATE_LETTERS[verdict], theme.ink[verdict]);
      setData(cells.verdict.data, verdict, VERDICTS[verdict]);
      cells.mode.data = outcome.mode.replaceAll("_", " ");
    });
  }
}

function ratesText(cube, point) {
  const rate = (name) => formatNumber(cube.stored(name, null, point));
  return `Restore ${rate("storage_throughput")} blocks/s, recompute ${rate("recompute_throughput")} blocks/s`;
}

/** One sentence on a point, for screen readers: what `spoken(policy)` says of each. */
function spokenPoint(cube, point, spoken) {
  const parts = cube.policies.map((policy, i) => `${policy.label.slice(0, 60)}: ${spoken(i)}`);
  return `${pointText(cube, point)}. ${parts.join("; ")}.`;
}
