// Legend of the maps, with the number of cells in each state.

/** The legend inside `root`: built when what is shown changes, after that only its counts change. */
class Legend {
  constructor(root) {
    Object.assign(this, { root, shown: [] });
  }

  /** Shows what Panels.paint returned. */
  show(cube, summary, view, theme) {
    const shown = [cube, view, theme];
    if (shown.some((part, i) => part !== this.shown[i])) this.build(cube, summary, view, theme);
    this.shown = shown;
    const cells = summary.counts[0].reduce((sum, count) => sum + count, 0);
    this.caption.textContent = `Cells in this view: ${formatCount(cells)} per ${cube.who.toLowerCase()}`;
    summary.counts.forEach((counts, policy) => counts.forEach((count, state) => {
      setData(this.counts[policy][state], count, formatCount(count));
    }));
    summary.enough?.forEach((count, index) => {
      setData(this.enough[index], count, formatCount(count));
      this.shares[index].data = formatShare(count, cells);
    });
  }

  build(cube, summary, view, theme) {
    const { texts, letters, inks, tiles } = summary.look;
    const keys = [...texts.keys()].reverse().map((state) => make("li", {}, legendKey(tiles[state], letters[state], inks[state], texts[state])));
    const parts = [make("ul", { class: "keys" }, ...keys), this.stateTable(cube, summary.look)];
    if (summary.look.names === VERDICTS) {
      const note = "Too slow: the latency target is missed. Overloaded: GPU or storage cannot keep up with the request rate. Fail: both.";
      parts.splice(1, 0, make("p", { class: "note" }, note));
    }
    if (summary.enough) parts.push(this.sufficientTable(cube, theme));
    if (summary.continuous) parts.unshift(colorBar(summary.continuous, cube.views[view]));
    this.root.replaceChildren(...parts);
  }

  /** A row a policy and a column a state, however many policies there are. */
  stateTable(cube, { texts, letters, inks, tiles }) {
    this.counts = cube.policies.map(() => texts.map(() => make("data")));
    this.caption = make("caption");
    const states = [...texts.keys()].reverse();
    const heads = states.map((state) => make("th", { scope: "col", title: texts[state] },
      makeSwatch(tiles[state], letters[state], inks[state]), make("span", { class: "unseen" }, texts[state])));
    const rows = cube.policies.map((policy, i) =>
      make("tr", { class: "state" }, make("th", { scope: "row" }, wrapped(`${policyMark(i)} ${policy.label}`)),
        ...states.map((state) => make("td", { id: `kv-count-${i}-${state}` }, this.counts[i][state]))));
    return make("table", { class: "legend" }, this.caption,
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, cube.who), ...heads)),
      make("tbody", {}, ...rows));
  }

  sufficientTable(cube, theme) {
    const tiles = policyTiles(theme, cube.policies);
    const names = [...cube.policies.map((policy) => policy.label), cube.best.none];
    this.enough = names.map(() => make("data"));
    this.shares = names.map(() => document.createTextNode(""));
    const rows = names.map((name, index) => {
      const none = index === cube.policies.length;
      const key = legendKey(tiles[index], none ? "–" : policyMark(index), inkOn(none ? theme.none : policyColor(cube.policies, index)), name);
      return make("tr", { class: "state" }, make("th", { scope: "row" }, key),
        make("td", { id: `kv-enough-${index}` }, this.enough[index]), make("td", {}, this.shares[index]));
    });
    const heads = [cube.who, "Cells", "Share"].map((text) => make("th", { scope: "col" }, text));
    return make("table", { class: "legend" },
      make("caption", {}, cube.best.caption),
      make("thead", { class: "unseen" }, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  }
}

function legendKey(tile, letter, ink, text) {
  return make("span", { class: "key" }, makeSwatch(tile, letter, ink), wrapped(text));
}

function colorBar(scale, view) {
  const canvas = make("canvas", { width: 256, height: 14, class: "bar", "aria-hidden": "true" });
  const ctx = canvas.getContext("2d");
  const image = ctx.createImageData(256, 14);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = scale.colors[i & 255];
  ctx.putImageData(image, 0, 0);
  const labels = make("div", { class: "bar-ticks" });
  const taken = [];
  for (const { value, at } of scale.ticks) {
    if (taken.some((other) => Math.abs(other - at) < 0.14)) continue;
    taken.push(at);
    const label = make("span", {}, formatTick(value));
    label.style.left = `${at * 100}%`;
    if (at < 0.06 || at > 0.94) label.className = at < 0.5 ? "first" : "last";
    labels.append(label);
  }
  const limit = scale.limit === null ? "" : `; the line marks ${scale.limit === 0 ? "a margin of 0" : "the limit of 1"}`;
  return make("div", { class: "color-bar" }, make("div", { class: "bar-title" }, view.label + limit), canvas, labels);
}
