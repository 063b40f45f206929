/** Titles of open boxes: beside the lines that enter them, never across. */

import type { Geometry } from "../layout/geometry";
import type { Title } from "../layout/layout";
import { FONT, SIZE } from "../layout/sizes";
import { widthOf } from "../layout/text";

const CLEAR = 4; // between a line and a word
const BETWEEN = 8; // name and class

/** Return where name and class of a box begin, from its axis, and where what is at the right ends. */
export function titlePlaces(g: Geometry, title: Title): { name: number; type: number; end: number } {
  const lines = linesInto(g);
  const name = clear(lines, -g.boxLeft + SIZE.side, widthOf(title.name, FONT.title, "bold"));
  const after = title.name === "" ? name : name + widthOf(title.name, FONT.title, "bold") + BETWEEN;
  const width = title.type === title.name ? 0 : widthOf(title.type, FONT.titleType);
  const type = width === 0 ? after : clear(lines, after, width);
  return { name, type, end: Math.max(type + width, after - BETWEEN) };
}

/** Return a geometry that is wide enough for its title and, at the right, for how often the box repeats. */
export function widened(g: Geometry, title: Title): Geometry {
  const badge = title.times === "" ? 0 : widthOf(title.times, FONT.times, "bold") + 12 + 2 * CLEAR;
  const most = Math.max(titlePlaces(g, title).end, badge === 0 ? -Infinity : Math.max(...linesInto(g), -Infinity));
  const missing = most + 8 + badge + CLEAR - g.boxRight;
  if (!(missing > 0)) return g;
  return {
    id: g.id + missing / 1e6, plan: g.plan, x: g.x, y: g.y, left: g.left, right: g.right, height: g.height, inX: g.inX, outX: g.outX,
    edges: g.edges, notes: g.notes, boxLeft: g.boxLeft, boxHeight: g.boxHeight, boxRight: g.boxRight + missing,
  };
}

/** Return the places of the lines that cross the title, from the left. */
function linesInto({ edges }: Geometry): number[] {
  const found: number[] = [];
  for (let edge = 0; edge < edges.count; edge++) if (edges.from[edge]! < 0) found.push(edges.points[edges.start[edge]!]!);
  return found.sort((a, b) => a - b);
}

/** Return the first place from one on at which words of a width are clear of all lines. */
function clear(lines: readonly number[], from: number, width: number): number {
  for (const x of lines) if (x > from - CLEAR && x < from + width + CLEAR) from = x + CLEAR + 1;
  return from;
}
