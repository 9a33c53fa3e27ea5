// Tables of bars: a label, a bar on a common scale, and the number.

/**
 * Table of horizontal bars. `rows` are {label, bars: [{value, text, kind, color, over}]}; `limit` {value, text} is drawn
 * as a line across all rows; bars may have a `name`. An infinite bar fills the width.
 */
function barTable(caption, rows, limit = null) {
  const values = rows.flatMap((row) => row.bars.map(({ value }) => value)).filter(Number.isFinite);
  const top = Math.max(1e-300, ...values, limit ? limit.value : 0) * 1.04;
  const percent = (value) => `${Math.min(100, (100 * value) / top)}%`;
  const named = rows.some((row) => row.bars.some(({ name }) => name));
  const body = rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row.label),
    named ? make("td", { class: "names" }, ...row.bars.map(({ name }) => make("div", {}, name))) : null,
    make("td", { class: "track" }, ...row.bars.map((bar) => makeBar(bar, percent)), limit ? line(percent(limit.value)) : null),
    make("td", { class: "value" }, ...row.bars.map((bar) => make("div", {}, makeData(bar.value, bar.text), bar.over ? make("span", { class: "over" }, " over") : null)))));
  const foot = limit ? make("tfoot", {}, make("tr", {}, make("td"), make("td", { class: "track" }, limitLabel(limit, percent(limit.value), limit.value / top)), make("td"))) : null;
  return make("table", { class: "bars" }, make("caption", {}, caption), make("tbody", {}, ...body), foot);
}

function makeBar({ value, kind = "", color = null }, percent) {
  const bar = make("div", { class: `fill ${kind}`, "aria-hidden": "true" });
  bar.style.width = percent(value);
  if (color) bar.style.background = color;
  return make("div", { class: "lane" }, bar);
}

function line(left) {
  const mark = make("div", { class: "limit-line", "aria-hidden": "true" });
  mark.style.left = left;
  return mark;
}

function limitLabel(limit, left, share) {
  const text = make("span", { class: share > 0.6 ? "limit-label before" : "limit-label" }, limit.text);
  text.style.left = left;
  return text;
}
