// The page of a comparison: the viewer, with a table of each point that has A beside B.

const SIDES = ["a", "b"];
const PAIRS = [["total_time", "Total time [s]"], ["storage_time", "Restore [s]"], ["recompute_time", "Recompute [s]"]];

/** For two sweeps: a group of rows for each policy, a column for A, for B and for their ratio. */
class PairReadOut extends ReadOut {
  build(cube, theme) {
    const looks = Object.fromEntries(["verdict", "verdict_a", "verdict_b"].map((plane) => [plane, stateLook(cube, plane, theme)]));
    Object.assign(this, { cube, theme, looks });
    this.where = make("p", { class: "where" });
    this.cells = cube.policies.map(() => ({}));
    const heads = ["At this point", "A", "B", "B / A"].map((text) => make("th", { scope: "col" }, text));
    this.root.replaceChildren(this.where,
      make("table", { class: "readout pair", "aria-label": this.name }, make("thead", {}, make("tr", {}, ...heads)),
        ...cube.policies.map((policy, i) => this.makeGroup(policy, i))));
  }

  makeGroup(policy, index) {
    const cells = this.cells[index];
    const cell = (name, ...parts) => make("td", { id: `${this.id}-${name}-${index}`, class: name }, ...parts);
    const state = (plane) => {
      cells[plane] = { swatch: makeSwatch(), data: make("data") };
      return cell(plane, cells[plane].swatch, cells[plane].data);
    };
    const number = (name) => cell(name, (cells[name] = make("data")));
    const change = state("verdict");
    change.colSpan = 3;
    return make("tbody", {},
      make("tr", { class: "group" },
        make("th", { scope: "rowgroup" }, wrapped(`${policyMark(index)} ${policy.label}`)), change),
      make("tr", {}, make("th", { scope: "row" }, "State"), ...SIDES.map((side) => state(`verdict_${side}`)), make("td")),
      ...PAIRS.map(([quantity, label]) =>
        make("tr", {}, make("th", { scope: "row" }, label), ...[...SIDES, "ratio"].map((part) => number(`${quantity}_${part}`)))));
  }

  update(point) {
    const { cube, looks } = this;
    this.where.textContent = pointText(cube, point);
    this.cells.forEach((cells, policy) => {
      for (const [plane, { texts, letters, tiles, inks }] of Object.entries(looks)) {
        const code = cube.stored(plane, policy, point);
        paintSwatch(cells[plane].swatch, tiles[code], letters[code], inks[code]);
        setData(cells[plane].data, code, texts[code]);
      }
      for (const [quantity] of PAIRS) {
        const [a, b] = SIDES.map((side) => cube.value(`${quantity}_${side}`, policy, point));
        setData(cells[`${quantity}_a`], a, formatNumber(a));
        setData(cells[`${quantity}_b`], b, formatNumber(b));
        setData(cells[`${quantity}_ratio`], a === b ? 1 : b / a, a === b ? "equal" : formatRatio(b / a));
      }
    });
  }

  /** One sentence on a point, for screen readers. */
  spoken(cube, point) {
    const { texts } = stateLook(cube, "verdict", LIGHT);
    return spokenPoint(cube, point, (policy) => {
      const [a, b] = SIDES.map((side) => formatNumber(cube.value(`total_time_${side}`, policy, point), 3));
      return `${texts[cube.stored("verdict", policy, point)]}, ${a} s in A, ${b} s in B`;
    });
  }
}

function formatRatio(ratio) {
  return Number.isFinite(ratio) ? `× ${formatNumber(ratio, 3)}` : formatNumber(ratio);
}

showEmbedded(PairReadOut);
