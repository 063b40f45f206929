// What a training did over its steps: the loss and the like, and a line for each call or parameter.

import type { ChartData } from "../../payload";
import { el, fill } from "../dom";
import type { Page } from "../page";
import { chart } from "./chart";

export function buildTraining(page: Page, host: HTMLElement): void {
  fill(host, el("div", { class: "wide-column" }, ...page.payload.run.data.charts.map((one) => trainingChart(page, one))));
}

function trainingChart(page: Page, { title, unit, about, steps, names, calls, numbers, marks }: ChartData): HTMLElement {
  const lines = names.map((name, i) => ({ name, call: calls[i]!, numbers: numbers.subarray(i * steps.length, (i + 1) * steps.length) }));
  return chart(page, { title, unit, about, at: steps, lines, marks, isStacked: false });
}
