// What a reader meets in a report, in headless Chromium: `node report.mjs FILE.html` prints observations as JSON.
// CHROMIUM names the browser. tests/report/test_browser.py compares them with the Dataset.
import { axe, emulations, injected, keyboard, launch, observe, open, overflow, ready, remembered, saved } from "./page.mjs";

/** Shows every view, the axes swapped and every chart; returns what each says. */
async function views(page) {
  const seen = [];
  for (const view of await page.$$eval("#kv-view option", (options) => options.map((option) => option.value))) {
    await page.selectOption("#kv-view", view);
    seen.push(await observe(page));
  }
  await page.click("#kv-swap");
  seen.push(await observe(page));
  await page.click("#kv-chart-details summary");
  const charts = {};
  for (const dim of await page.$$eval("#kv-chart option", (options) => options.map((option) => option.value))) {
    await page.selectOption("#kv-chart", dim);
    charts[dim] = await page.$$eval("#kv-chart-table tbody tr", (rows) =>
      rows.map((row) => [...row.querySelectorAll("data")].map((cell) => Number(cell.value))));
  }
  await page.check("#kv-held");
  const held = await page.$$eval("#kv-chart-table tbody tr", (rows) =>
    rows.map((row) => [...row.querySelectorAll("data")].map((cell) => Number(cell.value))));
  await page.uncheck("#kv-held");
  await page.click("#kv-table summary");
  await page.waitForSelector("#kv-table-body tbody tr");
  const table = await page.$$eval("#kv-table-body tbody tr", (rows) => rows.length);
  return { seen, charts, held, table };
}

const file = new URL(process.argv[2], "file:").href;
const notes = { requests: [], console: [] };
const browser = await launch();
try {
  const page = await open(browser, file, notes);
  const result = { headline: await page.textContent("h1"), title: await page.title(), text: await page.textContent("main") };
  result.firstPicture = await page.evaluate(() => Number(document.documentElement.dataset.firstPicture));
  result.axe = await axe(page);
  result.keyboard = await keyboard(page);
  result.views = await views(page);
  result.axeOpen = await axe(page);
  result.csv = (await saved(page, "#kv-csv")).toString("utf-8");
  result.png = (await saved(page, "#kv-png")).subarray(0, 8).toString("hex");
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
