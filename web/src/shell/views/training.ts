// What a training did over its steps: its verdict, the loss and the like, a map of its layers, a line for each call or parameter.

import type { ChartData } from "../../payload";
import { el, fill } from "../dom";
import type { Page } from "../page";
import { chart } from "./chart";
import { heatMap } from "./heat";
import { reportPart } from "./reports";

export const SEVERAL = "trainings"; // the report of several, over each other

export function buildTraining(page: Page, host: HTMLElement): void {
  const { charts, reports } = page.payload.run.data, several = reports.filter(({ analysis }) => analysis === SEVERAL);
  const isFirst = (one: ChartData): boolean => several.length > 0 || one.names.includes(one.title);
  const drawn = (some: readonly ChartData[]): HTMLElement[] => some.map((one) => trainingChart(page, one)), ofLayers = charts.filter((one) => one.layers.length > 1);
  const answers = reports.flatMap(({ totals }) => totals.filter(([heading]) => heading === "answer"));
  fill(host, el("div", { class: "wide-column" },
    ...answers.map(([, sentence]) => el("p", { class: "answer" }, String(sentence))),
    ...drawn(charts.filter(isFirst)),
    ofLayers.length > 0 && heatMap(page, ofLayers),
    ...drawn(charts.filter((one) => !isFirst(one))),
    ...several.map((one) => reportPart(page, one))));
}

function trainingChart(page: Page, { title, unit, about, steps, names, calls, numbers, marks, usual }: ChartData): HTMLElement {
  const lines = names.map((name, i) => ({ name, call: calls[i]!, numbers: numbers.subarray(i * steps.length, (i + 1) * steps.length) }));
  return chart(page, { title, unit, about, at: steps, lines, marks, isStacked: false, usual });
}
