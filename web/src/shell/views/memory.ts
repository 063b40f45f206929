// Memory over the run, and other curves that an analysis took; below them what holds most memory.

import { quantity } from "../../units";
import type { Timeline } from "../../payload";
import { el, fill } from "../dom";
import { callLink } from "../links";
import type { Page } from "../page";
import { chart } from "./chart";

const SHOWN = 15;

export function buildMemory(page: Page, host: HTMLElement): void {
  fill(host, el("div", { class: "wide-column" }, ...page.payload.run.data.timelines.map((one) => memoryChart(page, one)), largest(page)));
}

/** Kinds of memory are parts of a whole: each is drawn on top of those before it. */
function memoryChart(page: Page, { title, series, marks, step }: Timeline): HTMLElement {
  const length = Math.max(0, ...series.map((one) => one.numbers.length));
  return chart(page, {
    title, unit: series[0]?.unit ?? "", about: "", isStacked: true,
    at: Array.from({ length }, (_, i) => i * step), marks: marks.map(([at, label]) => [at * step, label]),
    lines: series.filter((one) => one.numbers.some(Boolean)).map((one) => ({ name: one.name, numbers: one.numbers, call: -1 })),
  });
}

/** The calls with the largest numbers of a measure of memory. */
function largest(page: Page): HTMLElement | null {
  const run = page.payload.run;
  const measure = run.data.measures.find((one) => one.unit === "B" && one.calls && one.name.startsWith("memory")) ?? run.data.measures.find((one) => one.unit === "B" && one.calls);
  if (!measure?.calls) return null;
  const numbers = measure.calls;
  const order = Array.from(numbers, (_, call) => call).filter((call) => numbers[call]! > 0).sort((a, b) => numbers[b]! - numbers[a]!).slice(0, SHOWN);
  if (!order.length) return null;
  const most = numbers[order[0]!]!;
  const rows = order.map((call) => {
    const bar = el("i", { class: "bar" });
    bar.style.width = `${(100 * numbers[call]!) / most}%`;
    return el("tr", null,
      el("th", { scope: "row" }, callLink(page, run, call)),
      el("td", { class: "number" }, quantity(numbers[call]!, "B")), el("td", { class: "bar-cell" }, bar));
  });
  return el("section", { class: "longest" }, el("h3", null, measure.name), el("p", { class: "about" }, measure.about), el("table", null, el("tbody", null, ...rows)));
}
