// Single Point: where the hits live, the rates that follow, and what each policy makes of them.

/** Number of an answer, where null stands for infinite. */
const numberOf = (value) => value ?? Infinity;

/** Code of the state of an outcome, as `VERDICTS` counts them. */
function stateOf(outcome) {
  if (outcome.meets_slo) return PASS;
  if (outcome.latency_violation === 0) return 2;
  return outcome.gpu_violation === 0 && outcome.storage_violation === 0 ? 1 : 0;
}

const SLO_TEXTS = ["Misses both limits", "Misses latency", "Misses throughput", "Meets the SLO"];

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
    this.parts.cards.replaceChildren(...this.cards(row, outcomes, theme));
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

  cards(row, outcomes, theme) {
    const passing = this.simplest(outcomes);
    const fastest = Math.min(...outcomes.map(({ total_time: time }) => numberOf(time)));
    const tiles = stateTiles(theme);
    return outcomes.map((outcome, i) => {
      const state = stateOf(outcome);
      const tags = [];
      if (i === passing) tags.push("simplest that passes");
      if (numberOf(outcome.total_time) === fastest) tags.push("fastest");
      return makeCard(this.policies, i, outcome, { tile: tiles[state], ink: theme.ink[state], state, tags });
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
  return make("span", { class: "clip", title: policies[index].label }, `${policyMark(index)} ${policies[index].label}`);
}

function splitBars(outcome) {
  return [["storage_time", "restore"], ["recompute_time", "recompute"]].map(([quantity, name]) => {
    const value = numberOf(outcome[quantity]);
    return { value, text: `${formatNumber(value)} s`, kind: `bar-${quantity}`, name };
  });
}

function makeCard(policies, index, outcome, { tile, ink, state, tags }) {
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
    ["Blocks restored", [makeData(outcome.storage_blocks, formatNumber(outcome.storage_blocks, 6))]],
    ["Blocks recomputed", [makeData(outcome.recompute_blocks, formatNumber(outcome.recompute_blocks, 6))]],
    ["of these hits, k", [makeData(outcome.reassigned_hit_blocks, formatNumber(outcome.reassigned_hit_blocks, 6))]],
  ];
  return make("article", { class: `card ${state === PASS ? "passes" : "fails"}`, "aria-labelledby": id, "data-policy": policy.id },
    make("h3", { id }, mark, make("span", { class: "clip", title: policy.label }, policy.label)),
    make("p", { class: "state" }, makeSwatch(tile, STATE_LETTERS[state], ink), make("strong", {}, SLO_TEXTS[state])),
    make("p", { class: "total" }, makeData(numberOf(outcome.total_time), `${formatNumber(numberOf(outcome.total_time))} s`)),
    make("p", { class: "tags" }, ...tags.map((tag) => make("span", { class: "tag" }, tag))),
    make("table", { class: "facts" }, make("tbody", {}, ...rows.map(([label, cells]) =>
      make("tr", {}, make("th", { scope: "row" }, label), make("td", {}, ...cells.filter((cell) => cell !== null)))))),
    make("p", { class: "note" }, `Decision: ${outcome.decision_mode.replaceAll("_", " ")}`),
    make("p", { class: "note about", title: policy.description }, policy.description));
}

/** Table of the tiers: how full each is, and what does not fit. */
function tierTable(row, experiment) {
  const { tiers, capacity_fits: fits } = row.placement;
  const size = experiment.bytes_per_block;
  const rows = tiers.map(({ tier, capacity_blocks: capacity, resident_blocks: resident, overflow_blocks: overflow, utilization }) => {
    const held = numberOf(capacity);
    const share = row.hit_blocks ? resident / row.hit_blocks : 0;
    const cells = [
      `${formatNumber(resident, 6)}`, `${formatNumber(held, 6)}${Number.isFinite(held) ? ` (${formatQuantity(held * size, "B", 3)})` : ""}`,
    ];
    return make("tr", { "data-tier": tier }, make("th", { scope: "row" }, TIER_NAMES[tier] ?? tier), make("td", { class: "track" }, tierBar(resident, held, overflow)),
      make("td", {}, makeData(resident, cells[0]), make("span", { class: "note" }, ` ${formatShare(share, 1)} of hits`)),
      make("td", {}, makeData(held, cells[1])),
      make("td", {}, makeData(numberOf(utilization), Number.isFinite(numberOf(utilization)) ? `${formatNumber(100 * utilization, 3)} %` : "∞")),
      make("td", { class: overflow ? "over" : "" }, makeData(overflow, overflow ? `${formatNumber(overflow, 6)} over` : "none")));
  });
  const heads = ["Tier", "Filled", "Resident [blocks]", "Capacity [blocks]", "Used", "Overflow"].map((text) => make("th", { scope: "col" }, text));
  const weights = experiment.weights_fit ? "" : " The weights alone exceed the HBM, so that VRAM holds no blocks.";
  return make("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Tiers" },
    make("table", { class: "tiers" }, make("caption", {}, `${formatNumber(row.hit_blocks, 7)} cached blocks by tier. ${fits ? "All fit." : "Not all fit; rates are not changed by overflow."}${weights}`),
      make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
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
  const tokens = formatNumber(row.recompute_throughput * experiment.tokens_per_block, 4);
  const facts = [
    ["Restore rate, effective", "storage_throughput", `${formatNumber(row.storage_throughput)} blocks/s`, restored],
    ["Recompute rate, effective", "recompute_throughput", `${formatNumber(row.recompute_throughput)} blocks/s`, `${tokens} tokens/s`],
    ["Cached blocks (hits)", "hit_blocks", formatNumber(row.hit_blocks, 7), ""],
    ["Missing blocks, recomputed", "miss_blocks", formatNumber(row.miss_blocks, 7), ""],
  ];
  return make("dl", { class: "rates" }, ...facts.map(([label, name, text, note]) =>
    make("div", {}, make("dt", {}, label), make("dd", { id: `kd-${name}-value` }, makeData(numberOf(row[name]), text), make("span", { class: "note" }, ` ${note}`)))));
}
