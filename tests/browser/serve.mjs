// What a reader does with the dashboard, in headless Chromium: `node serve.mjs URL` prints observations as JSON.
// CHROMIUM names the browser. tests/report/serve/test_browser.py compares them with kvsweep.simulate and kvsweep.sweep.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { legible, watchCanvases } from "./legible.mjs";

const require = createRequire(import.meta.url);
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf-8");
const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

const base = process.argv[2];

/** Opens the dashboard in a page that notes every request to elsewhere and everything on the console. */
async function open(browser, notes, fragment = "", options = {}) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 }, ...options });
  page.on("request", (request) => { if (!request.url().startsWith(base)) notes.foreign.push(request.url().slice(0, 200)); });
  page.on("console", (message) => notes.console.push(message.text()));
  page.on("pageerror", (error) => notes.console.push(String(error.stack)));
  await page.goto(base + fragment);
  await settled(page);
  return page;
}

/** Waits until nothing is left to compute. */
async function settled(page) {
  await page.waitForFunction(() => document.documentElement.dataset.computing === "", null, { timeout: 60_000 });
  await page.waitForTimeout(50);
}

/** Does something to the page and waits for what follows from it. */
async function after(page, action) {
  await action();
  await settled(page);
}

const observePoint = (page) => page.evaluate(() => {
  const data = (root) => [...root.querySelectorAll("data")].map((each) => Number(each.value));
  return {
    answer: document.getElementById("kd-answer").textContent,
    body: simulateBodyOf(), tiers: [...document.querySelectorAll("#kd-tiers tbody tr")].map(data),
    rates: data(document.getElementById("kd-rates")),
    cards: Object.fromEntries([...document.querySelectorAll("#kd-cards article")].map((card) =>
      [card.dataset.policy, { title: card.querySelector("h3").textContent, state: card.querySelector("strong").textContent, numbers: data(card) }])),
    latency: data(document.getElementById("kd-latency")), split: data(document.getElementById("kd-split")),
    warnings: document.getElementById("kd-warnings").textContent,
  };
  function simulateBodyOf() { return structuredClone(globalThis.kvsweepDashboard.bodies.point); }
});

const observeSweep = (page) => page.evaluate(() => {
  const values = (prefix) => Object.fromEntries([...document.querySelectorAll(`[id^="${prefix}"]`)].map((cell) =>
    [cell.id.slice(prefix.length), cell.querySelector("data")?.value ?? cell.textContent]));
  const { state, cube } = globalThis.kvsweepView;
  return {
    answer: document.getElementById("kd-answer").textContent, body: structuredClone(globalThis.kvsweepDashboard.bodies.sweep),
    state: structuredClone(state), dims: cube.dims.map((dim) => dim.name), cursor: values("kv-cursor-"), counts: values("kv-count-"),
    success: cube.policies.map((_, policy) => [...cube.success(policy, state.chart)]),
  };
});

async function axe(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
}

/** Single Point: first settings, a preset, a part, a count, a model, its parameters, manual shares. */
async function pointFlow(page) {
  const seen = [await observePoint(page)];
  const steps = [
    () => page.selectOption("#kd-stack", "a100_ddr5_nvme"),
    () => page.selectOption("#kd-gpu", "H200"),
    () => page.fill("#kd-gpu_count", "2"),
    () => page.selectOption("#kd-model", "llama3-70b"),
    () => page.fill("#kd-gpu_eta", "25 %"),
    () => page.fill("#kd-bytes_per_block", "1MB"),
    () => page.check("#kd-placement-manual"),
    () => page.locator("#kd-share-vram").fill("90"),
    () => page.locator("#kd-total_blocks-slider").fill("300"),
    () => page.locator("#kd-hit_ratio-slider").fill("0.6"),
    () => page.fill("#kd-request_rate", "30/min"),
    () => page.fill("#kd-p95_seconds", "500ms"),
  ];
  for (const step of steps) {
    await after(page, step);
    seen.push(await observePoint(page));
  }
  return seen;
}

/** A value that cannot be, and back: where the message stands and what is shown meanwhile. */
async function mistakes(page) {
  const before = await page.textContent("#kd-answer");
  await after(page, () => page.fill("#kd-hit_ratio", "1.5"));
  const refused = {
    invalid: await page.getAttribute("#kd-hit_ratio", "aria-invalid"), message: await page.textContent("#kd-hit_ratio-error"),
    status: await page.textContent("#kd-status"), answer: await page.textContent("#kd-answer"), before, axe: await axe(page),
  };
  await after(page, () => page.fill("#kd-hit_ratio", "0.5"));
  return { ...refused, mended: await page.getAttribute("#kd-hit_ratio", "aria-invalid"), hidden: await page.isHidden("#kd-hit_ratio-error") };
}

/** SLO Sweep: first axes, a slider of the controls, other axes, one more axis, and an axis that is too long. */
async function sweepFlow(page) {
  await after(page, () => page.click("#kd-tab-sweep"));
  const seen = [await observeSweep(page)];
  const steps = [
    () => page.locator("#kd-total_blocks-slider").fill("290"),
    () => page.fill("#kd-axis-p95_seconds", "1:100:n7"),
    () => page.fill("#kd-axis-hit_ratio", "0,0.5,0.9"),
    () => page.selectOption("#kd-extra", "gpu"),
    () => page.fill("#kd-axis-extra", "H200,A100"),
  ];
  for (const step of steps) {
    await after(page, step);
    seen.push(await observeSweep(page));
  }
  await after(page, () => page.fill("#kd-axis-request_rate", "0.01:1000:0.01"));
  const refused = await page.textContent("#kd-axis-request_rate-error");
  await after(page, () => page.fill("#kd-axis-request_rate", "0.01,0.02,0.05"));
  seen.push(await observeSweep(page));
  return { seen, refused };
}

/** Moves a slider without waiting in between: only the newest answer may stay. */
async function burst(page) {
  for (let place = 0; place <= 400; place += 20) await page.locator("#kd-total_blocks-slider").fill(String(place));
  await settled(page);
  return observePoint(page);
}

/** Goes to both tabs, the placement and a map by keyboard alone. */
async function keyboard(page) {
  const reached = [];
  const name = () => page.evaluate(() => document.activeElement.id || document.activeElement.className);
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press("Tab");
    reached.push(await name());
    if (reached.at(-1) === "kd-request_rate-slider") await after(page, () => page.keyboard.press("ArrowRight"));
    if (reached.at(-1).startsWith("kd-placement")) await after(page, () => page.keyboard.press("ArrowDown"));
    if (reached.at(-1) === "kd-tab-point") break;
  }
  const point = await observePoint(page);
  await after(page, () => page.keyboard.press("ArrowRight"));
  const tab = await name();
  for (let i = 0; i < 30 && !(await name()).includes("plot"); i++) await page.keyboard.press("Tab");
  const map = await name();
  for (const key of ["ArrowRight", "ArrowUp", "Enter"]) await page.keyboard.press(key);
  return { reached, tab, map, pinned: await page.evaluate(() => globalThis.kvsweepView.state.pin), point };
}

const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
const injected = (page) => page.evaluate(() => ({ pwned: globalThis.pwned ?? null, images: document.images.length, scripts: document.scripts.length }));

const notes = { foreign: [], console: [] };
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ARGS });
try {
  const page = await open(browser, notes);
  const result = { title: await page.title(), axe: [await axe(page)], point: await pointFlow(page), mistakes: await mistakes(page) };
  result.burst = await burst(page);
  result.sweep = await sweepFlow(page);
  result.axe.push(await axe(page));
  await page.click("#kv-maps .plot >> nth=0");
  await page.waitForTimeout(400);
  result.before = { hash: new URL(page.url()).hash, sweep: await observeSweep(page) };
  await page.reload();
  await settled(page);
  result.after = { hash: new URL(page.url()).hash, sweep: await observeSweep(page) };
  await after(page, () => page.click("#kd-start"));
  result.start = await observePoint(page);
  result.injected = await injected(page);
  result.wide = await overflow(page);
  result.keyboard = await keyboard(await open(browser, notes));
  result.narrow = [];
  for (const fragment of ["", "#tab=sweep"]) {
    const dark = await open(browser, notes, fragment, { colorScheme: "dark", viewport: { width: 800, height: 900 } });
    result.axe.push(await axe(dark));
    result.narrow.push(await overflow(dark));
  }
  result.legible = {};
  for (const width of [420, 1400]) {
    const phone = await browser.newPage({ viewport: { width, height: 900 } });
    await watchCanvases(phone);
    for (const fragment of ["", "#tab=sweep"]) {
      await phone.goto("about:blank");
      await phone.goto(base + fragment);
      await settled(phone);
      result.legible[`${width} ${fragment}`] = await legible(phone);
    }
  }
  console.log(JSON.stringify({ ...result, ...notes }));
} finally {
  await browser.close();
}
