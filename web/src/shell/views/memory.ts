// Memory over the run, and other curves that an analysis took; below them what holds most memory.

import { quantity } from "../../units";
import { el, fill } from "../dom";
import type { Page } from "../page";
import { curves } from "./curves";

const SHOWN = 15;

export function buildMemory(page: Page, host: HTMLElement): void {
  fill(host, el("div", { class: "wide-column" }, ...page.payload.run.data.timelines.map(curves), largest(page)));
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
      el("th", { scope: "row" }, el("button", { class: "link", type: "button", click: () => page.select({ call, item: -1 }) }, run.path(call) || run.data.model)),
      el("td", { class: "number" }, quantity(numbers[call]!, "B")), el("td", { class: "bar-cell" }, bar));
  });
  return el("section", { class: "longest" }, el("h3", null, measure.name), el("p", { class: "about" }, measure.about), el("table", null, el("tbody", null, ...rows)));
}
