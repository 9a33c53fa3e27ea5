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

/** Fills `root` with the table of a point; `id` prefixes the cells' ids. */
function showReadOut(root, cube, point, id, theme) {
  const outcomes = cube.policies.map((_, policy) => cube.outcome(policy, point));
  const longest = Math.max(...outcomes.flatMap((each) => [each.storage_time, each.recompute_time]).filter(Number.isFinite), 1e-300);
  const heads = cube.policies.map((policy, i) =>
    make("th", { scope: "col", title: policy.label }, make("span", { class: "clip" }, `${policyMark(i)} ${policy.label}`)));
  const rows = READ_OUTS.map(([quantity, label, unit]) =>
    make("tr", {}, make("th", { scope: "row" }, unit ? `${label} [${unit}]` : label),
      ...outcomes.map((each, policy) => {
        const cell = make("td", { id: `${id}-${quantity}-${policy}` }, makeData(each[quantity], formatNumber(each[quantity])));
        if (quantity === "storage_time" || quantity === "recompute_time") cell.append(timeBar(quantity, each[quantity], longest));
        if (quantity.endsWith("_utilization") && each[quantity] > 1) cell.append(make("span", { class: "over" }, " over"));
        return cell;
      })));
  const tiles = stateTiles(theme);
  const verdicts = make("tr", {}, make("th", { scope: "row" }, "State"),
    ...outcomes.map((each, policy) =>
      make("td", { id: `${id}-verdict-${policy}` },
        makeSwatch(tiles[each.verdict], STATE_LETTERS[each.verdict], theme.ink[each.verdict]),
        make("data", { value: String(each.verdict) }, VERDICTS[each.verdict]))));
  const modes = make("tr", {}, make("th", { scope: "row" }, "Decision"),
    ...outcomes.map((each, policy) => make("td", { id: `${id}-mode-${policy}`, class: "mode" }, each.mode.replaceAll("_", " "))));
  root.replaceChildren(
    make("p", { class: "where" }, pointText(cube, point), make("br"), ratesText(cube, point)),
    make("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": `Policies at the ${id === "kv-cursor" ? "cursor" : "pinned point"}` },
      make("table", { class: "readout" },
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Policy"), ...heads)),
        make("tbody", {}, verdicts, ...rows, modes))));
}

function ratesText(cube, point) {
  const rate = (name) => formatNumber(cube.stored(name, null, point));
  return `Restore ${rate("storage_throughput")} blocks/s, recompute ${rate("recompute_throughput")} blocks/s`;
}

function timeBar(quantity, seconds, longest) {
  const bar = make("span", { class: `time-bar ${quantity}`, "aria-hidden": "true" });
  bar.style.width = `${Math.min(100, (100 * seconds) / longest)}%`;
  return bar;
}

/** One sentence on a point, for screen readers. */
function spokenPoint(cube, point) {
  const parts = cube.policies.map((policy, i) => {
    const time = cube.value("total_time", i, point);
    return `${policy.label.slice(0, 60)}: ${VERDICTS[cube.stored("verdict", i, point)]}, ${formatNumber(time, 3)} s`;
  });
  return `${pointText(cube, point)}. ${parts.join("; ")}.`;
}
