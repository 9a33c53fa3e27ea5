// Whether a reader can read a page: what is cut, and what is too small. `node legible.mjs FILE.html… ` prints JSON: for each
// file what was found in windows of WIDTHS.
import { launch, ready } from "./page.mjs";

const WIDTHS = [420, 1300];
const SMALLEST = 11;

/** Makes canvases remember the texts drawn on them; before the page loads. */
export const watchCanvases = (page) => page.addInitScript(() => {
  globalThis.drawnTexts = new Map();
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    const texts = globalThis.drawnTexts.get(this.canvas) ?? new Map();
    const { a, b } = this.getTransform();
    texts.set(text, parseFloat(/([\d.]+)px/.exec(this.font)[1]) * Math.hypot(a, b));
    globalThis.drawnTexts.set(this.canvas, texts);
    fillText.call(this, text, ...place);
  };
});

/** Elements and texts out of sight or shortened, and texts of less than SMALLEST pixels. */
export const legible = (page) => page.evaluate((smallest) => {
  const cut = [];
  const small = [];
  const told = (element, why) => `${why}: ${element.tagName} ${element.className} ${element.textContent.slice(0, 60)}`;
  const seen = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest(".unseen, thead.unseen")
    && getComputedStyle(element).clipPath === "none" && !element.closest(".summary-table thead") ;
  const measure = document.createElement("canvas").getContext("2d");
  for (const element of document.querySelectorAll("body *")) {
    if (!seen(element) || element.closest("svg") && element.tagName !== "svg") continue;
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (box.width && (box.right > innerWidth + 1 || box.left < -1)) cut.push(told(element, "beyond the window"));
    if (style.overflowX !== "visible" && element.scrollWidth > element.clientWidth + 1) cut.push(told(element, "wider than its box"));
    if (style.overflowY === "hidden" && element.scrollHeight > element.clientHeight + 1) cut.push(told(element, "higher than its box"));
    if (element.tagName === "SELECT") {
      measure.font = style.font;
      const usual = [...element.options].filter((option) => option.text.length <= 60);
      const widest = Math.max(...usual.map((option) => measure.measureText(option.text).width));
      if (widest > element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 18) cut.push(told(element, "choice"));
    }
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (own && /…$/.test(element.textContent.trim())) cut.push(told(element, "shortened"));
    const before = getComputedStyle(element, "::before");
    const sizes = [own && style.fontSize, !["none", "normal"].includes(before.content) && before.fontSize].filter(Boolean);
    for (const size of sizes) if (parseFloat(size) < smallest) small.push(told(element, size));
  }
  for (const text of document.querySelectorAll("svg text")) {
    const svg = text.ownerSVGElement;
    const size = (parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width) / svg.viewBox.baseVal.width;
    if (seen(text) && size < smallest - 0.01) small.push(told(text, `${size} px`));
    if (text.textContent.endsWith("…")) cut.push(told(text, "shortened"));
  }
  for (const [canvas, texts] of globalThis.drawnTexts) {
    if (!canvas.isConnected || !seen(canvas)) continue;
    for (const [text, pixels] of texts) {
      const size = (pixels * canvas.getBoundingClientRect().width) / canvas.width;
      if (size < smallest - 0.01) small.push(`${size} px in a canvas: ${text}`);
      if (text.endsWith("…")) cut.push(`shortened in a canvas: ${text}`);
    }
  }
  return { cut, small };
}, SMALLEST);

async function main(files) {
  const browser = await launch();
  try {
    const found = {};
    for (const width of WIDTHS) {
      const page = await browser.newPage({ viewport: { width, height: 900 } });
      await watchCanvases(page);
      for (const file of files) {
        await page.goto(String(new URL(file, "file:")));
        await ready(page);
        await page.locator(".plot:visible, .curves:visible").first().click();
        found[`${width} ${file.split("/").at(-1)}`] = await legible(page);
      }
      await page.close();
    }
    console.log(JSON.stringify(found));
  } finally {
    await browser.close();
  }
}

if (process.argv[1].endsWith("legible.mjs")) await main(process.argv.slice(2));
