/** Where everything in one open box stands: x from its axis, y from its upper border. Equal boxes share a geometry. */

import type { Plan } from "./plan";

export const EDGE = {
  SKIPS: 1, // leaves the axis and comes back to it: a residual connection
  BUNDLE: 2, // many values in one line
  TAP: 4, // begins on the line of the same value to a farther reader
  INTO_OPEN: 8, // goes on inside of an open box: no arrow
  OUT: 16, // leaves the box
  UNREAD: 32, // the box that it enters does not read it
} as const;

/** A few words beside a line: the shape of a value, the name of an input. */
export interface Note {
  text: string;
  x: number;
  /** The middle of its height. */
  y: number;
  align: "left" | "right";
}

export interface Geometry {
  id: number;
  plan: Plan;
  /** Of each item its axis, its upper border, its extent to the left and right of the axis, its height. */
  x: Float64Array;
  y: Float64Array;
  left: Float64Array;
  right: Float64Array;
  height: Float64Array;
  /** Extents of the box itself. */
  boxLeft: number;
  boxRight: number;
  boxHeight: number;
  /** Where inputs enter at the upper border and outputs leave at the lower one. */
  inX: Float64Array;
  outX: Float64Array;
  /** Made when they are first asked for: what is not drawn has none. */
  readonly edges: Edges;
  readonly notes: Note[];
}

/** Lines as columns: `points` has x, y, x, y …; those of edge `i` are `start[i] … start[i + 1]`, counted in numbers. */
export interface Edges {
  count: number;
  start: Int32Array;
  points: Float32Array;
  /** The item that made the value (below 0: input `~from`) and the item that reads it (below 0: output `~to`). */
  from: Int32Array;
  to: Int32Array;
  value: Int32Array;
  flags: Uint8Array;
  /** How many values run in it, where it is a bundle. */
  width: Uint16Array;
}

/** The line and the head of an arrow on the right of a repeated item, from below back up: a turn passes a value on. */
export function loopOf(x: number, y: number, height: number): readonly [number[], number[]] {
  const inset = Math.min(height / 5, 26), [top, bottom, out] = [y + inset, y + height - inset, x + 13];
  return [[x, bottom, out, bottom, out, top, x, top], [x + 5, top - 3, x, top, x + 5, top + 3]];
}
