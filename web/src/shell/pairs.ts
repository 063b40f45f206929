// A call or operation beside its partner in the other run: error, verdict, and the numbers of both.

import { keyOf, rowsBySide } from "../canvas/overlay";
import { VERDICTS, type Run, type Statistics } from "../payload";
import type { Place, Side } from "../state";
import { digits } from "../units";
import { el } from "./dom";
import { idOf, placeOf, type Page } from "./page";

export interface Pair {
  readonly row: number;
  readonly other: Place | null;
  readonly statistics: Statistics | null; // of the first tensor of the partner
  readonly names: readonly [own: string, other: string]; // of the runs
}

const bySide = new WeakMap<Page, Map<Side, Map<number, number[]>>>();

/** The rows of the comparison that a place is in; several where it was paired with several. */
export function rowsAt(page: Page, run: Run, place: Place): readonly number[] {
  if (!page.payload.comparison) return [];
  const side: Side = run === page.payload.runs[0] ? 0 : 1;
  let known = bySide.get(page);
  if (!known) bySide.set(page, (known = new Map()));
  let rows = known.get(side);
  if (!rows) known.set(side, (rows = rowsBySide(page.payload, side)));
  const out = run.outside(place);
  return rows.get(keyOf(out.call, out.item)) ?? [];
}

/** The first partner of a place. */
export function pairOf(page: Page, run: Run, place: Place): Pair | null {
  const row = rowsAt(page, run, place)[0];
  return row === undefined ? null : pairAt(page, run, row);
}

function pairAt(page: Page, run: Run, row: number): Pair {
  const rows = page.payload.comparison!.rows;
  const isFirst = run === page.payload.runs[0];
  const otherRun = page.payload.runs[isFirst ? 1 : 0]!;
  const call = (isFirst ? rows.bCall : rows.aCall)[row]!;
  const other = call < 0 ? null : placeOf(otherRun, call, (isFirst ? rows.bStep : rows.aStep)[row]!);
  const value = (isFirst ? rows.bValue : rows.aValue)[row]!;
  return { row, other, statistics: value < 0 ? null : otherRun.facts(value).statistics, names: isFirst ? ["a", "b"] : ["b", "a"] };
}

export const VERDICT_MEANS: Readonly<Record<string, string>> = {
  equal: "equal within the tolerance",
  inherited: "the error comes from its inputs",
  adds: "adds error of its own",
  absorbed: "takes in an error and returns none",
  ignored: "differs, and no result depends on it",
  unknown: "cannot be compared",
  only_a: "is only in the first run",
  only_b: "is only in the second run",
};

/** What the comparison says of a place: one block for each partner. */
export function comparedPlace(page: Page, run: Run, place: Place): HTMLElement | null {
  const rows = rowsAt(page, run, place);
  if (!rows.length) return null;
  const side: Side = run === page.payload.runs[0] ? 1 : 0;
  const blocks = rows.map((row) => block(page, pairAt(page, run, row), side));
  return el("section", { class: "compared" }, el("h3", null, "Compared with the other run"), ...blocks);
}

function block(page: Page, pair: Pair, side: Side): HTMLElement {
  const comparison = page.payload.comparison!;
  const { rows } = comparison;
  const { row, other } = pair;
  const verdict = VERDICTS[rows.verdict[row]!]!;
  const run = page.payload.runs[side]!;
  const text = (at: number): string => run.text(at);
  const fact = (name: string, number: number): HTMLElement | null =>
    Number.isNaN(number) ? null : el("div", { class: "stat" }, el("span", { class: "stat-name" }, name), el("span", { class: "stat-number" }, digits(number, 3)));
  return el("div", { class: `pair ${verdict}` },
    el("p", { class: "verdict" }, el("span", { class: `chip ${verdict}` }, verdict.replace("_", " in ")), VERDICT_MEANS[verdict]),
    text(rows.because[row]!) && el("p", null, text(rows.because[row]!)),
    el("div", { class: "statistics" }, fact("error", rows.error[row]!), fact("error in", rows.errorIn[row]!), fact("tolerance", rows.tolerance[row]!), fact("max |a−b|", rows.maxAbs[row]!)),
    other && el("p", { class: "partner" }, el("button", { class: "link", type: "button", click: () => page.select(other, side) }, idOf(run, other)), text(rows.how[row]!) && el("span", { class: "remarks" }, ` paired by ${text(rows.how[row]!)}`)),
  );
}
