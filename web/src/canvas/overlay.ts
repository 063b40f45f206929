/** What colours the graph: a measure, a condition, status, findings, or the error of a comparison, read for any place. */

import { VERDICTS, type MeasureData, type Run, type Payload } from "../payload";
import type { Place, Side } from "../state";
import type { ThemeName } from "./palette";
import { paletteOf } from "./palette";
import { classColour, colourAt, scaleOf, type Scale } from "./scale";

export interface Category { name: string; colour(theme: ThemeName): string }

/** A reading is a number, NaN where the tensor is not finite, `undefined` where nothing was measured; of classes: which one. */
export interface Overlay {
  id: string;
  title: string;
  unit: string;
  about: string;
  scale: Scale | null; // null: classes
  classes: readonly Category[];
  /** Readings from the worst on: of many calls that are drawn once, the box has the first that occurs. Empty for a scale. */
  worst: readonly number[];
  read(place: Place): number | undefined;
  /** The reading of a call with all calls in it, for a closed box; only of measures that leave these out and add up. */
  whole?: ((place: Place) => number | undefined) | undefined;
  /** Every reading of the run, for the legend's counts. */
  all(): Iterable<number>;
}

export type Matcher = (place: Place) => boolean;

/** The overlay of a state; null for none, and for one that this run cannot show. `matching` evaluates a condition. */
export function overlayOf(id: string, payload: Payload, side: Side, matching: (condition: string, run: Run) => Matcher | null): Overlay | null {
  const run = payload.runs[side];
  if (!id || !run) return null;
  if (id === "status") return statusOverlay(run);
  if (id === "findings") return findingsOverlay(run);
  if (id === "error") return errorOverlay(payload, side);
  if (id === "verdict") return verdictOverlay(payload, side);
  if (id.startsWith("where:")) return whereOverlay(id.slice(6).trim(), run, matching);
  return measureOverlay(id, run);
}

// Where readings are remembered: places of a run as numbers --------------------------------------------

const ITEMS = 2 ** 21;

export function keyOf(call: number, item: number): number {
  return call * ITEMS + item + 1;
}

function remembered(read: (place: Place) => number | undefined): (place: Place) => number | undefined {
  const known = new Map<number, number | undefined>();
  return (place) => {
    const key = keyOf(place.call, place.item);
    if (known.has(key)) return known.get(key);
    const value = read(place);
    known.set(key, value);
    return value;
  };
}

// Measures -------------------------------------------------------------------------------------------

const OF_TENSORS: Record<string, string> = {
  mean: "mean of the elements", std: "standard deviation of the elements", min: "smallest element", max: "largest element",
  absmax: "largest magnitude of an element", nan: "elements that are NaN", inf: "elements that are infinite", zeros: "elements that are zero",
  numel: "elements", bytes: "size of the tensor",
};
const SPOILED_BY_NAN = new Set(["mean", "std", "min", "max", "absmax"]);

/** The measures that a run can be coloured by: those it has a number for anywhere. */
export function measuresOf(run: Run): { name: string; title: string; about: string }[] {
  const found = run.data.measures.map((one) => ({ name: one.name, title: one.name, about: one.about }));
  const named = new Set(found.map((one) => one.name));
  if (run.data.values.statistics.count.some((n) => !Number.isNaN(n)))
    for (const [name, about] of Object.entries(OF_TENSORS)) if (!named.has(name)) found.push({ name, title: name, about });
  return found;
}

function measureOverlay(name: string, run: Run): Overlay | null {
  const measure = run.measure(name);
  if (!measure && !(name in OF_TENSORS)) return null;
  const read = remembered((place) => {
    if (SPOILED_BY_NAN.has(name) && spoiled(run, run.valueOf(place))) return NaN;
    return run.number(name, place) ?? undefined;
  });
  const all = numbersOf(name, run, measure);
  const whole = measure?.own && measure.adds ? wholeOf(name, run, read) : undefined;
  return {
    id: name, title: name, unit: measure?.unit ?? (name === "bytes" ? "B" : ""), about: measure?.about ?? OF_TENSORS[name] ?? "",
    scale: scaleOf(all), classes: [], worst: [], read, whole, all: () => all,
  };
}

/** Sums over a call and all calls in it, as a closed box stands for them; undefined where one of them has no number. */
function wholeOf(name: string, run: Run, read: Overlay["read"]): Overlay["read"] {
  const ends = subtreeEnds(run), sums = new Float64Array(run.callCount + 1), unknown = new Int32Array(run.callCount + 1);
  for (let call = 0; call < run.callCount; call++) {
    const number = run.number(name, { call, item: -1 });
    sums[call + 1] = sums[call]! + (number ?? 0);
    unknown[call + 1] = unknown[call]! + (number === null ? 1 : 0);
  }
  return (place) => {
    const { call, item } = run.normal(place);
    if (item >= 0) return read(place);
    const end = ends[call]!;
    return unknown[end]! > unknown[call]! ? undefined : sums[end]! - sums[call]!;
  };
}

/** Of each call the first one after it that is not inside it. */
export function subtreeEnds(run: Run): Int32Array {
  const ends = new Int32Array(run.callCount), parents = run.data.calls.parent;
  for (let call = run.callCount - 1; call >= 0; call--) {
    ends[call] = Math.max(ends[call]!, call + 1);
    const parent = parents[call]!;
    if (parent >= 0) ends[parent] = Math.max(ends[parent]!, ends[call]!);
  }
  return ends;
}

/** What an overlay says of a place in a drawing: a closed call stands for all that is in it. */
export function readingOf(overlay: Overlay, place: Place, isOpen: boolean): number | undefined {
  return isOpen || !overlay.whole ? overlay.read(place) : overlay.whole(place);
}

function spoiled(run: Run, value: number): boolean {
  if (value < 0) return false;
  const s = run.data.values.statistics;
  return s.nan[value]! > 0 || s.posinf[value]! > 0 || s.neginf[value]! > 0;
}

function numbersOf(name: string, run: Run, measure: MeasureData | undefined): number[] {
  const found: number[] = [];
  if (measure?.calls || measure?.steps) {
    for (const n of measure.calls ?? []) if (!Number.isNaN(n)) found.push(n);
    for (const n of measure.steps?.number ?? []) if (!Number.isNaN(n)) found.push(n);
    return found;
  }
  const count = run.data.values.shape.length;
  for (let value = 0; value < count; value++) {
    if (SPOILED_BY_NAN.has(name) && spoiled(run, value)) found.push(NaN);
    else {
      const n = run.numberOfValue(name, value);
      if (n !== null) found.push(n);
    }
  }
  return found;
}

// Classes --------------------------------------------------------------------------------------------

const grade = (index: number) => (theme: ThemeName): string => classColour(index, theme);

function classOverlay(
  id: string, title: string, about: string, classes: readonly Category[], worst: readonly number[], read: Overlay["read"], all: () => Iterable<number>,
): Overlay {
  return { id, title, unit: "", about, scale: null, classes, worst, read: remembered(read), all };
}

const FAILED = 3;

function statusOverlay(run: Run): Overlay {
  const classes = [
    { name: "verified", colour: grade(2) }, { name: "recorded", colour: grade(0) }, { name: "opaque", colour: grade(7) },
    { name: "failed", colour: (theme: ThemeName) => paletteOf(theme).bad },
  ];
  const of = (call: number): number | undefined => {
    if (run.data.calls.failure[call]! >= 0) return FAILED;
    const status = run.data.calls.status[call]!;
    return status ? status - 1 : undefined;
  };
  const read = (place: Place): number | undefined => {
    const normal = run.normal(place);
    return normal.item < 0 ? of(normal.call) : undefined;
  };
  const all = (): number[] => Array.from({ length: run.callCount }, (_, call) => of(call)).filter((one) => one !== undefined);
  return classOverlay("status", "status", "How far the graph of a call can be trusted", classes, [FAILED, 2, 1, 0], read, all);
}

const SEVERITIES = ["error", "warning", "advice"];

function findingsOverlay(run: Run): Overlay {
  const worst = new Map<number, number>();
  for (const finding of run.data.findings) {
    const place = run.outside(finding.step >= 0 ? run.placeOfStep(finding.step) : { call: finding.call, item: -1 });
    const rank = SEVERITIES.indexOf(finding.severity);
    // A closed box shows the worst of what is inside it.
    for (let at = place; ; ) {
      const key = keyOf(at.call, at.item);
      worst.set(key, Math.min(worst.get(key) ?? SEVERITIES.length, rank));
      const around = run.outside({ call: at.call, item: -1 });
      if (around.call === at.call && around.item === at.item) break;
      at = around;
      if (at.item < 0) break;
    }
  }
  const classes: Category[] = [
    { name: "error", colour: (theme) => paletteOf(theme).bad }, { name: "warning", colour: grade(1) }, { name: "advice", colour: grade(0) },
  ];
  const read = (place: Place): number | undefined => {
    const out = run.outside(place);
    return worst.get(keyOf(out.call, out.item));
  };
  return classOverlay("findings", "findings", "The worst finding of a check in each box", classes, [0, 1, 2], read, () => run.data.findings.map((f) => SEVERITIES.indexOf(f.severity)));
}

function whereOverlay(condition: string, run: Run, matching: (condition: string, run: Run) => Matcher | null): Overlay | null {
  const match = matching(condition, run);
  if (!match) return null;
  const classes: Category[] = [{ name: "matches", colour: grade(1) }, { name: "does not", colour: (theme) => paletteOf(theme).missing }];
  const read = (place: Place): number => (match(place) ? 0 : 1);
  const all = (): number[] => Array.from({ length: run.callCount }, (_, call) => read({ call, item: -1 }));
  return classOverlay(`where:${condition}`, condition, "Calls and operations that a condition holds for", classes, [0, 1], read, all);
}

// Comparisons ----------------------------------------------------------------------------------------

/** The rows of a comparison by the place of one side; several where one place was paired with many. */
export function rowsBySide(payload: Payload, side: Side): Map<number, number[]> {
  const found = new Map<number, number[]>(), comparison = payload.comparison, run = payload.runs[side];
  if (!comparison || !run) return found;
  const { rows } = comparison, calls = side ? rows.bCall : rows.aCall, steps = side ? rows.bStep : rows.aStep;
  for (let row = 0; row < calls.length; row++) {
    if (calls[row]! < 0) continue;
    const place = run.outside(steps[row]! >= 0 ? run.placeOfStep(steps[row]!, calls[row]!) : { call: calls[row]!, item: -1 });
    const key = keyOf(place.call, place.item), known = found.get(key);
    if (known) known.push(row);
    else found.set(key, [row]);
  }
  return found;
}

function errorOverlay(payload: Payload, side: Side): Overlay | null {
  const comparison = payload.comparison, run = payload.runs[side];
  if (!comparison || !run) return null;
  const bySide = rowsBySide(payload, side), { error } = comparison.rows;
  const read = (place: Place): number | undefined => {
    const out = run.outside(place), rows = bySide.get(keyOf(out.call, out.item));
    if (!rows) return undefined;
    let worst: number | undefined;
    for (const row of rows) if (!Number.isNaN(error[row]!)) worst = Math.max(worst ?? 0, error[row]!);
    return worst;
  };
  const all = Array.from(error).filter((n) => !Number.isNaN(n));
  return { id: "error", title: "error", unit: "", about: "Relative error between the two runs", scale: scaleOf(all), classes: [], worst: [], read: remembered(read), all: () => all };
}

function verdictOverlay(payload: Payload, side: Side): Overlay | null {
  const comparison = payload.comparison, run = payload.runs[side];
  if (!comparison || !run) return null;
  const colours: Record<string, (theme: ThemeName) => string> = {
    equal: grade(2), inherited: grade(1), adds: (theme) => paletteOf(theme).bad, absorbed: grade(0), ignored: grade(7), unknown: grade(7), only_a: grade(4), only_b: grade(4),
  };
  const classes = VERDICTS.map((name) => ({ name: name.replace("_", " in "), colour: colours[name] ?? grade(7) }));
  const bySide = rowsBySide(payload, side), { verdict } = comparison.rows, order = [2, 1, 3, 6, 7, 5, 4, 0];
  const read = (place: Place): number | undefined => {
    const out = run.outside(place), rows = bySide.get(keyOf(out.call, out.item));
    return rows && order.find((one) => rows.some((row) => verdict[row] === one));
  };
  return classOverlay("verdict", "verdict", "What each operation did to the difference of the two runs", classes, order, read, () => verdict);
}

// Colours --------------------------------------------------------------------------------------------

/** The colour of a reading; null for nothing measured. */
export function colourOf(overlay: Overlay, reading: number | undefined, theme: ThemeName): string | null {
  if (reading === undefined) return null;
  if (!overlay.scale) return overlay.classes[reading]?.colour(theme) ?? null;
  return Number.isFinite(reading) ? colourAt(overlay.scale, reading, theme) : paletteOf(theme).nan;
}

export const BINS = 12;

/** The entry of the legend that a reading belongs to: a class, a bin of the ramp, "nan" or "none". */
export function entryOf(overlay: Overlay, reading: number | undefined): string {
  if (reading === undefined) return "none";
  if (!overlay.scale) return overlay.classes[reading]?.name ?? "none";
  if (!Number.isFinite(reading)) return "nan";
  return `bin${Math.min(BINS - 1, Math.floor(overlay.scale.at(reading) * BINS))}`;
}
