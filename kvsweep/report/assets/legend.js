// Legend of the maps, with the number of cells in each state.

/** Fills `root` with what the maps show and how often; `summary` comes from Panels.paint. */
function showLegend(root, cube, summary, theme) {
  const cells = summary.counts[0].reduce((sum, count) => sum + count, 0);
  const parts = [stateTable(cube, summary.counts, cells, theme)];
  if (summary.continuous) parts.unshift(colorBar(summary.continuous, VIEWS[cube.legendView]));
  parts.push(
    make("p", { class: "note" }, "Latency only: GPU or storage would be overloaded. Throughput only: the latency target is missed. Fail: both."),
    sufficientTable(cube, summary.enough, cells, theme));
  root.replaceChildren(...parts);
}

function stateTable(cube, counts, cells, theme) {
  const tiles = stateTiles(theme);
  const heads = cube.policies.map((policy, i) =>
    make("th", { scope: "col", title: policy.label, "aria-label": policy.label }, policyMark(i)));
  const rows = [3, 2, 1, 0].map((state) =>
    make("tr", { class: "state" },
      make("th", { scope: "row" }, legendKey(tiles[state], STATE_LETTERS[state], theme.ink[state], STATE_TEXTS[state])),
      ...counts.map((each, policy) =>
        make("td", { id: `kv-count-${policy}-${state}` }, make("data", { value: String(each[state]) }, formatCount(each[state]))))));
  return make("table", { class: "legend" },
    make("caption", {}, `Cells in this view: ${formatCount(cells)} per policy`),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "State, by policy"), ...heads)),
    make("tbody", {}, ...rows));
}

function sufficientTable(cube, enough, cells, theme) {
  const tiles = policyTiles(theme, cube.policies);
  const row = (index, name) => {
    const letter = index === cube.policies.length ? "–" : policyMark(index);
    const color = index === cube.policies.length ? theme.none : policyColor(cube.policies, index);
    return make("tr", { class: "state" },
      make("th", { scope: "row" }, legendKey(tiles[index], letter, inkOn(color), name)),
      make("td", { id: `kv-enough-${index}` }, make("data", { value: String(enough[index]) }, formatCount(enough[index]))),
      make("td", {}, formatShare(enough[index], cells)));
  };
  return make("table", { class: "legend" },
    make("caption", {}, "Simplest policy that suffices"),
    make("thead", { class: "unseen" }, make("tr", {}, ...["Policy", "Cells", "Share"].map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...cube.policies.map((policy, i) => row(i, policy.label)), row(cube.policies.length, "None suffices")));
}

function legendKey(tile, letter, ink, text) {
  return make("span", { class: "key" }, makeSwatch(tile, letter, ink), make("span", { class: "clip", title: text }, text));
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
    labels.append(label);
  }
  const limit = scale.limit === null ? "" : `; the line marks ${scale.limit === 0 ? "a margin of 0" : "the limit of 1"}`;
  return make("div", { class: "color-bar" }, make("div", { class: "bar-title" }, view.label + limit), canvas, labels);
}
