/** The legend of a picture: the hues, shapes and lines that occur in it, and what Python says about it. */

import { type Family, familyOf, type Palette } from "../canvas/palette";
import type { DrawnItem } from "../fold";
import { EDGE } from "../layout/geometry";
import type { Frame, Layout } from "../layout/layout";
import { FONT } from "../layout/sizes";
import { widthOf } from "../layout/text";

export interface LegendEntry {
  text: string;
  /** Empty for a text without a swatch. */
  fill: string;
  line?: string;
  dashed?: string;
  shape?: "box" | "round" | "line" | "thick" | "sheets";
}

const NAMES: Record<Family, string> = {
  linear: "linear, convolution, product", norm: "normalisation", activation: "activation", attention: "attention, recurrence",
  embedding: "embedding", inactive: "dropout, identity", module: "other module", operation: "other operation",
};
const FAMILIES = Object.keys(NAMES) as Family[];

/** Is an item drawn as a module call, with a bar at its left? */
export function isCallOf(item: DrawnItem): boolean {
  return item.type !== "";
}

/** Return what the hues and shapes of a drawing mean; `isFilled`: is the colour of an item another one than that of its kind? */
export function meanings(layout: Layout, palette: Palette, isFilled: (key: string) => boolean): LegendEntry[] {
  const families = new Map<Family, boolean>(); // and whether it occurs as a call
  const seen = { call: false, operation: false, views: false, repeat: false, skips: false, bundle: false, carried: false };
  const look = (frame: Frame, key: string): void => {
    const { edges } = frame.geometry;
    for (let edge = 0; edge < edges.count; edge++) {
      if (edges.flags[edge]! & EDGE.SKIPS) seen.skips = true;
      if (edges.flags[edge]! & EDGE.BUNDLE) seen.bundle = true;
    }
    frame.drawn.items.forEach((item, index) => {
      const own = key === "" ? `${index}` : `${key}.${index}`, inside = frame.inner(index);
      if (item.times > 1) seen.repeat = true;
      if (item.carried) seen.carried = true;
      if (inside !== null) return look(inside, own);
      if (item.kind === "views") seen.views = true;
      else {
        const isCall = isCallOf(item);
        seen[isCall ? "call" : "operation"] = true;
        const family = familyOf(isCall ? item.type : item.label, isCall);
        if (!isFilled(own)) families.set(family, isCall || families.get(family) === true);
      }
    });
  };
  look(layout.root, "");
  const found: LegendEntry[] = FAMILIES.filter((one) => families.has(one)).map((one) => ({
    text: NAMES[one], fill: palette.hues[one].fill, line: palette.hues[one].line, shape: families.get(one) ? "box" : "round",
  }));
  const { fill, line } = palette.hues.module;
  const add = (wanted: boolean, text: string, shape: NonNullable<LegendEntry["shape"]>, colour = line, inside = fill): void => {
    if (wanted) found.push({ text, fill: inside, line: colour, shape });
  };
  add(seen.call && families.size === 0, "module", "box");
  add(seen.operation && families.size === 0, "operation", "round");
  add(seen.views, "rearranges", "round", palette.pill, palette.pill);
  add(seen.repeat, layout.lines > 0 ? "×: equal ones, drawn once; numbers of all" : "×: equal ones, drawn once", "sheets", palette.boxLine);
  add(seen.carried, "to the next turn of the loop", "line", palette.accent);
  add(seen.skips, "skips layers", "line", palette.residual);
  add(seen.bundle, "several values", "thick", palette.edge);
  return found;
}

const ROW = 18;
const LEAST = 360; // width of a legend that is not all in one row

/** Return the size of a legend, and its parts where it is put. */
export function legendRows(
  legend: readonly LegendEntry[], most: number, palette: Palette, escaped: (text: string) => string,
): { width: number; height: number; parts: (x: number, y: number) => string[] } {
  if (legend.length === 0) return { width: 0, height: 0, parts: () => [] };
  let [x, row, width] = [0, 0, 0];
  // A scale is its least number, colours without a text, and its largest number: all in one row.
  const isScale = (index: number): boolean => legend[index]?.text === "";
  const goesOn = (index: number): boolean => isScale(index) || (isScale(index - 1) && legend[index]?.fill === "");
  const widths = legend.map(({ text, fill }, index) => (text === "" ? 0 : widthOf(text, FONT.note) + (isScale(index + 1) ? 6 : 16)) + (fill === "" ? 4 : text === "" ? 13 : 18));
  const places = widths.map((own, index) => {
    let all = own;
    for (let next = index + 1; goesOn(next); next++) all += widths[next]!;
    if (x > 0 && !goesOn(index) && x + all > Math.max(most, LEAST)) [x, row] = [0, row + 1];
    const place = { x, row };
    x += own;
    width = Math.max(width, x);
    return place;
  });
  const parts = (left: number, top: number): string[] =>
    legend.flatMap((entry, index) => {
      const { text, fill } = entry;
      const [at, y] = [left + places[index]!.x, top + places[index]!.row * ROW];
      const words = `<text x="${round(at + (fill === "" ? 4 : 17))}" y="${round(y + 9.5)}" font-size="${FONT.note}" fill="${palette.dim}">${escaped(text)}</text>`;
      return [...(fill === "" ? [] : swatch({ line: palette.boxLine, ...entry }, at, y)), ...(text === "" ? [] : [words])];
    });
  return { width, height: (row + 1) * ROW + 4, parts };
}

function swatch({ fill, line, dashed, shape }: LegendEntry, x: number, y: number): string[] {
  const stroke = line === undefined ? "" : ` stroke="${line}"${dashed === undefined ? "" : ' stroke-dasharray="3 2"'}`;
  const rect = (dx: number, dy: number, height: number, radius: number): string =>
    `<rect x="${round(x + dx)}" y="${round(y + dy)}" width="12" height="${height}" rx="${radius}" fill="${fill}"${stroke}/>`;
  if (shape === "line" || shape === "thick") return [`<path d="M${round(x)} ${round(y + 6)}h12" fill="none" stroke="${line}" stroke-width="${shape === "line" ? 1.6 : 2.6}"/>`];
  if (shape === "round") return [rect(0, 2, 8, 4)];
  if (shape === "sheets") return [rect(2, 3, 8, 2), rect(0, 1, 8, 2)];
  const bar = shape === "box" ? [`<rect x="${round(x)}" y="${round(y + 0.5)}" width="3" height="11" rx="1.5" fill="${line}"/>`] : [];
  return [rect(0, 0, 12, 3), ...bar];
}

function round(number: number): number {
  return Math.round(number * 10) / 10;
}
