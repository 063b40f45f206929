/** The place of each chain in each row: against the contour of what stands nearer to the axis. */

import { SIZE } from "./sizes";
import type { Plan } from "./plan";

/** The sizes of the items of a body, some of which may be open. */
export interface Extents {
  left: Float64Array; // from the axis of the item
  right: Float64Array;
  /** The last row into which each item reaches. */
  lastRow: Int32Array;
}

export interface Columns {
  /** Where the places of a chain begin in `x`; its first row is the first. */
  start: Int32Array;
  x: Float64Array;
  /** The contours of each row, as distances from the axis. */
  left: Float64Array;
  right: Float64Array;
}

/** Return the place of a chain in a row. */
export function columnAt(plan: Plan, columns: Columns, chain: number, row: number): number {
  const one = plan.chains[chain]!;
  const inside = row < one.first ? one.first : row > one.last ? one.last : row;
  return columns.x[columns.start[chain]! + inside - one.first]!;
}

/**
 * Place all chains. With `straight` each keeps one distance from the axis, which is noted in `column`. Otherwise a chain
 * begins at its noted distance and moves outward only from the row on that needs it: nothing above an opened box moves.
 */
export function placeChains(plan: Plan, extents: Extents, column: Float64Array, straight: boolean): Columns {
  const { chains, rowCount } = plan;
  const start = new Int32Array(chains.length + 1);
  chains.forEach((chain, index) => (start[index + 1] = start[index]! + chain.last - chain.first + 1));
  const x = new Float64Array(start[chains.length]!);
  const contours = [new Float64Array(rowCount + 1), new Float64Array(rowCount + 1)] as const;
  const columns = { start, x, left: contours[0], right: contours[1] };
  if (chains.length === 0) return columns;
  reserveAxis(plan, extents, contours);
  const taken = new Set<string>();
  for (const index of plan.order) {
    if (straight) column[index] = straightDistance(plan, extents, contours, index, taken);
    placeOne(plan, extents, contours, columns, index, column[index]!);
  }
  return columns;
}

type Contours = readonly [Float64Array, Float64Array];

function reserveAxis(plan: Plan, extents: Extents, [left, right]: Contours): void {
  const axis = plan.chains[0]!;
  left.fill(SIZE.lane / 2, axis.first, axis.last + 1);
  right.fill(SIZE.lane / 2, axis.first, axis.last + 1);
  for (const item of axis.items) {
    for (let row = plan.row[item]!; row <= extents.lastRow[item]!; row++) {
      left[row] = Math.max(left[row]!, extents.left[item]!);
      right[row] = Math.max(right[row]!, extents.right[item]!);
    }
  }
}

/** Return how far from the axis a chain must stand in the rows of an item, or in one row that it only passes. */
function distanceFor(extents: Extents, contours: Contours, side: number, item: number, row: number): number {
  const contour = side < 0 ? contours[0] : contours[1];
  if (item < 0) return contour[row]! + SIZE.beside + SIZE.lane / 2;
  let most = 0;
  for (let inside = row; inside <= extents.lastRow[item]!; inside++) most = Math.max(most, contour[inside]!);
  return most + (most > 0 ? SIZE.column : 0) + (side < 0 ? extents.right[item]! : extents.left[item]!);
}

function straightDistance(plan: Plan, extents: Extents, contours: Contours, index: number, taken: Set<string>): number {
  const chain = plan.chains[index]!;
  let distance = 0;
  let next = 0;
  for (let row = chain.first; row <= chain.last; row++) {
    const item = next < chain.items.length && plan.row[chain.items[next]!] === row ? chain.items[next++]! : -1;
    distance = Math.max(distance, distanceFor(extents, contours, chain.side, item, row));
  }
  if (!chain.lane) return distance;
  // a lane that ends in the row where another begins, at the same place, would look like one line
  const mark = (row: number) => `${chain.side}:${row}:${Math.round(distance)}`;
  while (taken.has(mark(chain.first - 1)) || taken.has(mark(chain.last + 1))) distance += SIZE.beside + SIZE.lane;
  taken.add(mark(chain.first)).add(mark(chain.last));
  return distance;
}

function placeOne(plan: Plan, extents: Extents, contours: Contours, columns: Columns, index: number, distance: number): void {
  const chain = plan.chains[index]!;
  const contour = chain.side < 0 ? contours[0] : contours[1];
  const outer = chain.side < 0 ? extents.left : extents.right;
  let next = 0;
  for (let row = chain.first; row <= chain.last; ) {
    const item = next < chain.items.length && plan.row[chain.items[next]!] === row ? chain.items[next++]! : -1;
    distance = Math.max(distance, distanceFor(extents, contours, chain.side, item, row));
    const last = item < 0 ? row : Math.min(extents.lastRow[item]!, chain.last);
    for (; row <= last; row++) {
      columns.x[columns.start[index]! + row - chain.first] = chain.side * distance;
      contour[row] = distance + (item < 0 ? SIZE.lane / 2 : outer[item]!);
    }
  }
}
