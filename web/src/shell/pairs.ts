// A call or operation beside its partner in the other run: error, verdict, and the numbers of both.

import { keyOf, rowsBySide } from "../canvas/overlay";
import { VERDICTS, type Run } from "../payload";
import type { Place, Side } from "../state";
import { digits } from "../units";
import { el } from "./dom";
import { idOf, placeOf, type Page } from "./page";
import type { Counterpart } from "./tensors";

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

const byValue = new WeakMap<Run, Map<number, number>>(); // of each tensor of a run the row in which it is compared

/** The tensor of the other run that one was compared with, whatever it is in its call: an argument, a result. */
export function counterpartOf(page: Page, run: Run, place: Place, value: number): Counterpart | null {
  const { comparison, runs } = page.payload;
  if (!comparison) return null;
  const isFirst = run === runs[0], { aValue, bValue } = comparison.rows, [own, others] = isFirst ? [aValue, bValue] : [bValue, aValue];
  let known = byValue.get(run);
  if (!known) {
    byValue.set(run, (known = new Map()));
    for (let row = 0; row < own.length; row++) if (own[row]! >= 0 && others[row]! >= 0 && !known.has(own[row]!)) known.set(own[row]!, row);
  }
  const here = rowsAt(page, run, place).find((row) => own[row] === value && others[row]! >= 0);
  const row = here ?? known.get(value);
  if (row === undefined) return null;
  const { statistics } = runs[isFirst ? 1 : 0]!.facts(others[row]!);
  return { statistics, isEqual: VERDICTS[comparison.rows.verdict[row]!] === "equal", names: isFirst ? ["a", "b"] : ["b", "a"] };
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
  const blocks = rows.map((row) => block(page, row, side));
  return el("section", { class: "compared" }, el("h3", null, "Compared with the other run"), ...blocks);
}

function block(page: Page, row: number, side: Side): HTMLElement {
  const comparison = page.payload.comparison!, { rows } = comparison, run = page.payload.runs[side]!;
  const verdict = VERDICTS[rows.verdict[row]!]!, because = run.text(rows.because[row]!), how = run.text(rows.how[row]!);
  const kind = comparison.kindNames[rows.kind[row]!], means = kind ? comparison.kinds[kind]! : VERDICT_MEANS[verdict]!;
  const call = (side ? rows.bCall : rows.aCall)[row]!, other = call < 0 ? null : placeOf(run, call, (side ? rows.bStep : rows.aStep)[row]!);
  const isSaid = because.startsWith(means);
  const fact = (name: string, number: number): HTMLElement | null =>
    Number.isNaN(number) ? null : el("div", { class: "stat" }, el("span", { class: "stat-name" }, name), el("span", { class: "stat-number" }, digits(number, 3)));
  return el("div", { class: `pair ${verdict}` },
    el("p", { class: "verdict" }, el("span", { class: `chip ${verdict}` }, kind || verdict.replace("_", " in ")), isSaid ? because : means),
    !isSaid && because && el("p", null, because),
    el("div", { class: "statistics" }, fact("error", rows.error[row]!), fact("error in", rows.errorIn[row]!), fact("tolerance", rows.tolerance[row]!), fact("max |a−b|", rows.maxAbs[row]!)),
    other && el("p", { class: "partner" }, el("button", { class: "link", type: "button", click: () => page.select(other, side) }, idOf(run, other)), how && el("span", { class: "remarks" }, ` paired by ${how}`)),
  );
}
