// The viewer: a state, and what follows from it on the page.

/**
 * Starts the viewer on the elements of maps.html and chart.html. A page may leave out the chart and the break-even.
 *
 * `source` has `header` (the JSON of kvsweep.report.payload) and `bytes(name)`, a promise of a plane's bytes; a
 * report embeds them, a server may fetch them. Returns {load, cube, state}; `load(source)` shows other data and
 * keeps what the reader has chosen as far as it fits. `PointTable` is the class that shows a point, like ReadOut.
 */
async function viewer(source, PointTable = ReadOut) {
  const view = new Viewer(PointTable);
  await view.load(source);
  return view;
}

class Viewer {
  constructor(PointTable = ReadOut) {
    const byId = (name) => document.getElementById(`kv-${name}`);
    this.parts = Object.fromEntries(["x", "y", "swap", "view", "chart", "held", "even", "even-note", "sliders", "maps", "legend",
      "cursor", "pinned", "unpin", "chart-drawing", "chart-table", "table", "table-policy", "table-body", "live", "busy",
      "chart-details"].map((name) => [name, byId(name)]));
    this.legend = new Legend(this.parts.legend);
    this.chart = this.parts.chart ? new LineChart(this.parts["chart-drawing"]) : null;
    this.cursor = new PointTable(this.parts.cursor, "kv-cursor", "Policies at the cursor");
    this.pinned = new PointTable(this.parts.pinned, "kv-pinned", "Policies at the pinned point");
    const on = {
      cursor: (ix, iy) => this.moveCursor(ix, iy),
      pin: (ix, iy) => { this.moveCursor(ix, iy); this.pin({ ...this.state.at }); },
      unpin: () => this.pin(null),
    };
    this.panels = new Panels(this.parts.maps, on);
    this.curves = new Curves(this.parts.maps, on);
    new ResizeObserver(() => this.redraw()).observe(this.parts.maps);
    this.speak = debounce(() => { this.parts.live.textContent = this.cursor.spoken(this.cube, this.state.at); }, 250);
    this.remember = debounce(() => history.replaceState(null, "", toFragment(this.state, this.cube)), 200);
    this.listen(byId);
  }

  listen(byId) {
    const { parts } = this;
    parts.x.addEventListener("change", () => this.setAxis("x", "y", parts.x.value));
    parts.y.addEventListener("change", () => this.setAxis("y", "x", parts.y.value));
    parts.view.addEventListener("change", () => this.set({ view: parts.view.value }));
    parts.chart?.addEventListener("change", () => this.set({ chart: parts.chart.value }));
    parts.held?.addEventListener("change", () => this.set({ held: parts.held.checked }));
    parts.even?.addEventListener("change", () => this.set({ breakEven: parts.even.checked }));
    parts["table-policy"].addEventListener("change", () => this.drawTables());
    for (const name of ["table", "chart-details"]) parts[name]?.addEventListener("toggle", () => this.drawTables());
    parts.unpin.addEventListener("click", () => this.pin(null));
    parts.swap.addEventListener("click", () => this.set({ x: this.state.y, y: this.state.x }));
    byId("reset").addEventListener("click", () => this.set(initialState(this.cube)));
    byId("csv").addEventListener("click", () => this.saveCsv());
    byId("png").addEventListener("click", () => this.savePng());
    addEventListener("hashchange", () => { if (this.cube) this.set(fromFragment(location.hash, this.cube)); });
    const redraw = () => this.redraw();
    for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", redraw);
    addEventListener("beforeprint", redraw);
  }

  /** Shows the data of `source`: states first, everything else as soon as it is unpacked; other data all at once. */
  async load(source) {
    const cube = new Cube(source);
    await cube.read(FIRST_PLANES);
    if (this.cube) {
      await cube.read(cube.later, true);
      this.take(cube, toFragment(this.state, this.cube));
    } else {
      this.take(cube, location.hash);
      await this.showStates(cube);
    }
    this.ready = true;
    this.panels.ready = true;
    this.draw();
    this.parts.busy.hidden = true;
    document.documentElement.dataset.ready = "true";
  }

  /** Draws the states, then reads what else there is. */
  async showStates(cube) {
    const { view } = this.state;
    this.state.view = "verdict";
    this.draw();
    document.documentElement.dataset.firstPicture = String(performance.now());
    await new Promise((resolve) => setTimeout(resolve));
    await cube.read(cube.later, true);
    this.state.view = view;
  }

  /** Makes `cube` the data shown, with what `fragment` chooses in it. */
  take(cube, fragment) {
    this.cube = cube;
    this.panels.build(cube);
    this.state = fromFragment(fragment, cube);
    this.fillControls();
  }

  /** Draws anew what depends on how wide things are. */
  redraw() {
    for (const part of [this.panels, this.curves, this.chart, this.cursor, this.pinned]) part?.measure();
    this.draw();
  }

  fillControls() {
    const { cube, state, parts } = this;
    const names = cube.dims.map((dim) => [dim.name, dim.label]);
    const one = cube.dims.filter((dim) => dim.values.length > 1).length < 2;
    for (const part of [parts.x.parentElement, parts.swap, parts.y.parentElement]) part.hidden = one;
    setOptions(parts.x, names, state.x);
    setOptions(parts.y, names, state.y);
    if (parts.chart) setOptions(parts.chart, names, state.chart);
    setOptions(parts.view, Object.entries(cube.views).map(([name, { label }]) => [name, label]), state.view);
    setOptions(parts["table-policy"], cube.policies.map((policy, i) => [String(i), policy.label.slice(0, 60)]), "0");
  }

  /** Changes some of the state and draws again. */
  set(changes) {
    Object.assign(this.state, changes);
    this.draw();
    this.remember();
  }

  setAxis(axis, other, name) {
    const changes = { [axis]: name };
    // Choosing the dim of the other axis swaps the two.
    if (this.state[other] === name) changes[other] = this.state[axis];
    this.set(changes);
  }

  slide(name, index) {
    this.state.at[name] = index;
    const start = performance.now();
    this.draw();
    document.documentElement.dataset.step = String(performance.now() - start);
    this.speak();
    this.remember();
  }

  moveCursor(ix, iy) {
    const { state } = this;
    if (state.at[state.x] === ix && state.at[state.y] === iy) return;
    Object.assign(state.at, { [state.x]: ix, [state.y]: iy });
    this.drawPoint();
    this.speak();
    this.remember();
  }

  pin(point) {
    this.state.pin = point;
    this.drawPoint();
    this.remember();
    this.parts.live.textContent = point ? `Pinned: ${this.cursor.spoken(this.cube, point)}` : "Pin removed";
  }

  /** Draws everything. */
  draw() {
    const { cube, state, parts } = this;
    if (!cube) return;
    this.theme = currentTheme();
    const curves = this.ready && showsCurves(cube, state);
    for (const name of ["x", "y", "view"]) parts[name].value = state[name];
    showSliders(parts.sliders, cube, state, (name, index) => this.slide(name, index));
    this.curves.show(cube, curves ? state : null, this.theme);
    this.summary = this.panels.paint(state, this.theme, curves);
    this.legend.show(cube, this.summary, state.view, this.theme);
    this.noteBreakEven();
    this.drawPoint();
    this.drawChart();
    this.drawTables();
  }

  /** Draws what depends on cursor and pin only. */
  drawPoint() {
    const { cube, state, parts } = this;
    this.panels.paintOverlay(state);
    if (!this.ready) return;
    this.curves.show(cube, showsCurves(cube, state) ? state : null, this.theme);
    this.cursor.show(cube, state.at, this.theme);
    this.pinned.show(cube, state.pin, this.theme,
      "Nothing pinned. Click a map, or press Enter on it, to keep a point here for comparison.");
    parts.unpin.hidden = !state.pin;
  }

  drawChart() {
    const { cube, state, parts } = this;
    if (!parts.chart) return;
    parts.chart.value = state.chart;
    parts.held.checked = state.held;
    const dim = cube.dim(state.chart);
    if (!this.chart.width) this.chart.measure();
    this.chart.show(cube, successSpec(cube, dim, state), state.at[dim.name], this.theme);
  }

  noteBreakEven() {
    if (!this.parts.even) return;
    this.parts.even.checked = this.state.breakEven;
    const { field, crosses } = this.summary;
    const pair = this.cube.policies.filter((policy) => policy.id === "default_policy" || policy.id === "all_compute");
    this.parts.even.disabled = pair.length < 2;
    let text = "";
    if (pair.length < 2) text = "needs default_policy and all_compute in the sweep";
    else if (field && crosses) text = "thick line: both take equally long";
    else if (field) text = field.some((value) => value > 0) ? "not in this view: recompute is faster all over it" : "not in this view: restore is at least as fast all over it";
    this.parts["even-note"].textContent = text;
  }

  drawTables() {
    const { cube, state, parts } = this;
    if (!this.ready) return;
    if (parts["chart-details"]?.open) showChartTable(parts["chart-table"], cube, state);
    if (parts.table.open) showViewTable(parts["table-body"], cube, state, Number(parts["table-policy"].value));
  }

  saveCsv() {
    if (this.ready) download(new Blob([sliceCsv(this.cube, this.state)], { type: "text/csv" }), "kvsweep-slice.csv");
  }

  /** Promise of a PNG of what is shown. */
  picture() {
    const { cube, state, theme } = this;
    if (showsCurves(cube, state)) return curvesPng(cube, state, this.curves.chart, theme);
    return viewPng(cube, state, this.panels.panels, this.summary, theme);
  }

  async savePng() {
    if (this.ready) download(await this.picture(), "kvsweep-view.png");
  }
}
