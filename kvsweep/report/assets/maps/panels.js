// The maps: one for each policy and one of the simplest sufficient policy, with a shared cursor.

const KEY_STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], PageUp: [0, 10], PageDown: [0, -10] };

/**
 * Maps inside `root`. `on.cursor(ix, iy)` and `on.pin(ix, iy)` tell what the reader points at; `on.unpin()` what
 * Escape does.
 */
class Panels {
  constructor(root, on) {
    this.root = root;
    this.on = on;
    this.panels = [];
  }

  /** Sets up a map for each policy of `cube` and, where the data rank them, the one of the simplest sufficient policy. */
  build(cube) {
    this.cube = cube;
    const titles = cube.policies.map((policy, i) => `${policyMark(i)} ${policy.label}`);
    if (cube.header.simplest) titles.push(cube.best.title);
    // Maps of the same policies stay, and with them the focus of a reader who uses the keyboard.
    if (titles.join("\n") === this.panels.map((panel) => panel.title).join("\n")) return;
    for (const panel of this.panels) panel.figure.remove();
    this.hidden = null;
    this.panels = titles.map((title, index) => this.makePanel(title, index));
    this.root.prepend(...this.panels.map((panel) => panel.figure));
    this.measure();
  }

  /** Notes how wide the maps are; asked only when that may change, since asking makes the browser lay out the page. */
  measure() {
    for (const panel of this.panels) panel.width = Math.floor(panel.plot.clientWidth);
  }

  makePanel(title, index) {
    const base = make("canvas", { "aria-hidden": "true" });
    const overlay = make("canvas", { "aria-hidden": "true" });
    const plot = make("div", { class: "plot", tabIndex: 0, role: "application", "aria-roledescription": "map" }, base, overlay);
    plot.setAttribute("aria-describedby", "kv-keys");
    const note = make("span", { class: "note" });
    const name = wrapped(title, { class: "name clip" });
    const figure = make("figure", { class: "panel" }, make("figcaption", {}, name, note), plot);
    const panel = { figure, plot, base, overlay, note, title, index };
    plot.addEventListener("pointermove", (event) => this.point(panel, event, this.on.cursor));
    plot.addEventListener("click", (event) => this.point(panel, event, this.on.pin));
    plot.addEventListener("keydown", (event) => onMapKey(event, this.state, this.cube, this.on));
    return panel;
  }

  point(panel, event, act) {
    if (!panel.layout) return;
    const box = panel.base.getBoundingClientRect();
    const cell = cellAt(panel.layout, event.clientX - box.left, event.clientY - box.top);
    if (cell) act(...cell);
  }

  /** Paints every map for `state`, none where `hidden`; returns what the legend needs: counts by policy and of sufficiency. */
  paint(state, theme, hidden) {
    this.state = state;
    if (hidden !== this.hidden) {
      for (const panel of this.panels) panel.figure.hidden = hidden;
      this.hidden = hidden;
      this.measure();
    }
    const { cube } = this;
    const [xDim, yDim] = [cube.dim(state.x), cube.dim(state.y)];
    const plane = cube.codePlane(state.view);
    const look = stateLook(cube, plane, theme);
    const codes = cube.policies.map((_, policy) => cube.codes(plane, policy, state));
    const enough = cube.header.simplest ? cube.sufficient(state, codes) : null;
    const continuous = hidden || cube.views[state.view].plane ? null : colorScale(cube, state.view);
    const field = state.breakEven && this.ready ? breakEvenField(cube, state) : null;
    const segments = field ? zeroContour(field, xDim.values.length, yDim.values.length) : [];
    for (const panel of hidden ? [] : this.panels) {
      const policy = panel.index < cube.policies.length ? panel.index : null;
      const ctx = this.prepare(panel, xDim, yDim);
      if (!ctx) continue;
      if (policy === null) this.paintSufficient(ctx, panel, enough, theme);
      else if (continuous) this.paintValues(ctx, panel, cube.slice(state.view, policy, state), continuous);
      else this.paintStates(ctx, panel, codes[policy], look);
      paintContour(ctx, panel.layout, segments, true);
      paintAxes(ctx, panel.layout, xDim, yDim, theme);
      this.describe(panel, policy === null ? coveredShare(enough, cube) : stateShares(codes[policy], look), xDim, yDim);
    }
    return {
      look,
      counts: codes.map((each) => countCodes(each, look.names.length)),
      enough: enough && countCodes(enough, cube.policies.length + 1),
      continuous,
      field,
      crosses: segments.length > 0,
    };
  }

  prepare(panel, xDim, yDim) {
    const { width } = panel;
    if (!width) return null;
    const ctx = panel.base.getContext("2d");
    const key = [width, xDim, yDim];
    if (key.some((part, i) => part !== panel.key?.[i])) panel.layout = plotLayout(ctx, width, xDim, yDim);
    panel.key = key;
    const { height } = panel.layout;
    const ratio = Math.min(3, devicePixelRatio || 1);
    for (const canvas of [panel.base, panel.overlay]) {
      const size = [Math.round(width * ratio), Math.round(height * ratio)];
      if (canvas.width !== size[0] || canvas.height !== size[1]) {
        [canvas.width, canvas.height] = size;
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
        panel.plot.style.height = `${height}px`;
      }
    }
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    return ctx;
  }

  paintStates(ctx, panel, codes, look) {
    paintCells(ctx, panel.layout, codes, look.tiles, null);
    paintLetters(ctx, panel.layout, codes, look.letters, look.colors, look.inks);
  }

  paintSufficient(ctx, panel, codes, theme) {
    const { policies } = this.cube;
    const colors = [...policies.map((_, i) => policyColor(policies, i)), theme.none];
    paintCells(ctx, panel.layout, codes, policyTiles(theme, policies), null);
    paintLetters(ctx, panel.layout, codes, [...policies.map((_, i) => policyMark(i)), "–"], colors, colors.map(inkOn));
  }

  paintValues(ctx, panel, values, scale) {
    const { layout } = panel;
    paintCells(ctx, layout, Uint8Array.from(values, scale.code), null, scale.colors);
    paintMissing(ctx, layout, values);
    if (scale.limit === null) return;
    const field = values.map((value) => Math.max(-1e6, Math.min(1e6, value - scale.limit)));
    paintContour(ctx, layout, zeroContour(field, layout.nx, layout.ny), false);
  }

  describe(panel, note, xDim, yDim) {
    panel.note.textContent = note;
    const where = `${dimTitle(xDim)} across, ${dimTitle(yDim)} up`;
    panel.plot.setAttribute("aria-label", `${panel.title}: ${panel.note.textContent} in this view. ${where}.`);
  }

  /** Paints cursor and pin only. */
  paintOverlay(state) {
    this.state = state;
    const paper = matchMedia("print").matches;
    for (const panel of this.panels) {
      if (!panel.layout || this.hidden) continue;
      // On paper the overlay would hide the map below it, so both go on one canvas.
      const ctx = (paper ? panel.base : panel.overlay).getContext("2d");
      const ratio = panel.overlay.width / panel.layout.width;
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      if (!paper) ctx.clearRect(0, 0, panel.layout.width, panel.layout.height);
      if (state.pin) {
        const others = this.cube.dims.filter((dim) => dim.name !== state.x && dim.name !== state.y);
        const shown = others.every((dim) => state.pin[dim.name] === state.at[dim.name]);
        paintPin(ctx, panel.layout, state.pin[state.x], state.pin[state.y], shown);
      }
      paintCursor(ctx, panel.layout, state.at[state.x], state.at[state.y]);
    }
  }
}

/** Moves the cursor, pins or unpins, by the keyboard on a map. */
function onMapKey(event, state, cube, on) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = KEY_STEPS[event.key];
  const [ix, iy] = [state.at[state.x], state.at[state.y]];
  const [nx, ny] = [state.x, state.y].map((name) => cube.dim(name).values.length);
  if (step) {
    const far = event.shiftKey ? 10 : 1;
    on.cursor(clampIndex(ix + step[0] * far, nx), clampIndex(iy + step[1] * far, ny));
  } else if (event.key === "Home") on.cursor(0, iy);
  else if (event.key === "End") on.cursor(nx - 1, iy);
  else if (event.key === "Enter" || event.key === " ") on.pin(ix, iy);
  else if (event.key === "Escape") on.unpin();
  else return;
  event.preventDefault();
}

/** Shares of the states worth telling, as "12.5 % pass"; of several those there are, `look.none` without any. */
function stateShares(codes, look) {
  const counts = countCodes(codes, look.notes.length);
  const told = [...look.notes.keys()].reverse().filter((state) => look.notes[state] && (counts[state] || !look.none));
  return told.map((state) => `${formatShare(counts[state], codes.length)} ${look.notes[state]}`).join(", ") || look.none;
}

function coveredShare(codes, cube) {
  const covered = codes.reduce((sum, code) => sum + (code !== cube.policies.length), 0);
  return `${formatShare(covered, codes.length)} ${cube.best.note}`;
}

function clampIndex(index, length) {
  return Math.max(0, Math.min(length - 1, index));
}
