// Times of a page in headless Chromium: `node timing.mjs FILE.html viewer|plotly` prints JSON, medians in ms.
import { createRequire } from "node:module";

const { chromium } = createRequire(import.meta.url)("playwright-core");
const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const REPEATS = 3;
const file = new URL(process.argv[2], "file:").href;
const kind = process.argv[3] ?? "viewer";

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

/** Milliseconds from the start of navigation until the page says that its first picture is there. */
async function open(browser) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
  await page.goto(file);
  await page.waitForFunction(() => document.documentElement.dataset.ready === "true", null, { timeout: 120_000 });
  return [page, await page.evaluate(() => Number(document.documentElement.dataset.firstPicture))];
}

/** Milliseconds of one slider step: script and, with a forced layout, what it changes on the page. */
function steps(page) {
  return page.evaluate(async () => {
    const times = [];
    for (let i = 0; i < 25; i++) {
      const start = performance.now();
      await globalThis.kvsweepStep(i);
      document.body.getBoundingClientRect();
      times.push(performance.now() - start);
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    return times;
  });
}

/** Lets `kvsweepStep(i)` move the first slider of a report. */
function stepViewer() {
  const view = globalThis.kvsweepView;
  const slider = document.querySelector("#kv-sliders input:not([disabled])");
  const dim = slider.id.replace("kv-slider-", "");
  globalThis.kvsweepStep = (i) => view.slide(dim, i % (Number(slider.max) + 1));
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ARGS });
try {
  const first = [];
  let page;
  for (let i = 0; i < REPEATS; i++) {
    await page?.close();
    let time;
    [page, time] = await open(browser);
    first.push(time);
  }
  const result = { first_picture: median(first) };
  if (kind === "viewer") {
    await page.evaluate(stepViewer);
    result.step = median(await steps(page));
    await page.selectOption("#kv-view", "total_time");
    result.continuous_step = median(await steps(page));
  } else {
    result.step = median(await steps(page));
  }
  console.log(JSON.stringify(result));
} finally {
  await browser.close();
}
