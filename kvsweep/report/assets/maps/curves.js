// A view of one axis: curves in place of maps of one row.

/** The curves inside `root`; `on` hears of the cursor and of pins as the maps' does. */
class Curves {
  constructor(root, on) {
    Object.assign(this, { root, on });
    const title = make("figcaption");
    const plot = make("div", { class: "curves", tabIndex: 0, role: "application", "aria-roledescription": "chart" });
    plot.setAttribute("aria-describedby", "kv-keys");
    this.figure = make("figure", { class: "panel wide", hidden: true }, title, plot);
    Object.assign(this, { title, plot, chart: new LineChart(plot) });
    root.prepend(this.figure);
    plot.addEventListener("pointermove", (event) => this.point(event, on.cursor));
    plot.addEventListener("click", (event) => this.point(event, on.pin));
    plot.addEventListener("keydown", (event) => onMapKey(event, this.state, this.cube, on));
  }

  point(event, act) {
    if (event.target.closest("svg")) act(this.chart.indexAt(this.cube.dim(this.state.x), event.clientX), 0);
  }

  measure() {
    this.chart.measure();
  }

  /** Shows the view of `state`, whose y axis has one value, or with null nothing. */
  show(cube, state, theme) {
    this.figure.hidden = !state;
    if (!state) return;
    Object.assign(this, { cube, state });
    const { label } = cube.views[state.view];
    const dim = cube.dim(state.x);
    if (!this.chart.width) this.measure();
    const held = cube.dims.filter(({ name }) => name !== state.x).map(({ name }) => state.at[name]).join(".");
    const lines = cube.policies.map((_, policy) => cube.slice(state.view, policy, state));
    const spec = { dim, lines, y: valueScale(lines), key: `${state.view} ${held}`, name: `${label} by ${dim.label}, a line for each` };
    this.title.replaceChildren(make("span", { class: "name" }, label));
    this.plot.setAttribute("aria-label", `${label}, over ${dimTitle(dim)}`);
    this.chart.show(cube, spec, state.at[state.x], theme);
  }
}

/** Whether `state` shows numbers over an axis of one value, of which a map would be one row. */
function showsCurves(cube, state) {
  return !cube.views[state.view].plane && cube.dim(state.y).values.length === 1 && cube.dim(state.x).values.length > 1;
}
