// What the reader has chosen, and its form in the URL fragment.

/** First state of a view of `cube`. */
function initialState(cube) {
  const [x, y] = cube.header.axes;
  const chart = ["hit_ratio", "miss_blocks", "total_blocks"].find((name) => (cube.dim(name)?.values.length ?? 0) > 1);
  return { x, y, view: cube.header.view ?? "verdict", at: { ...cube.header.start }, pin: null, breakEven: true, chart: chart ?? x, held: false };
}

/** Fragment of a state; what else the page keeps in its fragment stays. */
function toFragment(state, cube) {
  const parts = new URLSearchParams(location.hash.replace(/^#/, ""));
  for (const name of ["x", "y", "view", "chart"]) parts.set(name, state[name]);
  for (const name of ["at", "pin", "even", "held"]) parts.delete(name);
  parts.set("at", cube.dims.map((dim) => state.at[dim.name]).join("."));
  if (state.pin) parts.set("pin", cube.dims.map((dim) => state.pin[dim.name]).join("."));
  if (!state.breakEven) parts.set("even", "0");
  if (state.held) parts.set("held", "1");
  return `#${parts}`;
}

/** State in a fragment; whatever is missing or makes no sense in `cube` stays as in the first state. */
function fromFragment(fragment, cube) {
  const state = initialState(cube);
  const parts = new URLSearchParams(fragment.replace(/^#/, ""));
  const isDim = (name) => cube.dimIndex(name) >= 0;
  const [x, y] = [parts.get("x"), parts.get("y")];
  if (isDim(x) && isDim(y) && x !== y) Object.assign(state, { x, y });
  if (Object.hasOwn(cube.views, parts.get("view") ?? "")) state.view = parts.get("view");
  if (isDim(parts.get("chart"))) state.chart = parts.get("chart");
  state.at = pointFrom(parts.get("at"), cube) ?? state.at;
  state.pin = pointFrom(parts.get("pin"), cube);
  state.breakEven = parts.get("even") !== "0";
  state.held = parts.get("held") === "1";
  return state;
}

function pointFrom(text, cube) {
  const indices = (text ?? "").split(".").map((part) => (/^\d{1,9}$/.test(part) ? Number(part) : -1));
  const fits = indices.length === cube.dims.length && indices.every((i, d) => i >= 0 && i < cube.shape[d]);
  return fits ? Object.fromEntries(cube.dims.map((dim, d) => [dim.name, indices[d]])) : null;
}
