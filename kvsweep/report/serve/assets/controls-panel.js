// The controls: machine, model, placement and workload, over one object of settings.

const CUSTOM_PARTS = "Custom parts";
const CUSTOM_MODEL = "Custom parameters";
const PART_UNITS = { peak_flops: "FLOP/s", hbm_bandwidth: "B/s", hbm_capacity: "B", dram_bandwidth: "B/s", dram_capacity: "B",
  disk_bandwidth: "B/s", disk_capacity: "B", link_bandwidth: "B/s" };
const FAMILIES = { reference: "Reference: as published, errors included", datasheet: "Datasheet: sourced, dense arithmetic", own: "Your own" };
const UNITS = { total_blocks: "blocks", request_rate: "1/s", p95_seconds: "s" };

/** The controls inside `root`. `change()` is called after a setting has changed. */
class ControlsPanel {
  constructor(root, catalog, settings, change) {
    Object.assign(this, { catalog, settings, change, fields: {}, axes: {} });
    this.labels = Object.fromEntries(catalog.fields.map(({ name, label }) => [name, label]));
    root.replaceChildren(this.workload(), this.placement(), this.machine(), this.model());
    this.show();
  }

  /** Takes other settings, for example of another fragment. */
  take(settings) {
    this.settings = settings;
    this.show();
  }

  set(changes) {
    Object.assign(this.settings, changes);
    this.show();
    this.change();
  }

  entry(name, key) {
    return this.catalog.parts[name].find((each) => each.key === key);
  }

  machine() {
    const stacks = this.catalog.parts.stack.map(({ key, family }) => [key, key, FAMILIES[family]]);
    this.add(new SelectField("stack", "Stack preset", [...stacks, ["", CUSTOM_PARTS]], (key) =>
      this.set(key ? { stack: key, ...partsOf(this.catalog, key) } : { stack: "" })));
    for (const name of PARTS) {
      const options = this.catalog.parts[name].map((entry) => [entry.key, choiceText(entry), FAMILIES[entry.family]]);
      this.add(new SelectField(name, { gpu: "GPU", dram: "DRAM", disk: "Disk", link: "Link" }[name], options, (key) => this.setPart(name, key)));
    }
    for (const name of COUNTS) this.add(new NumberField(name, this.labels[name], (text) => this.setPart(name, text.trim())));
    const { stack, gpu, gpu_count, dram, dram_count, disk, link } = this.fields;
    return group("Machine", stack.element, gpu.element, gpu_count.element, dram.element, dram_count.element, disk.element, link.element);
  }

  /** Sets a part or count; the preset becomes the one that has just these, or custom. */
  setPart(name, value) {
    const next = { ...this.settings, [name]: value };
    const same = this.catalog.parts.stack.find(({ key }) =>
      Object.entries(partsOf(this.catalog, key)).every(([part, each]) => each === next[part]));
    this.set({ [name]: value, stack: same?.key ?? "" });
  }

  model() {
    const models = this.catalog.parts.model.map(({ key, name, family }) => [key, name, FAMILIES[family]]);
    this.add(new SelectField("model", "Model", [["", CUSTOM_MODEL], ...models], (key) => this.setModel(key)));
    for (const name of MODEL) {
      const label = name === "model_params" ? "Parameters [billion]" : name === "gpu_eta" ? "η, achieved share of peak compute" : this.labels[name];
      this.add(new NumberField(name, label, (text) => this.set({ [name]: text === this.modelText(name) ? "" : text })));
    }
    const { model, model_params, tokens_per_block, bytes_per_block, gpu_eta } = this.fields;
    return group("Model", model.element, model_params.element, make("div", { class: "pair" }, bytes_per_block.element, tokens_per_block.element), gpu_eta.element);
  }

  /** Chooses a model with its own figures; custom parameters start with the figures there are. */
  setModel(key) {
    const own = MODEL.map((name) => [name, key ? "" : this.settings[name] || this.modelText(name)]);
    this.set({ model: key, ...Object.fromEntries(own) });
  }

  /** The chosen model's own value of a field, as its control shows it. */
  modelText(name) {
    const { sets } = this.entry("model", this.settings.model) ?? { sets: this.catalog.defaults.model };
    const value = sets[name] / (SCALES[name] ?? 1);
    return name === "bytes_per_block" ? formatQuantity(value, "B", 7) : String(Number(value.toPrecision(6)));
  }

  placement() {
    const radios = [["auto", "Auto: fastest tier first"], ["manual", "Manual shares"]].map(([value, text]) => {
      const id = `kd-placement-${value}`;
      const input = make("input", { type: "radio", name: "placement", id, value });
      input.addEventListener("change", () => this.set({ placement: value }));
      return make("div", { class: "control check" }, input, make("label", { for: id }, text));
    });
    this.radios = radios;
    this.shares = new SharesField(SHARES, (name, value) => this.set({ [name]: value }));
    this.placementError = make("p", { class: "error", hidden: true });
    this.fields.placement = { element: this.shares.element, refuse: (message) => {
      this.placementError.textContent = message;
      this.placementError.hidden = !message;
    } };
    return group("Placement of the cached KV", make("div", { class: "radios" }, ...radios), this.shares.element, this.placementError);
  }

  workload() {
    for (const name of WORKLOAD) {
      this.add(new NumberField(name, withUnit(this.labels[name], UNITS[name]), (text) => this.set({ [name]: text })));
    }
    for (const name of AXES) {
      const field = new NumberField(name, `${withUnit(this.labels[name], UNITS[name])}, axis`, (text) => this.set({ [`axis.${name}`]: text }), `kd-axis-${name}`);
      this.axes[name] = field;
    }
    const others = [...Object.keys(this.catalog.parts), "placement", ...this.catalog.fields.map(({ name }) => name)];
    const free = others.filter((name) => !AXES.includes(name) && name !== "miss_blocks");
    const titles = { placement: "Placement", stack: "Stack", model: "Model", gpu: "GPU", dram: "DRAM", disk: "Disk", link: "Link" };
    this.extra = new SelectField("extra", "One more axis", [["", "none"], ...free.map((name) => [name, titles[name] ?? this.labels[name]])],
      (name) => this.set({ extra: name, "axis.extra": name ? this.firstAxis(name) : "" }));
    this.extraAxis = new NumberField("axis-extra", "Its values", (text) => this.set({ "axis.extra": text }));
    const rows = WORKLOAD.map((name) => this.fields[name].element);
    const axisHint = make("p", { class: "hint" }, `Axes: ${this.catalog.axis_forms}. At most ${formatCount(this.catalog.limits.points)} points.`);
    this.axisGroup = make("div", { class: "axes" }, ...AXES.map((name) => this.axes[name].element), this.extra.element, this.extraAxis.element, axisHint);
    return group("Workload", ...rows, this.axisGroup);
  }

  /** First values of an axis the reader adds: what is set now, with something to compare it with. */
  firstAxis(name) {
    if (name === "placement") return this.settings.placement === "auto" ? "auto,disk" : "simplex:2";
    const entries = this.catalog.parts[name];
    if (entries) {
      const keys = [this.settings[name], ...entries.map(({ key }) => key)].filter((key) => key);
      return [...new Set(keys)].slice(0, 3).join(",");
    }
    if (name === "total_blocks") return "50000,100000,150000,200000";
    const { sets } = { sets: Object.assign({}, ...[...PARTS, "model"].map((part) => this.entry(part, this.settings[part])?.sets)) };
    const value = MODEL.includes(name) && !sets[name] ? this.catalog.defaults.model[name] : Number(sets[name] ?? this.settings[name]);
    return name === "gpu_eta" ? "0.1:0.9:0.1" : [value, 2 * value, 4 * value].join(",");
  }

  add(field) {
    this.fields[field.name] = field;
  }

  /** Shows the settings in all controls. */
  show() {
    const { settings, fields } = this;
    const { sets: set } = this.entry("stack", settings.stack) ?? { sets: settings };
    fields.stack.show(settings.stack, `${set.gpu_count} × ${set.gpu}, ${set.dram_count} × ${set.dram}, ${set.disk}, ${set.link}`);
    for (const name of PARTS) {
      const entry = this.entry(name, settings[name]);
      const figures = Object.entries(entry.sets).map(([figure, value]) => (value === null ? "no limit of capacity" : formatQuantity(value, PART_UNITS[figure])));
      const about = choiceText(entry) === entry.name ? entry.key : `${entry.name} (${entry.key})`;
      fields[name].show(settings[name], `${about}: ${figures.join(" · ")}`, entry.note);
    }
    for (const name of COUNTS) fields[name].show(settings[name]);
    fields.model.show(settings.model);
    for (const name of MODEL) {
      const changed = settings.model && settings[name];
      fields[name].show(settings[name] || this.modelText(name), changed ? `changed; the model’s own is ${this.modelText(name)}` : "");
    }
    for (const radio of this.radios) radio.firstChild.checked = radio.firstChild.value === settings.placement;
    this.shares.element.hidden = settings.placement !== "manual";
    this.shares.show(settings);
    for (const name of WORKLOAD) fields[name].show(settings[name]);
    fields.total_blocks.show(settings.total_blocks, this.tokensHint());
    for (const name of AXES) {
      const own = settings[`axis.${name}`];
      this.axes[name].show(axisText(settings, name, this.catalog), own ? "" : `around the single point, ${settings[name]}`);
    }
    this.extra.show(settings.extra);
    this.extraAxis.show(settings["axis.extra"]);
    this.showTab();
  }

  /** The blocks of a prompt as tokens, where both are plain numbers. */
  tokensHint() {
    const tokens = plainNumber(this.settings.total_blocks) * plainNumber(this.settings.tokens_per_block || this.modelText("tokens_per_block"));
    return Number.isFinite(tokens) ? `= ${formatTokens(tokens, 7)} tokens` : "";
  }

  /** Shows axes in place of the single values they replace, or the other way round. */
  showTab() {
    const sweep = this.settings.tab === "sweep";
    for (const name of AXES) this.fields[name].element.hidden = sweep;
    this.axisGroup.hidden = !sweep;
    this.extraAxis.element.hidden = !this.settings.extra;
    this.fields.total_blocks.element.hidden = sweep && this.settings.extra === "total_blocks";
  }

  /** Shows the messages of a Refusal at their fields; returns them with the names of these. */
  refuse(messages) {
    const sweep = this.settings.tab === "sweep";
    const current = { ...this.fields, ...(sweep ? this.axes : {}) };
    if (sweep && this.settings.extra) current[this.settings.extra] = this.extraAxis;
    const all = [...Object.values(this.fields), ...Object.values(this.axes), this.extraAxis];
    for (const field of new Set(all)) field.refuse("");
    return Object.entries(messages).map(([name, message]) => {
      current[name]?.refuse(message);
      return `${this.labels[name] ?? name}: ${message}`;
    });
  }
}

function group(title, ...children) {
  return make("fieldset", {}, make("legend", {}, title), ...children);
}

/** Text of an entry in a list: its name, or its key where that is too long for the list; the hint has both. */
function choiceText({ key, name }) {
  return name.length > 36 ? key : name;
}

function withUnit(label, unit) {
  return unit ? `${label} [${unit}]` : label;
}
