// Building elements. Data only ever becomes text: nothing here parses markup.

/** New element with properties, attributes (names with a dash, role, for, scope …) and children. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name in element && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** New SVG element with attributes and children. */
function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Text that may break after an underscore or a slash, as the names of policies need. */
function wrapped(text, properties = {}) {
  const parts = text.split(/(?<=[_/])/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
  return make("span", { class: "clip", title: text, ...properties }, ...parts);
}

/** Element whose `value` holds a number in full while its text is rounded. */
function makeData(value, text) {
  return setData(make("data"), value, text);
}

/** Changes what an element of `makeData` holds. */
function setData(element, value, text) {
  const full = String(value);
  if (element.value !== full) Object.assign(element, { value: full, title: full, textContent: text });
  return element;
}

/** Small canvas that shows a pattern tile, for legends. */
function makeSwatch(tile, letter, ink) {
  const canvas = make("canvas", { width: 32, height: 22, class: "swatch", "aria-hidden": "true" });
  if (tile) paintSwatch(canvas, tile, letter, ink);
  return canvas;
}

/** Paints a swatch unless it shows `letter` already. */
function paintSwatch(canvas, tile, letter, ink) {
  if (canvas.dataset.letter === letter) return;
  canvas.dataset.letter = letter;
  const ctx = canvas.getContext("2d");
  const image = ctx.createImageData(32, 22);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = tile[((i >> 5) & 7) * 8 + (i & 7)];
  ctx.putImageData(image, 0, 0);
  if (letter) {
    ctx.fillStyle = cssColor(tile);
    ctx.fillRect(9, 3, 14, 16);
    ctx.fillStyle = ink;
    ctx.font = `700 14px ${FONT}`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText(letter, 16, 11.5);
  }
}

function cssColor(tile) {
  const counts = new Map();
  tile.forEach((pixel) => counts.set(pixel, (counts.get(pixel) ?? 0) + 1));
  const [pixel] = [...counts].reduce((best, each) => (each[1] > best[1] ? each : best));
  return `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
}

/** Calls `action` once, `wait` ms after the last of a burst of calls. */
function debounce(action, wait) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), wait);
  };
}

/** Offers `blob` as a download. */
function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
