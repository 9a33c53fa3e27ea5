// What a reader meets in the report of a comparison: `node comparison.mjs FILE.html` prints observations as JSON.
// tests/report/comparison/test_browser.py compares them with both Datasets.
import { axe, emulations, injected, keyboard, launch, observe, open, overflow, ready, remembered, saved } from "./page.mjs";

/** Shows every view and the axes swapped, with the view as a table; returns what each says. */
async function views(page) {
  const seen = [];
  await page.click("#kv-table summary");
  for (const view of await page.$$eval("#kv-view option", (options) => options.map((option) => option.value))) {
    await page.selectOption("#kv-view", view);
    const cells = await page.$$eval("#kv-table-body tbody td", (found) => found.map((cell) => cell.textContent));
    const labels = await page.$$eval(".plot", (plots) =>
      plots.filter((plot) => plot.checkVisibility()).map((plot) => plot.getAttribute("aria-label")));
    seen.push({ ...(await observe(page)), cells, labels });
  }
  await page.selectOption("#kv-view", "verdict");
  // Over one axis there is nothing to swap.
  if (await page.isVisible("#kv-swap")) await page.click("#kv-swap");
  seen.push(await observe(page));
  return seen;
}

const file = new URL(process.argv[2], "file:").href;
const notes = { requests: [], console: [] };
const browser = await launch();
try {
  const page = await open(browser, file, notes);
  const result = { headline: await page.textContent("h1"), text: await page.textContent("main"), axe: await axe(page) };
  result.keyboard = await keyboard(page);
  result.views = await views(page);
  result.axeOpen = await axe(page);
  result.csv = (await saved(page, "#kv-csv")).toString("utf-8");
  result.png = (await saved(page, "#kv-png")).subarray(0, 8).toString("hex");
  await page.selectOption("#kv-view", "time_ratio");
  await remembered(page);
  result.beforeReload = await observe(page);
  await page.reload();
  await ready(page);
  result.afterReload = await observe(page);
  result.emulations = await emulations(page);
  result.injected = await injected(page);
  result.wide = await overflow(page);
  const dark = await open(browser, file, notes, { colorScheme: "dark", viewport: { width: 800, height: 900 } });
  result.axeDark = await axe(dark);
  result.narrow = await overflow(dark);
  console.log(JSON.stringify({ ...result, ...notes }));
} finally {
  await browser.close();
}
