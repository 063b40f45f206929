/** The drawing as it is laid out now: walking it, what is under the mouse, where a box stands. Coordinates: x from the root's axis, y from its top. */

import type { Rect } from "./camera";
import type { Box, Member } from "./tree";

/** An item where it stands. `inner` is its inside where it is open. */
export interface Spot {
  box: Box;
  index: number;
  inner: Box | null;
  x: number;
  y: number;
  w: number;
  h: number;
  /** Where its axis is. */
  axis: number;
  depth: number;
}

export interface Hit { spot: Spot | null; part: "body" | "title" | "toggle" | "strip"; cell: number }

export const STACK = 4;
export const HEAD = 24;
const TOGGLE = 20; // width of the place in a title or card that opens and closes

export function rootRect(root: Box): Rect {
  const { boxLeft, boxRight, boxHeight } = root.geometry;
  return { x: -boxLeft, y: 0, w: boxLeft + boxRight, h: boxHeight };
}

export function meets(a: Rect, x: number, y: number, w: number, h: number): boolean {
  return x <= a.x + a.w && x + w >= a.x && y <= a.y + a.h && y + h >= a.y;
}

/** Where the item of an open box stands, whose axis and upper border are at (ax, ay). */
export function spotOf(box: Box, index: number, ax: number, ay: number, depth: number): Spot {
  const { geometry } = box, axis = ax + geometry.x[index]!;
  const left = geometry.left[index]!, y = ay + geometry.y[index]!;
  const inner = box.child(index);
  // The extent of an open item may be wider than its box, so that what is beside it does not move.
  const l = inner ? inner.geometry.boxLeft : left, r = inner ? inner.geometry.boxRight : geometry.right[index]!;
  return { box, index, inner, x: axis - l, y, w: l + r, h: geometry.height[index]!, axis, depth };
}

/** Visit all items in a part of the drawing, outer ones first. Where `visit` returns false the inside is left out. */
export function walk(box: Box, window: Rect, visit: (spot: Spot) => boolean | void, ax = 0, ay = 0, depth = 1): void {
  const { geometry } = box, count = geometry.x.length;
  for (let i = 0; i < count; i++) {
    const x = ax + geometry.x[i]!, y = ay + geometry.y[i]!;
    if (y > window.y + window.h || y + geometry.height[i]! < window.y || x - geometry.left[i]! > window.x + window.w || x + geometry.right[i]! < window.x) continue;
    const spot = spotOf(box, i, ax, ay, depth);
    if (visit(spot) !== false && spot.inner) walk(spot.inner, window, visit, x, y, depth + 1);
  }
}

/** Where an item of an open box stands. */
export function locate({ box, index }: Member): Spot {
  let ax = 0, ay = 0, depth = 1;
  for (let one = box; one.parent; one = one.parent) {
    ax += one.parent.geometry.x[one.index]!;
    ay += one.parent.geometry.y[one.index]!;
    depth++;
  }
  return spotOf(box, index, ax, ay, depth);
}

/** What is under a point: the innermost item; the title of an open box is the box, its inside is nothing. */
export function under(root: Box, x: number, y: number, hasToggle: (spot: Spot) => boolean, cells: (spot: Spot) => number): Hit {
  const point: Rect = { x, y, w: 0, h: 0 };
  let found: Spot | null = null;
  walk(root, point, (spot) => {
    if (x < spot.x || x > spot.x + spot.w || y < spot.y || y > spot.y + spot.h) return false;
    found = spot;
    return true;
  });
  const spot = found as Spot | null;
  if (!spot) return { spot, part: "body", cell: -1 };
  const count = hasStrip(spot) ? cells(spot) : 0, strip = stripRect(spot);
  if (count > 1 && meets(strip, x, y, 0, 0)) return { spot, part: "strip", cell: Math.min(count - 1, Math.floor(((x - strip.x) / strip.w) * count)) };
  const card = frontOf(spot), inTitle = !spot.inner || y < spot.y + HEAD;
  if (hasToggle(spot) && inTitle && x < card.x + TOGGLE) return { spot, part: "toggle", cell: -1 };
  return { spot, part: spot.inner && inTitle ? "title" : "body", cell: -1 };
}

export function isRepeat(spot: Member): boolean {
  return spot.box.item(spot.index).times > 1;
}

/** The front sheet of an item: of a repeat the others look out behind it. */
export function frontOf(spot: Spot): Rect {
  if (spot.inner || !isRepeat(spot)) return spot;
  return { x: spot.x + STACK, y: spot.y, w: spot.w - 2 * STACK, h: spot.h - STACK };
}

/** Where the readings of a repeat are drawn. */
export function stripRect(spot: Spot): Rect {
  const card = frontOf(spot);
  if (spot.inner) return { x: card.x + 12, y: card.y + card.h - 10, w: card.w - 24, h: 6 };
  return { x: card.x + 4, y: card.y + card.h - 6, w: card.w - 4, h: 6 };
}

/** Has an item room for the readings of a repeat? */
export function hasStrip(spot: Spot): boolean {
  return spot.inner !== null || frontOf(spot).h >= 30;
}
