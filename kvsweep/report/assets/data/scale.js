// Axes: how values lie along them and where ticks go.

/** Least share of its values that a scale spans: what differs by less than a tenth of that looks alike. */
const LEAST_SPAN = 0.1;
/** Least space between two tick labels [px]. */
const GAP = 10;

/** How the values of a dim are spaced: "log", "linear" or, where no scale is even roughly right, "index". */
function spacing(dim) {
  const values = dim.values;
  if (dim.kind !== "number" || values.length < 2) return "index";
  const up = values[1] > values[0];
  for (let i = 1; i < values.length; i++) if (values[i] > values[i - 1] !== up) return "index";
  const low = Math.min(values[0], values.at(-1));
  const high = Math.max(values[0], values.at(-1));
  if (values.length > 2 && low > 0 && high / low > 8) {
    const middle = values[(values.length - 1) >> 1];
    const share = (values.length - 1) >> 1;
    const along = share / (values.length - 1);
    const geometric = values[0] * (values.at(-1) / values[0]) ** along;
    const arithmetic = values[0] + (values.at(-1) - values[0]) * along;
    if (Math.abs(Math.log(middle / geometric)) < Math.abs(Math.log(middle / arithmetic))) return "log";
  }
  return "linear";
}

/** Round values between `low` and `high`, at most about `count` of them. */
function niceValues(low, high, count, log) {
  if (log) {
    const decades = Math.log10(high / low);
    const steps = decades > count ? [1] : decades * 3 <= count ? [1, 2, 5] : [1, 3];
    const stride = Math.max(1, Math.ceil((decades * steps.length) / count));
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      if (steps.length === 1 && power % stride) continue;
      for (const step of steps) {
        const value = Number((step * 10 ** power).toPrecision(6));
        if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) found.push(value);
      }
    }
    if (found.length >= 2) return found;
  }
  const span = high - low;
  if (span <= 0) return [low];
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** Position of `value` among the monotone `values`, as a fractional index. */
function fractionalIndex(values, value) {
  const up = values.at(-1) >= values[0];
  let low = 0;
  let high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value === up) low = middle;
    else high = middle;
  }
  const span = values[high] - values[low];
  return span ? low + (value - values[low]) / span : low;
}

/**
 * Ticks of a dim along `pixels`, as [{at: fractional index, text}].
 * `room(text)` says how many pixels a label takes along the axis.
 */
function axisTicks(dim, pixels, room) {
  const values = dim.values;
  const widest = Math.max(...[0, values.length >> 1, values.length - 1].map((i) => room(tickText(dim, values[i])))) + GAP;
  const fits = Math.max(1, Math.floor(pixels / widest));
  const kind = spacing(dim);
  if (kind === "index" || values.length <= Math.min(fits, 14)) {
    const stride = dim.kind === "category" ? 1 : Math.ceil(values.length / fits);
    return values.map((value, at) => ({ at, text: tickText(dim, value) })).filter((_, at) => at % stride === 0);
  }
  const low = Math.min(values[0], values.at(-1));
  const high = Math.max(values[0], values.at(-1));
  for (let count = 8; ; count--) {
    const wanted = niceValues(low, high, count, kind === "log");
    const taken = Math.max(...wanted.map((value) => room(formatTick(value)))) + GAP;
    if (count > 1 && taken * wanted.length > pixels * 1.15) continue;
    return wanted.map((value) => ({ at: fractionalIndex(values, value), text: formatTick(value) }));
  }
}

function tickText(dim, value) {
  return typeof value === "string" ? value : formatTick(value);
}

/** Names of an axis that do not fit side by side are slanted by so much [degree]. */
const SLANT = 38;
const MOST_LETTERS = 24;

/** Text of a tick that is a name; endless ones are cut. */
function tickName(text) {
  return text.length > MOST_LETTERS ? `${text.slice(0, MOST_LETTERS - 1)}…` : text;
}

/** How much more height [px] the names along `pixels` need to be slanted, 0 where they fit side by side. */
function slantRoom(dim, pixels, measure) {
  if (dim.kind !== "category") return 0;
  const widest = Math.max(...dim.values.map((value) => measure(tickName(value))));
  return widest > pixels / dim.values.length - 6 ? Math.ceil(widest * Math.sin((SLANT * Math.PI) / 180)) : 0;
}

/** [low, high] around values, wide enough that differences of a few percent look like that; `from0` starts at 0 if near. */
function wideRange(least, most, from0 = false) {
  const low = from0 && least >= 0 && least < 0.6 * most ? 0 : least;
  const lack = LEAST_SPAN * Math.max(Math.abs(least), Math.abs(most)) - (most - low);
  if (lack <= 0 && most > low) return [low, most];
  const more = Math.max(lack, most > low ? 0 : 1) / 2;
  return [low - more < 0 && least >= 0 ? 0 : low - more, most + more];
}
