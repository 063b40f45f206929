// The reports that came with the run: totals, findings, and their tables, which can be sorted.

import type { ReportColumn, ReportPage } from "../../payload";
import { digits, quantity, whole } from "../../units";
import { el, fill } from "../dom";
import { findingCard } from "../finding_card";
import { callLink } from "../links";
import type { Page } from "../page";

const SHOWN = 100;
type Cell = ReportPage["rows"][number][number];

export function buildReports(page: Page, host: HTMLElement): void {
  fill(host, el("div", { class: "wide-column" }, ...page.payload.run.data.reports.map((report) => reportPart(page, report))));
}

/** A report: its totals, findings and table. */
export function reportPart(page: Page, report: ReportPage): HTMLElement {
  const totals = report.totals.map(([heading, value, unit]) => el("div", { class: "total" }, el("span", { class: "stat-name" }, heading), el("span", { class: "stat-number" }, text(value, unit))));
  return el("section", { class: "group report" },
    el("h3", null, report.analysis),
    totals.length > 0 && el("div", { class: "totals" }, ...totals),
    ...report.findings.slice(0, 20).map((finding) => findingCard(page, page.payload.run, finding)),
    report.rows.length > 0 && table(page, report),
    ...report.notes.map((note) => el("p", { class: "remarks" }, note.what)));
}

function table(page: Page, report: ReportPage): HTMLElement {
  const body = el("tbody");
  const more = el("button", { type: "button", class: "more" });
  let order = report.rows.map((_, i) => i);
  let shown = SHOWN;
  const draw = (): void => {
    fill(body, ...order.slice(0, shown).map((i) => line(page, report, i)));
    more.hidden = shown >= order.length;
    more.textContent = `Show ${whole(order.length - shown)} more`;
  };
  more.addEventListener("click", () => {
    shown = order.length;
    draw();
  });
  const heads = report.columns.map((column, c) => el("th", { scope: "col", "aria-sort": "none", title: column.about || undefined }, el("button", { type: "button", click: () => sort(c) }, column.heading)));
  const sort = (c: number): void => {
    const down = heads[c]!.getAttribute("aria-sort") !== "descending";
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== c ? "none" : down ? "descending" : "ascending"));
    const sign = down ? -1 : 1;
    order = [...order].sort((a, b) => compared(report.rows[a]![c]!, report.rows[b]![c]!, sign));
    draw();
  };
  draw();
  return el("div", { class: "table-frame", tabindex: 0, role: "region", "aria-label": `Table of ${report.analysis}` },
    el("table", { class: "report-table" }, el("thead", null, el("tr", null, ...heads)), body), more);
}

function line(page: Page, report: ReportPage, i: number): HTMLElement {
  const call = report.calls[i] ?? -1;
  const cells = report.rows[i]!.map((cell, c) => {
    const column = report.columns[c]!;
    const content = text(cell, column.unit);
    const isPlace = call >= 0 && (column.field === "call" || column.field === "path");
    return el("td", { class: typeof cell === "number" ? "number" : content.length > 60 && !isPlace ? "words" : undefined },
      isPlace ? callLink(page, page.payload.run, call, content) : content);
  });
  return el("tr", null, ...cells);
}

function text(cell: Cell, unit: ReportColumn["unit"]): string {
  if (cell === null) return "n/a";
  if (typeof cell === "boolean") return cell ? "yes" : "no";
  if (typeof cell === "string") return cell;
  if (unit) return quantity(cell, unit);
  return Number.isInteger(cell) ? whole(cell) : digits(cell, 4);
}

/** The order of two cells, upwards or downwards (`sign`); what is not known comes last in both. */
function compared(a: Cell, b: Cell, sign: number): number {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  return sign * (typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : Number(a) - Number(b));
}
