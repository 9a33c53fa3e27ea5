// What the reader has set: its first values, its form in the URL fragment, and the request bodies it makes.

const PARTS = ["gpu", "dram", "disk", "link"];
const COUNTS = ["gpu_count", "dram_count"];
const MODEL = ["model_params", "tokens_per_block", "bytes_per_block", "gpu_eta"];
const WORKLOAD = ["total_blocks", "hit_ratio", "request_rate", "p95_seconds"];
const AXES = ["hit_ratio", "request_rate", "p95_seconds"];
/** Factor of a setting to the unit of its field. */
const SCALES = { model_params: 1e9 };
const SHARES = ["vram", "dram", "disk"];
/** How far the axes around a point reach, as a factor to either side, and their points: an odd number, so that it is one. */
const AROUND = 10;
const AROUND_POINTS = 31;

/** First settings. All are texts; an empty model field means the value of the chosen model, an empty axis one around the point. */
function firstSettings(catalog) {
  const { dashboard } = catalog.defaults;
  const settings = { tab: "point", stack: dashboard.stack, model: dashboard.model, placement: dashboard.placement };
  Object.assign(settings, partsOf(catalog, dashboard.stack));
  for (const name of MODEL) settings[name] = "";
  for (const name of WORKLOAD) settings[name] = String(dashboard[name]);
  for (const name of AXES) settings[`axis.${name}`] = "";
  Object.assign(settings, { "share.vram": "30", "share.dram": "30", "share.disk": "40", extra: "", "axis.extra": "" });
  return settings;
}

/** The parts and counts of a stack, as settings. */
function partsOf(catalog, stack) {
  const { sets } = catalog.parts.stack.find((entry) => entry.key === stack);
  return Object.fromEntries([...PARTS, ...COUNTS].map((name) => [name, String(sets[name])]));
}

/** Settings in a fragment, the first ones where it says nothing or something that cannot be. */
function settingsFrom(fragment, catalog) {
  const parts = new URLSearchParams(fragment.replace(/^#/, ""));
  const settings = firstSettings(catalog);
  const isKey = (name, key) => catalog.parts[name].some((entry) => entry.key === key);
  const stack = parts.get("stack");
  if (stack !== null && isKey("stack", stack)) Object.assign(settings, partsOf(catalog, stack), { stack });
  if (stack === "") settings.stack = "";
  const choices = { tab: ["point", "sweep"], placement: ["auto", "manual"] };
  for (const name of Object.keys(settings)) {
    const given = parts.get(name);
    if (given === null || given.length > 4000 || name === "stack") continue;
    if (choices[name] && !choices[name].includes(given)) continue;
    if (PARTS.includes(name) && (settings.stack !== "" || !isKey(name, given))) continue;
    if (COUNTS.includes(name) && settings.stack !== "") continue;
    if (name === "model" && given !== "" && !isKey(name, given)) continue;
    settings[name] = given;
  }
  return settings;
}

/** Writes what differs from the first settings into the fragment, beside what the viewer keeps there. */
function rememberSettings(settings, catalog) {
  const parts = new URLSearchParams(location.hash.replace(/^#/, ""));
  const first = firstSettings(catalog);
  const fixed = settings.stack ? [...PARTS, ...COUNTS] : [];
  for (const [name, value] of Object.entries(settings)) {
    if (value === first[name] || fixed.includes(name)) parts.delete(name);
    else parts.set(name, value);
  }
  history.replaceState(null, "", `#${parts}`);
}

/** Body of /api/simulate. */
function simulateBody(settings) {
  return { ...deploymentBody(settings), ...Object.fromEntries(WORKLOAD.map((name) => [name, numberOrText(settings[name])])) };
}

/** Text of an axis: the reader's own, otherwise one through the single point, which is on it. */
function axisText(settings, name, catalog) {
  const own = settings[`axis.${name}`].trim();
  const value = plainNumber(settings[name]);
  if (own || !Number.isFinite(value)) return own || String(catalog.defaults.sweep[name]);
  if (name === "hit_ratio") {
    const tenths = Array.from({ length: 11 }, (_, i) => i / 10);
    if (tenths.includes(value) || value < 0 || value > 1) return String(catalog.defaults.sweep.hit_ratio);
    return [...tenths, value].sort((a, b) => a - b).join(",");
  }
  const { highest } = catalog.fields.find((field) => field.name === name);
  const factor = Math.min(AROUND, (highest ?? Infinity) / value);
  const short = (number) => Number(number.toPrecision(12));
  return value > 0 && factor > 1 ? `log:${short(value / factor)}:${short(value * factor)}:n${AROUND_POINTS}` : settings[name].trim();
}

/** Indices in the dims of a sweep that lie nearest to the single point, by dim. */
function pointIndices(settings, dims) {
  const near = (values, value) => values.reduce((best, each, i) => (Math.abs(each - value) < Math.abs(values[best] - value) ? i : best), 0);
  const through = dims.filter(({ name }) => AXES.includes(name) && Number.isFinite(plainNumber(settings[name])));
  return Object.fromEntries(through.map(({ name, values }) => [name, near(values, plainNumber(settings[name]))]));
}

/** Number of a text with no unit, or with one of a share or of a time; NaN of others. */
function plainNumber(text) {
  const found = /^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(%|ms|s)?\s*$/i.exec(text.slice(0, 40));
  return found ? Number(found[1]) * ({ "%": 0.01, ms: 0.001 }[found[2]] ?? 1) : NaN;
}

/** Body of /api/sweep. */
function sweepBody(settings, catalog) {
  const body = { ...deploymentBody(settings), total_blocks: numberOrText(settings.total_blocks) };
  for (const name of AXES) body[name] = axisText(settings, name, catalog);
  if (settings.extra) body[settings.extra] = settings["axis.extra"];
  return body;
}

function deploymentBody(settings) {
  const body = {};
  if (settings.stack) body.stack = settings.stack;
  else {
    for (const name of PARTS) body[name] = settings[name];
    for (const name of COUNTS) body[name] = numberOrText(settings[name]);
  }
  if (settings.model) body.model = settings.model;
  for (const name of MODEL) if (settings[name].trim()) body[name] = numberOrText(settings[name], SCALES[name]);
  body.placement = settings.placement === "auto" ? "auto" : `manual:${SHARES.map((tier) => settings[`share.${tier}`]).join(",")}`;
  return body;
}

/** A number where the text is nothing but one; other text (units, axes, mistakes) as it is, for the server to read. */
function numberOrText(text, scale = 1) {
  const trimmed = text.trim();
  const number = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(trimmed) ? Number(trimmed) * scale : NaN;
  return Number.isFinite(number) ? number : trimmed;
}
