// Numbers, ticks and fragments as text.

const SI_STEPS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Text of a number with about `digits` significant digits; thousands separated by commas. */
function formatNumber(value, digits = 4) {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return minus(Number(value.toPrecision(digits)).toExponential());
  const rounded = Number(value.toPrecision(digits));
  return minus(rounded.toLocaleString("en-US", { maximumFractionDigits: 9 }));
}

/** Text of a value of an axis or coordinate: large ones with an SI prefix that belongs to the unit. */
function formatQuantity(value, unit = "", digits = 4) {
  if (typeof value === "string") return value;
  if (unit.startsWith("B") || unit.startsWith("FLOP")) {
    const step = SI_STEPS.find(([size]) => Math.abs(value) >= size);
    if (step) return `${formatNumber(value / step[0], digits)} ${step[1]}${unit}`;
  }
  return unit ? `${formatNumber(value, digits)} ${unit}` : formatNumber(value, digits);
}

/** Short text for a tick. */
function formatTick(value) {
  const size = Math.abs(value);
  const step = size >= 1e4 ? SI_STEPS.find(([least]) => size >= least) : null;
  if (step) return formatNumber(value / step[0], 4) + step[1];
  return formatNumber(value, 4);
}

/** Text of a share: 0 % and 100 % only of none and all. */
function formatShare(part, whole) {
  if (!whole) return "–";
  if (part === 0 || part === whole) return `${part ? 100 : 0} %`;
  const percent = (100 * part) / whole;
  return percent < 0.1 ? "<0.1 %" : percent > 99.9 ? ">99.9 %" : `${percent.toFixed(1)} %`;
}

/** Text of a count. */
function formatCount(count) {
  return count.toLocaleString("en-US");
}

/** Label of a dim with its unit in brackets. */
function dimTitle(dim) {
  return dim.unit ? `${dim.label} [${dim.unit}]` : dim.label;
}

/** Value of `dim` at `index` as files have it: in blocks where the page shows tokens. */
function dimNumber(dim, index) {
  return dim.per ? dim.values[index] / dim.per : dim.values[index];
}

/** Text of the value of `dim` at `index`. */
function dimValue(dim, index, digits = 4) {
  return formatQuantity(dim.values[index], dim.unit, digits);
}

/** `text` cut to what `measure` says fits into `width`. */
function fitText(measure, text, width) {
  if (measure(text) <= width) return text;
  let low = 0;
  let high = Math.min(text.length, 400);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(text.slice(0, middle) + "…") <= width) low = middle;
    else high = middle - 1;
  }
  return low ? text.slice(0, low) + "…" : "";
}

/** One field of a CSV file, quoted where needed; text that a spreadsheet would run as a formula is defused. */
function csvField(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function minus(text) {
  return String(text).replace("-", "−");
}
