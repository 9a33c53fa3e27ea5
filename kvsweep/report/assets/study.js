// The page of a cluster study: the viewer, with a table of each point that has every figure.

/** A row for each figure, a column for each choice. */
class StudyReadOut extends ReadOut {
  build(cube, theme) {
    Object.assign(this, { cube, theme, look: stateLook(cube, "verdict", theme) });
    this.figures = Object.entries(cube.views).filter(([, view]) => !view.plane);
    this.where = make("p", { class: "where" });
    this.cells = cube.policies.map(() => ({}));
    const heads = cube.policies.map((policy, i) =>
      make("th", { scope: "col", title: policy.label }, make("span", { class: "clip" }, `${policyMark(i)} ${policy.label}`)));
    const row = (label, name, fill) =>
      make("tr", {}, make("th", { scope: "row" }, label),
        ...cube.policies.map((_, policy) => make("td", { id: `${this.id}-${name}-${policy}`, class: name }, ...fill(policy))));
    const state = row("State", "verdict", (policy) => {
      this.cells[policy].verdict = { swatch: makeSwatch(), data: make("data") };
      return Object.values(this.cells[policy].verdict);
    });
    const numbers = this.figures.map(([name, view]) => row(view.label, name, (policy) => [(this.cells[policy][name] = make("data"))]));
    this.root.replaceChildren(this.where,
      make("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": this.name },
        make("table", { class: "readout" },
          make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Choice"), ...heads)),
          make("tbody", {}, state, ...numbers))));
  }

  update(point) {
    const { cube, look } = this;
    this.where.textContent = pointText(cube, point);
    this.cells.forEach((cells, policy) => {
      const code = cube.stored("verdict", policy, point);
      paintSwatch(cells.verdict.swatch, look.tiles[code], look.letters[code], look.inks[code]);
      setData(cells.verdict.data, code, look.texts[code]);
      for (const [name] of this.figures) {
        const value = cube.value(name, policy, point);
        setData(cells[name], value, formatNumber(value));
      }
    });
  }

  /** One sentence on a point, for screen readers. */
  spoken(cube, point) {
    const { texts } = stateLook(cube, "verdict", LIGHT);
    return spokenPoint(cube, point, (policy) =>
      `${texts[cube.stored("verdict", policy, point)]}, mean TTFT ${formatNumber(cube.value("ttft_mean", policy, point), 3)} s`);
  }
}

viewer(embeddedSource(), StudyReadOut).then((view) => { globalThis.kvsweepView = view; }, (error) => {
  document.getElementById("kv-busy").textContent = `The maps cannot be shown: ${error.message}`;
  throw error;
});
