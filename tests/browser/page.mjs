// What the browser tests of a report and of a comparison share: a page that notes what it does, and a reader of it.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(import.meta.url);
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf-8");
const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

/** Opens `file` in a page that notes every request beyond it and everything on the console. */
export async function open(browser, file, notes, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 }, acceptDownloads: true, ...options });
  page.on("request", (request) => { if (request.url().split("#")[0] !== file) notes.requests.push(request.url().slice(0, 200)); });
  page.on("console", (message) => notes.console.push(message.text()));
  page.on("pageerror", (error) => notes.console.push(String(error.stack)));
  await page.goto(file);
  await ready(page);
  return page;
}

export const ready = (page) => page.waitForFunction(() => document.documentElement.dataset.ready === "true", null, { timeout: 30_000 });

/** Waits until the fragment of the page holds what the reader chose last, which it does a moment later. */
export const remembered = (page) => page.waitForFunction(() => {
  const { state, cube } = globalThis.kvsweepView;
  const kept = new URLSearchParams(location.hash.slice(1));
  const place = (point) => point && cube.dims.map((dim) => point[dim.name]).join(".");
  return kept.get("view") === state.view && kept.get("at") === place(state.at) && kept.get("pin") === place(state.pin);
});

/** The point the reader stands at, with the numbers of the cursor's table and the counts of the legend. */
export const observe = (page) => page.evaluate(() => {
  const values = (prefix) => Object.fromEntries([...document.querySelectorAll(`[id^="${prefix}"]`)].map((cell) =>
    [cell.id.slice(prefix.length), cell.querySelector("data")?.value ?? cell.textContent]));
  const { state } = globalThis.kvsweepView;
  return { state: structuredClone(state), cursor: values("kv-cursor-"), pinned: values("kv-pinned-"), counts: values("kv-count-"),
    enough: values("kv-enough-") };
});

/** Goes through the page by keyboard alone; returns what was seen on the way. */
export async function keyboard(page) {
  const seen = [await observe(page)];
  const reached = [];
  for (let i = 0; i < 60 && reached.filter((name) => name === "map").length < 2; i++) {
    await page.keyboard.press("Tab");
    const name = await page.evaluate(() => {
      const { activeElement: element } = document;
      return element.classList.contains("plot") ? "map" : element.id || element.className || element.tagName;
    });
    reached.push(name);
    if (name.startsWith("kv-slider-")) {
      for (const key of ["ArrowLeft", "ArrowLeft", "Home", "ArrowRight"]) {
        await page.keyboard.press(key);
        seen.push(await observe(page));
      }
    }
  }
  for (const key of ["ArrowRight", "ArrowUp", "ArrowUp", "Home", "ArrowDown", "End", "PageUp", "Enter"]) {
    await page.keyboard.press(key);
    seen.push(await observe(page));
  }
  await page.waitForTimeout(350);
  return { seen, reached, spoken: await page.textContent("#kv-live") };
}

export async function saved(page, button) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click(button)]);
  return readFileSync(await download.path());
}

export async function axe(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
}

/** Dark, print and every colour-vision emulation: whether each draws, by the size of its picture. */
export async function emulations(page) {
  const sizes = {};
  const session = await page.context().newCDPSession(page);
  for (const type of ["protanopia", "deuteranopia", "tritanopia", "achromatopsia"]) {
    await session.send("Emulation.setEmulatedVisionDeficiency", { type });
    sizes[type] = (await page.screenshot()).length;
  }
  await session.send("Emulation.setEmulatedVisionDeficiency", { type: "none" });
  await page.emulateMedia({ media: "print" });
  sizes.print = (await page.screenshot()).length;
  sizes.pdf = (await page.pdf({ format: "A4", printBackground: true })).length;
  await page.emulateMedia({ media: "screen" });
  return sizes;
}

/** Starts the browser that CHROMIUM names. */
export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ARGS });

/** How much wider the page is than its window [px]. */
export const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/** What a hostile text would have left behind. */
export const injected = (page) => page.evaluate(() => ({ pwned: globalThis.pwned ?? null, images: document.images.length,
  scripts: [...document.scripts].filter((script) => !script.id).length }));
