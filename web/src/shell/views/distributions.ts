// Histograms by call: of analyses of activations and weights, or of the results that the run kept.

import { whole } from "../../units";
import { el, fill } from "../dom";
import type { NamedHistogram } from "../../payload";
import { callLink } from "../links";
import type { Page } from "../page";
import { drawnHistogram } from "../tensors";

const MANY = 120;

/** The histograms of reports; without any, those of what each call returned. */
export function histogramsOf(page: Page): NamedHistogram[] {
  const run = page.payload.run;
  const reported = run.data.reports.flatMap((report) => report.histograms);
  if (reported.length || !run.data.histograms) return reported;
  return Array.from({ length: run.callCount }, (_, call) => call).flatMap((call) => {
    const value = run.outputOf(call);
    const one = value < 0 ? null : run.histogram(value);
    return one ? [{ id: run.path(call) || run.data.model, call, edges: Array.from(one.edges), counts: Array.from(one.counts), nan: one.nan, inf: one.inf }] : [];
  });
}

export function buildDistributions(page: Page, host: HTMLElement): void {
  const all = histogramsOf(page);
  const list = el("div", { class: "histograms" });
  let shown = 0;
  const more = el("button", { type: "button", class: "more", click: () => show() }, "Show more");
  const show = (): void => {
    list.append(...all.slice(shown, shown + MANY).map((one) => card(page, one)));
    shown += MANY;
    more.hidden = shown >= all.length;
  };
  show();
  fill(host, el("div", { class: "wide-column" }, list, more));
}

function card(page: Page, one: NamedHistogram): HTMLElement {
  const bad = [one.nan && `${whole(one.nan)} NaN`, one.inf && `${whole(one.inf)} Inf`].filter(Boolean).join(", ");
  return el("article", { class: "histogram-card" },
    el("header", null, callLink(page, page.payload.run, one.call, one.id), bad && el("span", { class: "bad" }, bad)),
    drawnHistogram(one.edges, one.counts, `histogram of ${one.id}`));
}
