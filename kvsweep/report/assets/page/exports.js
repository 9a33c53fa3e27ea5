// The view as files and as a table.

const CSV_COLUMNS = ["verdict", "decision_mode", "total_time", "reassigned_hit_blocks", "storage_time", "recompute_time",
  "gpu_utilization", "storage_utilization", "slo_margin"].map((name) => [name, name]);

/** CSV of the current slice: one row a cell and policy, every number in full. */
function sliceCsv(cube, state) {
  const dims = cube.dims.map((dim) => dim.name);
  const fixed = Object.keys(cube.header.scalars);
  const columns = cube.header.columns ?? CSV_COLUMNS;
  const lines = [[...dims, ...fixed, "policy", ...columns.map(([name]) => name)].map(csvField).join(",")];
  const [nx, ny] = [state.x, state.y].map((name) => cube.dim(name).values.length);
  cube.policies.forEach((policy, p) => {
    const readers = columns.map(([, quantity]) => columnReader(cube, quantity, p, state));
    for (let iy = 0; iy < ny; iy++) {
      for (let ix = 0; ix < nx; ix++) {
        const point = { ...state.at, [state.x]: ix, [state.y]: iy };
        const fields = [...cube.dims.map((dim) => dimNumber(dim, point[dim.name])), ...fixed.map((name) => cube.header.scalars[name]),
          policy.id];
        lines.push([...fields, ...readers.map((read) => read(ix, iy))].map(csvField).join(","));
      }
    }
  });
  return lines.join("\n") + "\n";
}

/** Function (ix, iy) => text or number of a column. */
function columnReader(cube, quantity, policy, state) {
  const read = cube.reader(quantity, policy, state);
  if (quantity === "decision_mode") return (ix, iy) => cube.header.modes[read(ix, iy)] ?? "";
  if (!cube.views[quantity]?.plane) return read;
  const { names } = stateLook(cube, quantity, LIGHT);
  return (ix, iy) => names[read(ix, iy)];
}

/** Promise of a PNG of all maps with their titles, the point of the sliders and the legend. */
function viewPng(cube, state, panels, summary, theme) {
  const columns = Math.min(3, panels.length);
  const { width, height } = panels[0].layout;
  const rows = Math.ceil(panels.length / columns);
  const full = columns * (width + 16) - 16;
  const { canvas, ctx, line } = sheet(full + 32, 84 + rows * (height + 34) + 16, theme);
  pngTitle(cube, state, line, theme, full);
  line(TICK_FONT, theme.muted, legendLine(summary), 16, 66, full);
  panels.forEach((panel, i) => {
    const x = 16 + (i % columns) * (width + 16);
    const y = 92 + Math.floor(i / columns) * (height + 34);
    line(`600 13px ${FONT}`, theme.text, `${panel.title} (${panel.note.textContent})`, x, y + 4, width);
    ctx.drawImage(panel.base, x, y + 12, width, height);
    ctx.drawImage(panel.overlay, x, y + 12, width, height);
  });
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** Promise of a PNG of the curves with their title, the point and the key. */
async function curvesPng(cube, state, chart, theme) {
  const svg = chart.drawing.firstChild.cloneNode(true);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  for (const [name, value] of Object.entries({ width, height, "font-family": FONT })) svg.setAttribute(name, value);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
  await image.decode();
  const { canvas, ctx, line } = sheet(width + 32, 74 + height + 20 * cube.policies.length, theme);
  pngTitle(cube, state, line, theme, width);
  ctx.drawImage(image, 16, 60, width, height);
  cube.policies.forEach((policy, i) => {
    const y = 74 + height + 20 * i;
    ctx.fillStyle = policyColor(cube.policies, i);
    ctx.fillRect(16, y - 12, 14, 14);
    line(TICK_FONT, theme.text, `${policyMark(i)} ${policy.label}`, 36, y, width - 20);
  });
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** An empty sheet of twice the pixels, and what writes a line of text on it. */
function sheet(width, height, theme) {
  const canvas = make("canvas", { width: 2 * width, height: 2 * height });
  const ctx = canvas.getContext("2d");
  ctx.scale(2, 2);
  ctx.fillStyle = theme.page;
  ctx.fillRect(0, 0, width, height);
  ctx.textBaseline = "alphabetic";
  const line = (font, color, text, x, y, room) => {
    ctx.font = font;
    ctx.fillStyle = color;
    ctx.fillText(fitText((each) => ctx.measureText(each).width, text, room), x, y);
  };
  return { canvas, ctx, line };
}

/** Writes what is shown, and at which values of the other axes. */
function pngTitle(cube, state, line, theme, room) {
  line(`600 15px ${FONT}`, theme.text, `${cube.views[state.view].label} · ${cube.header.headline[0]}`, 16, 26, room);
  const held = cube.dims.filter((dim) => dim.name !== state.x && dim.name !== state.y && !dim.held);
  line(TICK_FONT, theme.muted, held.map((dim) => `${dim.label} ${dimValue(dim, state.at[dim.name])}`).join(" · "), 16, 46, room);
}

function legendLine(summary) {
  if (summary.continuous) {
    const ticks = [...summary.continuous.ticks].sort((a, b) => a.at - b.at);
    return `Colours from left to right of the scale: ${ticks.map((tick) => formatTick(tick.value)).join(", ")}`;
  }
  const { letters, texts } = summary.look;
  return texts.map((text, state) => `${letters[state]} ${text}`).reverse().join(" · ");
}

const TABLE_CELLS = 20_000;

/** Fills `root` with the current view of one policy as a table, y downwards from its first value. */
function showViewTable(root, cube, state, policy) {
  const [xDim, yDim] = [cube.dim(state.x), cube.dim(state.y)];
  if (xDim.values.length * yDim.values.length > TABLE_CELLS) {
    root.replaceChildren(make("p", {}, `This view has ${formatCount(xDim.values.length * yDim.values.length)} cells, too many for a table; save the CSV instead.`));
    return;
  }
  const { plane, label } = cube.views[state.view];
  const letters = plane && stateLook(cube, plane, LIGHT).letters;
  const read = cube.reader(plane ?? state.view, policy, state);
  const heads = xDim.values.map((_, i) => make("th", { scope: "col" }, dimValue(xDim, i, 3)));
  const rows = yDim.values.map((_, iy) =>
    make("tr", {}, make("th", { scope: "row" }, dimValue(yDim, iy, 3)),
      ...xDim.values.map((__, ix) => make("td", {}, letters ? letters[read(ix, iy)] : formatNumber(read(ix, iy), 3)))));
  const title = `${label}, ${cube.policies[policy].label}`;
  root.replaceChildren(make("table", { class: "numbers" }, make("caption", {}, `${title}: ${dimTitle(yDim)} down, ${dimTitle(xDim)} across`),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, `${yDim.label} \\ ${xDim.label}`), ...heads)), make("tbody", {}, ...rows)));
}
