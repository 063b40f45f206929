// The views beside the graph: each exists only where the run has the data for it.

import type { View } from "../../state";
import { el, freshId } from "../dom";
import type { Page } from "../page";
import { buildAttention } from "./attention";
import { buildDistributions, histogramsOf } from "./distributions";
import { buildFindings, findingCount } from "./findings";
import { buildMemory } from "./memory";
import { buildReports } from "./reports";
import { buildTimeline, spansOf } from "./timeline";
import { buildTraining } from "./training";

export interface ViewPart {
  readonly name: View;
  readonly title: string;
  readonly host: HTMLElement;
  readonly count: number; // shown beside the title, 0 for none
  build(): void; // called once, when it is first shown
}

export function viewsOf(page: Page, stage: HTMLElement): ViewPart[] {
  const { data } = page.payload.run;
  const view = (name: View, title: string, build: ((page: Page, host: HTMLElement) => void) | null, count = 0): ViewPart => {
    const host = el("div", { class: `view view-${name}`, id: freshId("view"), role: "tabpanel", "aria-label": title });
    if (!build) host.append(stage);
    return { name, title, host, count, build: () => build?.(page, host) };
  };
  return [
    view("graph", "Graph", null),
    ...(data.charts.length ? [view("training", "Training", buildTraining)] : []),
    ...(spansOf(page.payload.run) ? [view("timeline", "Timeline", buildTimeline)] : []),
    ...(data.timelines.length ? [view("memory", "Memory", buildMemory)] : []),
    ...(data.attention.length ? [view("attention", "Attention", buildAttention)] : []),
    ...(histogramsOf(page).length ? [view("distributions", "Distributions", buildDistributions)] : []),
    view("findings", "Findings", buildFindings, findingCount(page)),
    ...(data.reports.length ? [view("reports", "Reports", buildReports, data.reports.length)] : []),
  ];
}
