// Drawing of one map on a canvas: cells, axes, letters, contours, cursor and pin.

const FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const TICK_FONT = `12px ${FONT}`;
const TITLE_FONT = `12.5px ${FONT}`;

const SPARE = document.createElement("canvas");

/** Where the cells of a map lie on a canvas `width` CSS pixels wide, with its ticks; a map of one row is a strip. */
function plotLayout(ctx, width, xDim, yDim) {
  ctx.font = TICK_FONT;
  const measure = (text) => ctx.measureText(text).width;
  const top = 6;
  const [nx, ny] = [xDim.values.length, yDim.values.length];
  const plotHeight = ny === 1 ? 44 : Math.round(Math.min(340, Math.max(220, width * 0.74))) - 48;
  const yTicks = ny === 1 ? [] : axisTicks(yDim, plotHeight, () => 9);
  const widest = Math.max(ny === 1 ? 0 : 18, ...yTicks.map((tick) => measure(tickName(tick.text))));
  const left = Math.min(widest, width * 0.4) + (ny === 1 ? 8 : 30);
  const plotWidth = width - left - 12;
  const slant = slantRoom(xDim, plotWidth, measure);
  const xTicks = axisTicks(xDim, plotWidth, (text) => Math.min(measure(text), 80));
  return { width, height: top + plotHeight + 42 + slant, left, top, plotWidth, plotHeight, slant, xTicks, yTicks, nx, ny };
}

/** Paints cells: `codes` row by row from the bottom, `tiles[code]` 64 pixels each, or `flat[code]` one colour. */
function paintCells(ctx, layout, codes, tiles, flat) {
  const scale = ctx.getTransform().a;
  const x0 = Math.round(layout.left * scale);
  const y0 = Math.round(layout.top * scale);
  const width = Math.max(1, Math.round(layout.plotWidth * scale));
  const height = Math.max(1, Math.round(layout.plotHeight * scale));
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const column = new Int32Array(width);
  for (let x = 0; x < width; x++) column[x] = Math.floor((x * layout.nx) / width);
  const zoom = Math.max(1, Math.round(scale));
  for (let y = 0, at = 0; y < height; y++) {
    const row = (layout.ny - 1 - Math.floor((y * layout.ny) / height)) * layout.nx;
    const patternRow = (Math.floor(y / zoom) & 7) * 8;
    if (flat) for (let x = 0; x < width; x++) pixels[at++] = flat[codes[row + column[x]]];
    else for (let x = 0; x < width; x++) pixels[at++] = tiles[codes[row + column[x]]][patternRow + (Math.floor(x / zoom) & 7)];
  }
  // By way of a second canvas: what is put directly on a canvas is lost when a browser prints it.
  if (SPARE.width < width || SPARE.height < height) Object.assign(SPARE, { width, height });
  SPARE.getContext("2d").putImageData(image, 0, 0);
  ctx.drawImage(SPARE, 0, 0, width, height, x0 / scale, y0 / scale, width / scale, height / scale);
}

/** Letters of the states: one in every cell that has room, otherwise one here and there in each region. */
function paintLetters(ctx, layout, codes, letters, colors, inks) {
  const cellWidth = layout.plotWidth / layout.nx;
  const cellHeight = layout.plotHeight / layout.ny;
  // Narrow cells get letters where there is room for a disc; `inside` keeps those off the frame.
  const stepX = Math.max(1, Math.round(64 / cellWidth));
  const stepY = Math.max(1, Math.round(52 / cellHeight));
  const roomy = cellWidth >= 17 && cellHeight >= 15;
  ctx.font = `600 12px ${FONT}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (let iy = roomy ? 0 : stepY >> 1; iy < layout.ny; iy += roomy ? 1 : stepY) {
    for (let ix = roomy ? 0 : stepX >> 1; ix < layout.nx; ix += roomy ? 1 : stepX) {
      const code = codes[iy * layout.nx + ix];
      const [x, y] = [cellX(layout, ix), cellY(layout, iy)];
      const inside = Math.min(x - layout.left, layout.left + layout.plotWidth - x, y - layout.top, layout.top + layout.plotHeight - y);
      if (!roomy && inside < 9 && layout.ny * layout.nx > 1) continue;
      ctx.fillStyle = colors[code];
      if (!roomy || Math.min(cellWidth, cellHeight) > 17) fillDisc(ctx, x, y, 8.5);
      ctx.fillStyle = inks[code];
      ctx.fillText(letters[code], x, y + 0.5);
    }
  }
}

/** Greys the cells that have no number. */
function paintMissing(ctx, layout, values) {
  const [width, height] = [layout.plotWidth / layout.nx, layout.plotHeight / layout.ny];
  ctx.fillStyle = "#8b9199";
  values.forEach((value, i) => {
    if (!Number.isNaN(value)) return;
    const [x, y] = [cellX(layout, i % layout.nx), cellY(layout, Math.floor(i / layout.nx))];
    ctx.fillRect(x - width / 2, y - height / 2, width, height);
  });
}

function fillDisc(ctx, x, y, radius) {
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fill();
}

/** Frame, ticks and titles of the axes. */
function paintAxes(ctx, layout, xDim, yDim, theme) {
  const { left, top, plotWidth, plotHeight } = layout;
  const bottom = top + plotHeight;
  const measure = (text) => ctx.measureText(text).width;
  ctx.strokeStyle = theme.muted;
  ctx.lineWidth = 1;
  ctx.strokeRect(left - 0.5, top - 0.5, plotWidth + 1, plotHeight + 1);
  ctx.font = TICK_FONT;
  ctx.fillStyle = theme.text;
  ctx.textBaseline = "top";
  for (const tick of layout.xTicks) {
    const x = cellX(layout, tick.at);
    drawLine(ctx, x, bottom, x, bottom + 4);
    const text = tickName(tick.text);
    if (layout.slant) {
      turned(ctx, x + 4, bottom + 8, SLANT, "right", text);
      continue;
    }
    const half = measure(text) / 2;
    ctx.textAlign = "center";
    ctx.fillText(text, Math.min(Math.max(x, half), layout.width - half), bottom + 6);
  }
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  for (const tick of layout.yTicks) {
    const y = cellY(layout, tick.at);
    drawLine(ctx, left - 4, y, left, y);
    ctx.fillText(fitText(measure, tickName(tick.text), left - 30), left - 7, Math.max(y, 7));
  }
  ctx.font = TITLE_FONT;
  ctx.fillStyle = theme.muted;
  ctx.textAlign = "center";
  ctx.textBaseline = "alphabetic";
  ctx.fillText(fitText(measure, dimTitle(xDim), layout.width - 8), left + plotWidth / 2, layout.height - 5);
  if (layout.ny === 1) return;
  const title = dimTitle(yDim);
  if (measure(title) > plotHeight + 30) ctx.font = TICK_FONT;
  turned(ctx, 12, top + plotHeight / 2, 90, "center", fitText(measure, title, plotHeight + 40));
}

/** Text turned anticlockwise by `degrees` about its anchor. */
function turned(ctx, x, y, degrees, align, text) {
  ctx.save();
  ctx.translate(x, y);
  ctx.rotate((-degrees * Math.PI) / 180);
  ctx.textAlign = align;
  ctx.fillText(text, 0, 0);
  ctx.restore();
}

/** Line segments in cells, dark on light so that they show on every colour. */
function paintContour(ctx, layout, segments, thick) {
  if (!segments.length) return;
  ctx.save();
  ctx.beginPath();
  for (const [x0, y0, x1, y1] of segments) {
    ctx.moveTo(cellX(layout, x0), cellY(layout, y0));
    ctx.lineTo(cellX(layout, x1), cellY(layout, y1));
  }
  ctx.lineCap = "round";
  ctx.strokeStyle = "#ffffff";
  ctx.lineWidth = 5;
  ctx.stroke();
  ctx.strokeStyle = "#101418";
  ctx.lineWidth = thick ? 2.5 : 1.5;
  ctx.stroke();
  ctx.restore();
}

/** Cross hair over a cell. */
function paintCursor(ctx, layout, ix, iy) {
  const x = cellX(layout, ix);
  const y = cellY(layout, iy);
  const { left, top, plotWidth, plotHeight } = layout;
  for (const [color, width] of [["#ffffff", 3], ["#101418", 1]]) {
    ctx.strokeStyle = color;
    ctx.lineWidth = width;
    drawLine(ctx, left, y, x - 7, y);
    drawLine(ctx, x + 7, y, left + plotWidth, y);
    drawLine(ctx, x, top, x, y - 7);
    drawLine(ctx, x, y + 7, x, top + plotHeight);
  }
  ringAt(ctx, x, y);
}

function ringAt(ctx, x, y) {
  for (const [color, width] of [["#ffffff", 4], ["#101418", 1.75]]) {
    ctx.strokeStyle = color;
    ctx.lineWidth = width;
    ctx.beginPath();
    ctx.arc(x, y, 7, 0, 2 * Math.PI);
    ctx.stroke();
  }
}

/** The pinned point: a filled diamond where the view shows it, hollow where a slider stands elsewhere. */
function paintPin(ctx, layout, ix, iy, shown) {
  const x = cellX(layout, ix);
  const y = cellY(layout, iy);
  ctx.beginPath();
  for (const [dx, dy] of [[0, -8], [8, 0], [0, 8], [-8, 0]]) ctx.lineTo(x + dx, y + dy);
  ctx.closePath();
  ctx.strokeStyle = "#ffffff";
  ctx.lineWidth = 4;
  ctx.stroke();
  ctx.strokeStyle = "#101418";
  ctx.lineWidth = 1.75;
  ctx.stroke();
  ctx.fillStyle = "#ffe14d";
  if (shown) ctx.fill();
}

function drawLine(ctx, x0, y0, x1, y1) {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

/** Centre of a cell on the canvas; fractional indices lie between centres. */
function cellX(layout, index) {
  return layout.left + ((index + 0.5) * layout.plotWidth) / layout.nx;
}

function cellY(layout, index) {
  return layout.top + layout.plotHeight - ((index + 0.5) * layout.plotHeight) / layout.ny;
}

/** Cell [ix, iy] under a place on the canvas, null outside the plot. */
function cellAt(layout, x, y) {
  const ix = Math.floor(((x - layout.left) / layout.plotWidth) * layout.nx);
  const iy = Math.floor(((layout.top + layout.plotHeight - y) / layout.plotHeight) * layout.ny);
  return ix >= 0 && iy >= 0 && ix < layout.nx && iy < layout.ny ? [ix, iy] : null;
}
