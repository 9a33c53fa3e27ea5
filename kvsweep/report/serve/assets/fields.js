// Controls of one input each: label, text, slider where one helps, hint and error.

/** Sliders by input: the range that is usual, not the one that is allowed; the text beside them takes any value. */
const SLIDERS = {
  total_blocks: { low: 1000, high: 1e6, log: true, digits: 2 },
  hit_ratio: { low: 0, high: 1, step: 0.01 },
  request_rate: { low: 0.001, high: 10, log: true, digits: 2 },
  p95_seconds: { low: 0.1, high: 200, log: true, digits: 2 },
  gpu_eta: { low: 0.01, high: 1, step: 0.01 },
};
const LOG_STEPS = 400;

/** A control with a label, a hint and a place for an error. `name` is that of the input it sets. */
class Field {
  constructor(name, label, controls, hint = "") {
    this.name = name;
    const id = controls[0].id;
    this.hint = make("p", { class: "hint", id: `${id}-hint` }, hint);
    this.error = make("p", { class: "error", id: `${id}-error`, hidden: true });
    this.control = controls[0];
    this.control.setAttribute("aria-describedby", `${id}-hint ${id}-error`);
    this.element = make("div", { class: "field" }, make("label", { for: id }, label), ...controls, this.hint, this.error);
  }

  /** Shows what is wrong with the value, or with "" that nothing is. */
  refuse(message) {
    this.error.textContent = message;
    this.error.hidden = !message;
    if (message) this.control.setAttribute("aria-invalid", "true");
    else this.control.removeAttribute("aria-invalid");
  }
}

/** A select. `options` are [value, text]; `change(value)` is called as it is used. */
class SelectField extends Field {
  constructor(name, label, options, change) {
    const select = make("select", { id: `kd-${name}` });
    super(name, label, [select]);
    setOptions(select, options, options[0][0]);
    select.addEventListener("change", () => change(select.value));
  }

  show(value, hint = "", note = "") {
    this.control.value = value;
    this.hint.textContent = hint;
    this.hint.title = note;
  }
}

/** A text with a slider where `SLIDERS` has one. `change(text)` is called as either is used. */
class NumberField extends Field {
  constructor(name, label, change, id = `kd-${name}`) {
    const spec = id === `kd-${name}` ? SLIDERS[name] : null;
    const text = make("input", { type: "text", id, autocomplete: "off", spellcheck: false });
    const slider = spec ? make("input", { type: "range", id: `${id}-slider`, ...sliderRange(spec), "aria-label": `${label}, slider` }) : null;
    super(name, label, slider ? [text, slider] : [text]);
    this.element.classList.toggle("slid", Boolean(slider));
    Object.assign(this, { spec, slider });
    text.addEventListener("input", () => { this.follow(text.value); change(text.value); });
    text.addEventListener("blur", () => { if (text.value !== this.shown) text.value = this.shown; });
    slider?.addEventListener("input", () => {
      text.value = sliderText(spec, Number(slider.value));
      slider.setAttribute("aria-valuetext", text.value);
      change(text.value);
    });
  }

  /** Shows a value, except in a text that is being written. */
  show(text, hint = "") {
    this.shown = text;
    if (this.control.value !== text && document.activeElement !== this.control) this.control.value = text;
    this.hint.textContent = hint;
    this.follow(text);
  }

  /** Moves the slider to where the text is. */
  follow(text) {
    const value = numberOrText(text.replace(/^\s*(\S+?)\s*%\s*$/, "$1"), text.includes("%") ? 0.01 : 1);
    if (!this.slider || typeof value !== "number") return;
    const { low, high, log } = this.spec;
    const place = log ? LOG_STEPS * Math.log(value / low) / Math.log(high / low) : value;
    if (sliderText(this.spec, Number(this.slider.value)) !== text) this.slider.value = String(place);
    this.slider.setAttribute("aria-valuetext", text);
  }
}

function sliderRange({ low, high, log, step }) {
  return log ? { min: "0", max: String(LOG_STEPS), step: "1" } : { min: String(low), max: String(high), step: String(step) };
}

function sliderText({ low, high, log, digits = 4 }, place) {
  const value = log ? low * (high / low) ** (place / LOG_STEPS) : place;
  return String(Number(value.toPrecision(digits)));
}

/** Sliders of the shares of three tiers, with what they come to in percent. */
class SharesField {
  constructor(tiers, change) {
    this.rows = tiers.map((tier) => {
      const id = `kd-share-${tier}`;
      const input = make("input", { type: "range", id, min: "0", max: "100", step: "1" });
      input.addEventListener("input", () => change(`share.${tier}`, input.value));
      const output = make("output", { for: id });
      return { tier, input, output, element: make("div", { class: "share" }, make("label", { for: id }, TIER_NAMES[tier] ?? tier), input, output) };
    });
    this.element = make("div", { class: "shares", role: "group", "aria-label": "Shares of the tiers" }, ...this.rows.map((row) => row.element));
  }

  show(settings) {
    const weights = this.rows.map(({ tier }) => Math.max(0, Number(settings[`share.${tier}`]) || 0));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    this.rows.forEach(({ tier, input, output }, i) => {
      // No weight at all means everything on disk.
      const share = total ? weights[i] / total : Number(tier === "disk");
      if (Number(input.value) !== weights[i]) input.value = String(weights[i]);
      const text = `${(100 * share).toFixed(1)} %`;
      output.textContent = text;
      input.setAttribute("aria-valuetext", text);
    });
  }
}

const TIER_NAMES = { vram: "VRAM (HBM)", dram: "DRAM", disk: "Disk" };
