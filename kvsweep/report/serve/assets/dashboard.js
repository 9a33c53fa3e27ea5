// The dashboard: controls, two tabs, and the computations that follow the controls.

const TABS = ["point", "sweep"];
const WAIT = { point: 60, sweep: 150 };

class Dashboard {
  constructor(catalog) {
    this.catalog = catalog;
    const byId = (name) => document.getElementById(`kd-${name}`);
    this.parts = Object.fromEntries(["answer", "status", "live", "warnings", "point", "sweep", "tab-point", "tab-sweep", "controls", "rest"].map((name) => [name, byId(name)]));
    this.settings = settingsFrom(location.hash, catalog);
    this.controls = new ControlsPanel(this.parts.controls, catalog, this.settings, () => this.changed());
    this.point = new PointPanel(this.parts.point, catalog);
    this.newest = {
      point: new Newest(WAIT.point, (result) => this.showPoint(result), (error) => this.refused("point", error)),
      sweep: new Newest(WAIT.sweep, (result) => this.showSweep(result), (error) => this.refused("sweep", error)),
    };
    Object.assign(this, { answers: {}, bodies: {} });
    this.loading = Promise.resolve();
    this.remember = debounce(() => rememberSettings(this.settings, catalog), 200);
    this.speak = debounce((text) => { this.parts.live.textContent = text; }, 700);
    this.listen();
    this.showTab();
    this.compute();
  }

  listen() {
    for (const tab of TABS) {
      const button = this.parts[`tab-${tab}`];
      button.addEventListener("click", () => this.openTab(tab));
      button.addEventListener("keydown", (event) => this.tabKey(event));
    }
    document.getElementById("kd-start").addEventListener("click", () => this.take(firstSettings(this.catalog)));
    addEventListener("hashchange", () => this.take(settingsFrom(location.hash, this.catalog)));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      if (this.answers.point) this.point.show(this.answers.point.answer);
    });
  }

  /** Takes other settings, in the same tab unless they name one. */
  take(settings) {
    this.settings = settings;
    this.controls.take(settings);
    this.showTab();
    this.changed();
  }

  changed() {
    this.remember();
    this.compute();
  }

  tabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -TABS.length, End: TABS.length }[event.key];
    if (!step) return;
    event.preventDefault();
    const place = TABS.indexOf(this.settings.tab);
    const next = TABS[Math.abs(step) === 1 ? (place + step + TABS.length) % TABS.length : step < 0 ? 0 : TABS.length - 1];
    this.openTab(next);
    this.parts[`tab-${next}`].focus();
  }

  openTab(tab) {
    if (this.settings.tab === tab) return;
    this.settings.tab = tab;
    this.controls.showTab();
    this.showTab();
    this.changed();
  }

  showTab() {
    for (const tab of TABS) {
      const chosen = this.settings.tab === tab;
      this.parts[tab].hidden = !chosen;
      Object.assign(this.parts[`tab-${tab}`], { ariaSelected: String(chosen), tabIndex: chosen ? 0 : -1 });
    }
    const shown = this.answers[this.settings.tab];
    this.describe(shown?.sentences ?? ["Computing …"], shown?.warnings ?? []);
    this.parts.status.textContent = shown?.status ?? "";
  }

  /** Computes what the open tab shows. */
  compute() {
    const { tab } = this.settings;
    document.documentElement.dataset.computing = tab;
    this.parts[tab].setAttribute("aria-busy", "true");
    const [path, body] = tab === "point" ? ["/api/simulate", simulateBody(this.settings)] : ["/api/sweep", sweepBody(this.settings, this.catalog)];
    this.bodies[tab] = body;
    this.newest[tab].start((signal) => ask(path, body, signal));
  }

  showPoint(result) {
    this.point.show(result.answer);
    const { warnings, results } = result.answer;
    const more = results.length > 1 ? [`${results.length} requests given; this is the first of them.`] : [];
    this.shown("point", result, [this.point.sentence(result.answer)], [...warnings, ...more], "1 point");
  }

  async showSweep(result) {
    const { answer } = result;
    this.loading = this.loading.then(() => this.draw(answer));
    await this.loading;
    const points = answer.header.dims.reduce((product, dim) => product * dim.values.length, 1);
    this.shown("sweep", result, answer.header.headline, answer.warnings, `${formatCount(points)} points`);
  }

  /** Draws a sweep unless a newer one has arrived meanwhile. */
  async draw(answer) {
    const indices = pointIndices(this.settings, answer.header.dims);
    const point = JSON.stringify(AXES.map((name) => this.settings[name]));
    if (this.view) {
      await this.view.load(fetchedSource(answer));
      // Another point than the one seen last is where the reader looks now.
      if (point !== this.sweptPoint) this.view.set({ at: { ...this.view.state.at, ...indices } });
    } else {
      Object.assign(answer.header.start, indices);
      this.view = await viewer(fetchedSource(answer));
    }
    this.sweptPoint = point;
    globalThis.kvsweepView = this.view;
  }

  shown(tab, result, sentences, warnings, what) {
    const policies = tab === "point" ? this.point.policies.length : result.answer.header.policies.length;
    const server = result.server === null ? "" : `server ${formatNumber(result.server, 3)} ms, `;
    const status = `${what} × ${policies} policies: ${server}round trip ${formatNumber(result.milliseconds, 3)} ms`;
    this.answers[tab] = { answer: result.answer, sentences, warnings, status };
    this.parts[tab].classList.remove("stale");
    this.parts[tab].setAttribute("aria-busy", "false");
    if (this.settings.tab !== tab) return;
    this.controls.refuse({});
    this.describe(sentences, warnings);
    this.parts.status.className = "status";
    this.parts.status.textContent = status;
    this.speak(sentences[0]);
    document.documentElement.dataset.computing = "";
    document.documentElement.dataset.computed = String(Number(document.documentElement.dataset.computed ?? 0) + 1);
  }

  describe([answer, ...rest], warnings) {
    this.parts.answer.textContent = answer;
    this.parts.rest.replaceChildren(...rest.map((text) => make("li", {}, text)));
    this.parts.rest.hidden = !rest.length;
    this.parts.warnings.hidden = !warnings.length;
    this.parts.warnings.replaceChildren(make("strong", {}, "Note. "), ...warnings.map((text) => make("div", {}, text)));
  }

  /** Shows why there is nothing new; what was there before stays, marked as old. */
  refused(tab, error) {
    if (!(error instanceof Refusal)) throw error;
    this.parts[tab].classList.add("stale");
    this.parts[tab].setAttribute("aria-busy", "false");
    if (this.settings.tab !== tab) return;
    const lines = [error.message, ...this.controls.refuse(error.fields)].filter((text) => text);
    const text = `Not computed: ${lines.join("; ")}.${this.answers[tab] ? " What is shown is the last result." : ""}`.replace("..", ".");
    this.parts.status.className = "status refused";
    this.parts.status.textContent = text;
    this.speak(text);
    if (!this.answers[tab]) this.describe(["Nothing computed yet"], []);
    document.documentElement.dataset.computing = "";
  }
}

ask("/api/catalog").then(({ answer }) => { globalThis.kvsweepDashboard = new Dashboard(answer); }, (error) => {
  document.getElementById("kd-answer").textContent = error.message;
  if (!(error instanceof Refusal)) throw error;
});
