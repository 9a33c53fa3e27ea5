// Single Point: where the hits live, the rates that follow, and what each policy makes of them.

/** Number of an answer, where null stands for infinite. */
const numberOf = (value) => value ?? Infinity;

/** Code of the state of an outcome, as `VERDICTS` counts them. */
function stateOf(outcome) {
  if (outcome.meets_slo) return PASS;
  if (outcome.latency_violation === 0) return 2;
  return outcome.gpu_violation === 0 && outcome.storage_violation === 0 ? 1 : 0;
}

/** The parts of the tab inside `root`, filled by `show`. */
class PointPanel {
  constructor(root, catalog) {
    this.catalog = catalog;
    this.parts = Object.fromEntries(["tiers", "rates", "cards", "latency", "split"].map((name) => [name, root.querySelector(`#kd-${name}`)]));
  }

  /** Shows an answer of /api/simulate. */
  show(answer, theme = currentTheme()) {
    const known = new Map(this.catalog.policies.map((policy) => [policy.id, policy]));
    const policies = Object.keys(answer.slo_summary).map((id) => known.get(id) ?? { id, label: id, description: "", color: "" });
    const [row] = answer.results;
    const outcomes = policies.map(({ id }) => row[id]);
    this.policies = policies;
    this.parts.tiers.replaceChildren(tierTable(row, answer.experiment));
    this.parts.rates.replaceChildren(ratesList(row, answer.experiment));
    this.parts.cards.replaceChildren(...this.cards(outcomes, answer.experiment.tokens_per_block, theme));
    const limit = { value: row.p95_seconds, text: `P95 target ${formatNumber(row.p95_seconds)} s` };
    this.parts.latency.replaceChildren(barTable("Total time of a request [s]", outcomes.map((outcome, i) => ({
      label: policyName(policies, i),
      bars: [{ value: numberOf(outcome.total_time), text: `${formatNumber(numberOf(outcome.total_time))} s`, color: policyColor(policies, i),
        over: numberOf(outcome.latency_ratio) > 1 }],
    })), limit));
    this.parts.split.replaceChildren(barTable("Restore and recompute, which overlap [s]", outcomes.map((outcome, i) => ({
      label: policyName(policies, i), bars: splitBars(outcome),
    }))));
  }

  cards(outcomes, tokens, theme) {
    const passing = this.simplest(outcomes);
    const times = outcomes.map(({ total_time: time }) => numberOf(time));
    const fastest = Math.min(...times);
    const ties = times.filter((time) => time === fastest).length;
    const tiles = stateTiles(theme);
    return outcomes.map((outcome, i) => {
      const state = stateOf(outcome);
      const tags = [];
      if (i === passing) tags.push("simplest that passes");
      if (times[i] === fastest && ties < times.length) tags.push(ties > 1 ? `fastest, like ${ties - 1} more` : "fastest");
      return makeCard(this.policies, i, outcome, tokens, { tile: tiles[state], ink: theme.ink[state], state, tags });
    });
  }

  /** Index of the simplest policy that passes, -1 for none. */
  simplest(outcomes) {
    const id = this.catalog.simplest.find((name) => outcomes.some((outcome) => outcome.policy === name && outcome.meets_slo));
    return this.policies.findIndex((policy) => policy.id === id);
  }

  /** The answer in a sentence. */
  sentence(answer) {
    const outcomes = this.policies.map(({ id }) => answer.results[0][id]);
    const passing = outcomes.filter(({ meets_slo: meets }) => meets).length;
    const times = outcomes.map(({ total_time: time }) => numberOf(time));
    const fastest = times.indexOf(Math.min(...times));
    const name = (i) => this.policies[i].label.slice(0, 60);
    if (!passing) return `No policy meets the SLO; ${name(fastest)} comes closest with ${formatNumber(times[fastest])} s.`;
    const all = passing === outcomes.length ? `All ${passing} policies meet` : `${passing} of ${outcomes.length} policies ${passing === 1 ? "meets" : "meet"}`;
    return `${all} the SLO; the simplest is ${name(this.simplest(outcomes))}.`;
  }
}

function policyName(policies, index) {
  return wrapped(`${policyMark(index)} ${policies[index].label}`);
}

function splitBars(outcome) {
  return [["storage_time", "restore"], ["recompute_time", "recompute"]].map(([quantity, name]) => {
    const value = numberOf(outcome[quantity]);
    return { value, text: `${formatNumber(value)} s`, kind: `bar-${quantity}`, name };
  });
}

function makeCard(policies, index, outcome, tokens, { tile, ink, state, tags }) {
  const policy = policies[index];
  const mark = make("span", { class: "mark", "aria-hidden": "true" }, policyMark(index));
  mark.style.background = policyColor(policies, index);
  mark.style.color = inkOn(policyColor(policies, index));
  const id = `kd-card-${index}`;
  const used = (value) => [makeData(numberOf(value), formatNumber(numberOf(value))), numberOf(value) > 1 ? make("span", { class: "over" }, " over") : null];
  const rows = [
    ["Latency / target", used(outcome.latency_ratio)], ["GPU utilisation", used(outcome.gpu_utilization)],
    ["Storage utilisation", used(outcome.storage_utilization)],
    ["Margin [s]", [makeData(outcome.slo_margin ?? -Infinity, formatNumber(outcome.slo_margin ?? -Infinity))]],
    ...[["Tokens restored", "storage_blocks"], ["Tokens recomputed", "recompute_blocks"], ["of these hits, k", "reassigned_hit_blocks"]]
      .map(([label, blocks]) => [label, [makeData(outcome[blocks] * tokens, formatTokens(outcome[blocks] * tokens, 5))]]),
  ];
  return make("article", { class: `card ${state === PASS ? "passes" : "fails"}`, "aria-labelledby": id, "data-policy": policy.id },
    make("h3", { id }, mark, wrapped(policy.label)),
    make("p", { class: "state" }, makeSwatch(tile, STATE_LETTERS[state], ink), make("strong", {}, STATE_TEXTS[state])),
    make("p", { class: "total" }, makeData(numberOf(outcome.total_time), `${formatNumber(numberOf(outcome.total_time))} s`)),
    make("p", { class: "tags" }, ...tags.map((tag) => make("span", { class: "tag" }, tag))),
    make("table", { class: "facts" }, make("tbody", {}, ...rows.map(([label, cells]) =>
      make("tr", {}, make("th", { scope: "row" }, label), make("td", {}, ...cells.filter((cell) => cell !== null)))))),
    make("p", { class: "note" }, `Decision: ${outcome.decision_mode.replaceAll("_", " ")}`),
    make("p", { class: "note about", title: policy.description }, policy.description));
}

/** Text of a number of tokens, from ten millions on with a prefix. */
function formatTokens(tokens, digits = 6) {
  return Math.abs(tokens) >= 1e7 ? formatTick(tokens) : formatNumber(tokens, digits);
}

/** Table of the tiers: how full each is, and what does not fit. */
function tierTable(row, experiment) {
  const { tiers, capacity_fits: fits } = row.placement;
  const { bytes_per_block: size, tokens_per_block: tokens } = experiment;
  const text = (blocks) => formatTokens(blocks * tokens);
  const heads = ["Tier", "Filled", "Resident [tokens]", "Capacity [tokens]", "Used", "Overflow"];
  const rows = tiers.map(({ tier, capacity_blocks: capacity, resident_blocks: resident, overflow_blocks: overflow, utilization }) => {
    const held = numberOf(capacity);
    const share = row.hit_blocks ? resident / row.hit_blocks : 0;
    const used = numberOf(utilization);
    const cells = [[tierBar(resident, held, overflow)],
      [makeData(resident * tokens, text(resident)), make("span", { class: "note" }, ` ${formatShare(share, 1)} of hits`)],
      [makeData(held * tokens, text(held)), Number.isFinite(held) ? ` (${formatQuantity(held * size, "B", 3)})` : ""],
      [makeData(used, Number.isFinite(used) ? `${formatNumber(100 * used, 3)} %` : "∞")],
      [makeData(overflow * tokens, overflow ? `${text(overflow)} over` : "none")]];
    return make("tr", { "data-tier": tier, role: "row" }, make("th", { scope: "row", role: "rowheader" }, TIER_NAMES[tier] ?? tier),
      ...cells.map((parts, i) => make("td", { class: i === 0 ? "track" : i === 4 && overflow ? "over" : "", role: "cell", "data-head": heads[i + 1] }, ...parts)));
  });
  const weights = experiment.weights_fit ? "" : " The weights alone exceed the HBM, so that VRAM holds no blocks.";
  return make("table", { class: "summary-table tiers", role: "table" },
    make("caption", {}, `${text(row.hit_blocks)} cached tokens by tier. ${fits ? "All fit." : "Not all fit; rates are not changed by overflow."}${weights}`),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads.map((text) => make("th", { scope: "col", role: "columnheader" }, text)))),
    make("tbody", { role: "rowgroup" }, ...rows));
}

/** Bar of a tier: its frame is the capacity, or where more is placed in it, the capacity with the rest beyond. */
function tierBar(resident, capacity, overflow) {
  const whole = Math.max(resident, Number.isFinite(capacity) ? capacity : 0, 1e-300);
  const held = make("div", { class: "held" });
  held.style.width = `${(100 * (resident - overflow)) / whole}%`;
  const beyond = make("div", { class: "beyond" });
  beyond.style.width = `${(100 * overflow) / whole}%`;
  return make("div", { class: "tier-bar", "aria-hidden": "true" }, held, beyond);
}

function ratesList(row, experiment) {
  const restored = formatQuantity(row.storage_throughput * experiment.bytes_per_block, "B/s", 4);
  const blocks = (name, unit) => `${formatNumber(row[name], unit ? 4 : 7)} blocks${unit}`;
  const facts = [
    ["Restore rate, effective", "storage_throughput", "tokens/s", `${restored}, ${blocks("storage_throughput", "/s")}`],
    ["Recompute rate, effective", "recompute_throughput", "tokens/s", blocks("recompute_throughput", "/s")],
    ["Cached (hits)", "hit_blocks", "tokens", blocks("hit_blocks", "")],
    ["Missing, recomputed", "miss_blocks", "tokens", blocks("miss_blocks", "")],
  ];
  return make("dl", { class: "rates" }, ...facts.map(([label, name, unit, note]) => {
    const tokens = numberOf(row[name]) * experiment.tokens_per_block;
    const data = makeData(tokens, `${formatTokens(tokens, name.endsWith("put") ? 4 : 7)} ${unit}`);
    return make("div", {}, make("dt", {}, label), make("dd", { id: `kd-${name}-value` }, data, make("span", { class: "note" }, ` ${note}`)));
  }));
}
