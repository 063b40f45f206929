// A finding as a card: what happened, the number behind it, what to do, and where.

import type { Finding, Run } from "../payload";
import { quantity } from "../units";
import { sourcePlace } from "./code";
import { el } from "./dom";
import { idOf, placeOf, type Page } from "./page";

export function findingCard(page: Page, run: Run, finding: Finding, withPlace = true): HTMLElement {
  const place = placeOf(run, finding.call, finding.step);
  const measured = finding.measured === null ? "" : quantity(finding.measured, finding.unit);
  const limit = finding.threshold === null ? "" : `, limit ${quantity(finding.threshold, finding.unit)}`;
  const more = [
    measured && `${measured}${limit}`,
    finding.reached > 0 && `reaches ${finding.reached.toLocaleString("en-US")} later operations`,
    finding.output && "the model returns it",
    finding.others.length > 0 && `also at ${finding.others.length} others`,
  ].filter(Boolean);
  return el("article", { class: `finding ${finding.severity}` },
    el("header", null,
      el("span", { class: "severity" }, finding.severity),
      el("span", { class: "rule", title: finding.analysis || undefined }, finding.rule),
      withPlace && finding.call >= 0 && el("button", { class: "link place", type: "button", click: () => page.select(place) }, idOf(run, place)),
    ),
    el("p", null, finding.what),
    finding.advice && el("p", { class: "advice-text" }, finding.advice),
    more.length > 0 && el("p", { class: "remarks" }, more.join(" · ")),
    finding.source && withPlace && sourcePlace(finding.source),
  );
}
