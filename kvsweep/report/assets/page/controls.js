// Selects, sliders and check boxes over a state.

/** Replaces the options of a select: `options` are [value, text] or [value, text, group]; groups keep their order. */
function setOptions(select, options, chosen) {
  const groups = new Map();
  for (const [value, text, label = ""] of options) {
    if (!groups.has(label)) groups.set(label, label ? make("optgroup", { label }) : document.createDocumentFragment());
    groups.get(label).append(make("option", { value, selected: value === chosen }, text));
  }
  select.replaceChildren(...groups.values());
  select.value = chosen;
}

/**
 * Sliders inside `root` for every dim that is not on an axis, lists for those of names. `change(name, index)` is called as
 * they are used. Those that stay are kept, so that the one in use keeps its focus.
 */
function showSliders(root, cube, state, change) {
  const held = cube.dims.filter((dim) => dim.name !== state.x && dim.name !== state.y && !dim.held);
  const known = new Map([...root.children].map((element) => [`${element.dataset.kind} ${element.dataset.dim}`, element]));
  const rows = held.map((dim) => known.get(`${dim.kind} ${dim.name}`) ?? (dim.kind === "category" ? makeList : makeSlider)(dim, change));
  if (rows.length !== root.children.length || rows.some((row, i) => row !== root.children[i])) root.replaceChildren(...rows);
  for (const [i, dim] of held.entries()) {
    const index = state.at[dim.name];
    if (dim.kind === "category") {
      showList(rows[i], dim, index);
      continue;
    }
    const [input, output] = [rows[i].querySelector("input"), rows[i].querySelector("output")];
    const text = dimValue(dim, index);
    Object.assign(input, { max: String(dim.values.length - 1), disabled: dim.values.length === 1 });
    if (Number(input.value) !== index) input.value = String(index);
    input.setAttribute("aria-valuetext", text);
    output.textContent = text;
    output.title = text;
  }
}

function makeList(dim, change) {
  const id = `kv-slider-${dim.name}`;
  const select = make("select", { id });
  select.addEventListener("change", () => change(dim.name, Number(select.value)));
  const row = make("div", { class: "control" }, make("label", { for: id }, dim.label), select);
  Object.assign(row.dataset, { dim: dim.name, kind: dim.kind });
  return row;
}

/** Shows the name at `index`; an open list keeps its options while they are the same. */
function showList(row, dim, index) {
  const select = row.lastChild;
  if (row.values !== dim.values) setOptions(select, dim.values.map((value, i) => [String(i), value]), String(index));
  Object.assign(row, { values: dim.values });
  Object.assign(select, { value: String(index), disabled: dim.values.length === 1 });
}

function makeSlider(dim, change) {
  const id = `kv-slider-${dim.name}`;
  const input = make("input", { type: "range", id, min: "0", max: String(dim.values.length - 1), step: "1" });
  input.addEventListener("input", () => change(dim.name, Number(input.value)));
  const row = make("div", { class: "slider" }, make("label", { for: id }, dim.label), input, make("output", { for: id }));
  Object.assign(row.dataset, { dim: dim.name, kind: dim.kind });
  return row;
}
