// Selects, sliders and check boxes over a state.

/** Replaces the options of a select: `options` are [value, text]. */
function setOptions(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => make("option", { value, selected: value === chosen }, text)));
  select.value = chosen;
}

/**
 * Sliders inside `root` for every dim that is not on an axis. `change(name, index)` is called as they move.
 * Sliders that stay are kept, so that the one in use keeps its focus.
 */
function showSliders(root, cube, state, change) {
  const held = cube.dims.filter((dim) => dim.name !== state.x && dim.name !== state.y);
  const known = new Map([...root.children].map((element) => [element.dataset.dim, element]));
  const rows = held.map((dim) => known.get(dim.name) ?? makeSlider(dim, change));
  if (rows.length !== root.children.length || rows.some((row, i) => row !== root.children[i])) root.replaceChildren(...rows);
  for (const [i, dim] of held.entries()) {
    const index = state.at[dim.name];
    const [input, output] = [rows[i].querySelector("input"), rows[i].querySelector("output")];
    const text = dimValue(dim, index);
    Object.assign(input, { max: String(dim.values.length - 1), disabled: dim.values.length === 1 });
    if (Number(input.value) !== index) input.value = String(index);
    input.setAttribute("aria-valuetext", text);
    output.textContent = text;
    output.title = text;
  }
}

function makeSlider(dim, change) {
  const id = `kv-slider-${dim.name}`;
  const input = make("input", { type: "range", id, min: "0", max: String(dim.values.length - 1), step: "1" });
  input.addEventListener("input", () => change(dim.name, Number(input.value)));
  const row = make("div", { class: "slider" }, make("label", { for: id }, dim.label), input, make("output", { for: id }));
  row.dataset.dim = dim.name;
  return row;
}
