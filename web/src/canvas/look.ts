/** How each item looks now: its colours by overlay and kind, the strip of a repeat, marks of failures, findings and hits. */

import type { Run } from "../payload";
import type { Hits } from "../shell/search";
import type { Place } from "../state";
import { digits, quantity } from "../units";
import { colourOf, entryOf, readingOf, subtreeEnds, type Overlay } from "./overlay";
import { familyOf, paletteOf, type Hue, type ThemeName } from "./palette";
import { poolOf, type Pool } from "./pool";
import { inkOn } from "./scale";
import { placeKey, type Box } from "./tree";
import type { Onward } from "./onward";

export type Mark = "" | "failed" | "passed on" | "opaque" | "unfinished";

export interface Look {
  /** Its name: of a repeat that shows another than its first member, that of the one shown. */
  label: string;
  fill: string;
  line: string;
  stripe: string;
  ink: string;
  dimInk: string;
  /** The reading of the overlay in words; of a repeat its least, middle and largest. */
  value: string;
  short: string;
  /** The colour of each place of a repeat, in execution order; null where all is one. */
  strip: (string | null)[] | null;
  /** Positions among all places of the one that stands out and of the one that was chosen; -1 for none. */
  odd: number;
  shown: number;
  pool: Pool | null;
  /** Left out by the legend, or not among what was searched for. */
  faded: boolean;
  hit: boolean;
  hits: number; // calls and operations inside that were searched for
  mark: Mark;
  finding: "" | "error" | "warning" | "advice";
  onward: "" | "guilty" | "onward";
  notFinite: boolean;
}

/** Marks of an item, the worst first. */
const MARKS: readonly Mark[] = ["failed", "passed on", "unfinished", "opaque", ""];
const NO_MARK = MARKS.length - 1;
const FINDINGS = ["error", "warning", "advice"] as const;
const ONWARD = ["guilty", "onward", ""] as const;

const MOST_CELLS = 64;
const MOST_POOLED = 20_000;

/** Everything that looks depend on. */
export interface Scenery {
  run: Run;
  theme: ThemeName;
  overlay: Overlay | null;
  filter: readonly string[];
  hits: Hits | null;
  findings: Overlay;
  onward: Onward | null;
}

export class Looks {
  private known = new Map<Box, (Look | undefined)[]>();
  private readonly ends: Int32Array;

  constructor(private scenery: Scenery) {
    this.ends = subtreeEnds(scenery.run);
  }

  /** Something that looks depend on has changed. */
  renew(scenery: Scenery): void {
    this.scenery = scenery;
    this.known = new Map();
  }

  /** Another turn of a repeat is shown. */
  forget(): void {
    this.known = new Map();
  }

  of(box: Box, index: number): Look {
    let looks = this.known.get(box);
    if (!looks) this.known.set(box, (looks = []));
    return (looks[index] ??= this.make(box, index));
  }

  private make(box: Box, index: number): Look {
    const { theme, overlay, filter, hits, run } = this.scenery, palette = paletteOf(theme), item = box.item(index);
    const isCall = item.kind === "call" || (item.kind === "repeat" && item.type !== ""), hue = hueOf(item.kind, isCall ? item.type : item.label, isCall, theme);
    const place = box.shownPlace(index), look: Look = {
      label: labelOf(box, index, run, place), fill: hue.fill, line: hue.line, stripe: hue.line, ink: palette.text, dimInk: palette.dim, value: "", short: "", strip: null, odd: -1, shown: -1,
      pool: null, faded: false, hit: false, hits: 0, mark: "", finding: "", onward: "", notFinite: false,
    };
    if (overlay) this.paint(look, box, index, overlay);
    // Of many calls that are drawn once each mark is that of the worst.
    look.mark = MARKS[this.worst(box, index, ({ call, item: at }) => (at < 0 ? MARKS.indexOf(markOf(run, call)) : NO_MARK))] ?? "";
    look.finding = FINDINGS[this.worst(box, index, (one) => this.scenery.findings.read(one) ?? FINDINGS.length)] ?? "";
    const { onward } = this.scenery;
    if (onward) look.onward = ONWARD[this.worst(box, index, (one) => ONWARD.indexOf(onward.at(one)))] ?? "";
    if (hits?.count && !hits.error) this.light(look, box, index, hits);
    if (overlay && filter.length && !look.faded) look.faded = this.isFiltered(box, index, overlay, filter);
    return look;
  }

  /** Return the least number of all places of an item; once one was chosen, that of the one that is shown. */
  private worst(box: Box, index: number, rank: (place: Place) => number): number {
    if (box.isChosen(index) || box.item(index).group) return rank(box.shownPlace(index));
    let [least, seen] = [Infinity, 0];
    for (const place of box.places(index)) {
      least = Math.min(least, rank(place));
      if (least === 0 || ++seen >= MOST_POOLED) break;
    }
    return least;
  }

  private paint(look: Look, box: Box, index: number, overlay: Overlay): void {
    const { theme } = this.scenery, palette = paletteOf(theme), count = box.count(index);
    const isOpen = box.child(index) !== null, reading = readingOf(overlay, box.shownPlace(index), isOpen);
    let shown = reading;
    if (count > 1 && !box.item(index).group) {
      const readings: (number | undefined)[] = [];
      for (const place of box.places(index)) {
        readings.push(readingOf(overlay, place, isOpen));
        if (readings.length >= MOST_POOLED) break;
      }
      const pool = (look.pool = poolOf(readings));
      look.strip = stripOf(readings, overlay, theme);
      look.odd = overlay.scale ? pool.odd : -1;
      const chosen = box.isChosen(index);
      look.shown = chosen ? this.positionShown(box, index, readings.length) : -1;
      look.notFinite = pool.nan > 0 && overlay.scale !== null;
      // The box has the colour of the one that was chosen, else of the worst: of one that is not finite. Numbers have none: the middle.
      if (!chosen) shown = overlay.scale ? (pool.nan ? NaN : Number.isNaN(pool.median) ? undefined : pool.median) : overlay.worst.find((one) => readings.includes(one));
      if (!chosen && overlay.scale && !Number.isNaN(pool.median)) {
        look.value = [pool.min, pool.median, pool.max].map((n) => written(n, overlay)).join(" · ");
        look.short = written(pool.median, overlay);
      }
    }
    const colour = colourOf(overlay, shown, theme);
    look.notFinite ||= overlay.scale !== null && shown !== undefined && !Number.isFinite(shown);
    look.fill = colour ?? palette.missing;
    look.ink = colour ? inkOn(colour) : palette.dim;
    look.dimInk = colour ? `${look.ink}c0` : palette.dim;
    look.line = colour ? mixedLine(theme) : palette.boxLine;
    if (!look.value && shown !== undefined) look.value = look.short = overlay.scale ? written(shown, overlay) : overlay.classes[shown]?.name ?? "";
  }

  private positionShown(box: Box, index: number, count: number): number {
    const wanted = placeKey(box.shownPlace(index));
    for (let k = 0; k < count; k++) if (placeKey(box.placeAt(index, k)) === wanted) return k;
    return 0;
  }

  private isFiltered(box: Box, index: number, overlay: Overlay, filter: readonly string[]): boolean {
    // A box stays lit while anything that it stands for is.
    let seen = 0;
    for (const place of box.places(index)) {
      if (!filter.includes(entryOf(overlay, overlay.read(place)))) return false;
      if (++seen >= MOST_POOLED) break;
    }
    return seen > 0;
  }

  private light(look: Look, box: Box, index: number, hits: Hits): void {
    let seen = 0;
    for (const place of box.places(index)) {
      if (hits.has(place)) look.hit = true;
      if (place.item < 0) look.hits += countInside(hits, this.scenery.run, place.call, this.ends[place.call]!);
      if (++seen >= MOST_POOLED) break;
    }
    look.faded = !look.hit && !look.hits;
  }
}

function labelOf(box: Box, index: number, run: Run, place: Place): string {
  const item = box.item(index);
  if (place.item >= 0 || item.members.length < 2 || box.turn(index) === 0) return item.label;
  if (box.isGroup) return run.name(place.call);
  return `${run.name(place.call)} of ${item.label}`;
}

function written(number: number, overlay: Overlay): string {
  return overlay.unit ? quantity(number, overlay.unit) : digits(number, 3);
}

function hueOf(kind: string, label: string, isCall: boolean, theme: ThemeName): Hue {
  const palette = paletteOf(theme);
  if (kind === "views") return { fill: palette.pill, line: palette.boxLine };
  return palette.hues[familyOf(label, isCall)];
}

function mixedLine(theme: ThemeName): string {
  return theme === "dark" ? "#ffffff38" : "#00000030";
}

/** At most 64 cells; where more places than cells are, a cell has the colour of its largest reading, or of one not finite. */
function stripOf(readings: readonly (number | undefined)[], overlay: Overlay, theme: ThemeName): (string | null)[] {
  const cells = Math.min(MOST_CELLS, readings.length), strip: (string | null)[] = [];
  for (let cell = 0; cell < cells; cell++) {
    const from = Math.floor((cell * readings.length) / cells), to = Math.max(from + 1, Math.floor(((cell + 1) * readings.length) / cells));
    let chosen = readings[from];
    for (let k = from + 1; k < to; k++) {
      const one = readings[k];
      if (chosen === undefined || (one !== undefined && (Number.isNaN(one) || one > chosen))) chosen = one;
    }
    strip.push(colourOf(overlay, chosen, theme));
  }
  return strip;
}

function markOf(run: Run, call: number): Mark {
  const failure = run.failure(call);
  if (failure) return failure.here ? "failed" : "passed on";
  if (run.data.calls.finished[call]! < 0) return "unfinished";
  return run.status(call) === "opaque" ? "opaque" : "";
}

function countInside(hits: Hits, run: Run, call: number, end: number): number {
  const first = run.data.calls.firstStep;
  return below(hits.calls, end) - below(hits.calls, call + 1) + below(hits.steps, first[end] ?? Infinity) - below(hits.steps, first[call]!);
}

/** How many numbers of an ascending list are below a limit. */
function below(list: readonly number[], limit: number): number {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle]! < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
