/** Columns: the rows of a tall box stand side by side, as text does in a newspaper, with lines from column to column. */

import type { Edges, Geometry, Note } from "../layout/geometry";
import { FONT, SIZE } from "../layout/sizes";
import { widthOf } from "../layout/text";

const TALL = 760; // height from which a box is broken
const RATIO = 1.9; // of height to width
const STEP = 6; // between two lines from one column to the next
const NOTE = 18; // below the last row of a column: the shape of its result
const BELOW = 4; // an item the box is cut
const CROSSED = 25; // pixels of equal heights that one line less from column to column is worth

interface Column {
  from: number; // heights in the box as it was
  to: number;
  left: number;
  right: number;
  dx: number;
  top: number;
  /** The lines that cross the cut below it, from the right. */
  crossing: number[];
}

/** Return a geometry in as many columns as it needs to be no more than twice as tall as wide. */
export function inColumns(g: Geometry): Geometry {
  if (g.boxHeight < TALL || g.boxHeight < RATIO * (g.boxLeft + g.boxRight)) return g;
  const cuts = cutsOf(g);
  let best = g;
  for (let count = 2; count <= cuts.length + 1; count++) {
    const broken = new Broken(g, chosen(cuts, count, g.boxHeight)).result();
    if (broken.boxHeight >= best.boxHeight - SIZE.gap) break; // one row is as tall as the rest
    best = broken;
    if (best.boxHeight < TALL || best.boxHeight <= RATIO * (best.boxLeft + best.boxRight)) break;
  }
  return best;
}

interface Cut { y: number; crossing: number[] }

/** Return the heights at which a box can be cut: between rows, below what stands above. */
function cutsOf(g: Geometry): Cut[] {
  const { items } = g.plan.drawn;
  const areas = items.map((item, i) => [g.y[i]!, g.y[i]! + g.height[i]! + (item.times > 1 ? 2 * SIZE.stack : 0)] as const).sort((a, b) => a[0] - b[0]);
  const cuts: Cut[] = [];
  let bottom = -Infinity;
  for (const [from, to] of areas) {
    if (from - bottom > 2 * BELOW) cuts.push({ y: bottom + BELOW, crossing: [] });
    bottom = Math.max(bottom, to);
  }
  cuts.shift(); // above the first row
  const { edges } = g;
  for (let edge = 0; edge < edges.count; edge++)
    for (let at = edges.start[edge]! + 2; at < edges.start[edge + 1]!; at += 2) {
      const [x, y0, y1] = [edges.points[at]!, edges.points[at - 1]!, edges.points[at + 1]!];
      for (const cut of cuts) if (y0 < cut.y && y1 > cut.y && !cut.crossing.some((other) => near(other, x))) cut.crossing.push(x);
    }
  for (const cut of cuts) cut.crossing.sort((a, b) => b - a);
  return cuts;
}

/** Return the cuts into columns of about the same height that few lines cross. */
function chosen(cuts: readonly Cut[], count: number, height: number): Cut[] {
  const found: Cut[] = [];
  for (let column = 1; column < count; column++) {
    const wanted = (height * column) / count;
    const cost = (cut: Cut) => Math.abs(cut.y - wanted) + CROSSED * cut.crossing.length;
    const free = cuts.filter((cut) => cut.y > (found.at(-1)?.y ?? 0));
    if (free.length === 0) break;
    found.push(free.reduce((best, cut) => (cost(cut) < cost(best) ? cut : best)));
  }
  return found;
}

const near = (one: number, two: number): boolean => Math.abs(one - two) < 0.5;

/** Moves everything in a box into its columns. */
class Broken {
  private readonly columns: Column[];
  private height = 0;

  constructor(private readonly g: Geometry, cuts: readonly Cut[]) {
    const heights = [0, ...cuts.map(({ y }) => y), g.boxHeight];
    this.columns = heights.slice(1).map((to, i) => ({ from: heights[i]!, to, left: 20, right: 20, dx: 0, top: 0, crossing: cuts[i]?.crossing ?? [] }));
    this.measure();
    this.columns.forEach((column, i) => {
      const before = this.columns[i - 1], lines = before?.crossing.length ?? 0;
      if (before !== undefined) {
        column.dx = before.dx + before.right + SIZE.side + STEP * (lines + 1) + SIZE.side + column.left;
        column.top = SIZE.head + STEP * (lines + 1);
      }
      const below = i < this.columns.length - 1 ? NOTE + STEP * column.crossing.length + SIZE.bottom : 0;
      this.height = Math.max(this.height, column.top + column.to - column.from + below);
    });
  }

  /** Set how wide the columns are. */
  private measure(): void {
    const { g } = this, widen = (y: number, left: number, right: number): void => {
      const column = this.columnOf(y);
      column.left = Math.max(column.left, -left);
      column.right = Math.max(column.right, right);
    };
    g.plan.drawn.items.forEach((item, i) => widen(g.y[i]!, g.x[i]! - g.left[i]!, g.x[i]! + g.right[i]! + (item.times > 1 ? 2 * SIZE.stack : 0)));
    for (const note of g.notes) {
      const width = widthOf(note.text, FONT.note);
      widen(note.y - NOTE + BELOW, note.align === "left" ? note.x : note.x - width, note.align === "left" ? note.x + width : note.x);
    }
    for (let at = 0; at < g.edges.points.length; at += 2) widen(g.edges.points[at + 1]!, g.edges.points[at]! - 3, g.edges.points[at]! + 3);
  }

  private columnOf(y: number): Column {
    return this.columns.find(({ to }) => y < to) ?? this.columns.at(-1)!;
  }

  result(): Geometry {
    const { g } = this, first = this.columns[0]!, last = this.columns.at(-1)!;
    const columns = g.plan.drawn.items.map((_, i) => this.columnOf(g.y[i]!));
    const notes = g.notes.map((note): Note => {
      const column = this.columnOf(note.y - NOTE + BELOW); // below its item, also where that is the last of a column
      return { ...note, x: note.x + column.dx, y: this.moved(column, note.y) };
    });
    return {
      ...{ id: -g.id, plan: g.plan, left: g.left, right: g.right, height: g.height, inX: g.inX, notes },
      x: g.x.map((x, i) => x + columns[i]!.dx),
      y: g.y.map((y, i) => this.moved(columns[i]!, y)),
      boxLeft: Math.max(first.left + SIZE.side, Math.min(g.boxLeft, first.left + 3 * SIZE.side)),
      boxRight: last.dx + last.right + SIZE.side,
      boxHeight: this.height,
      outX: g.outX.map((x) => x + last.dx),
      edges: this.edges(),
    };
  }

  private moved(column: Column, y: number): number {
    return column.top + y - column.from;
  }

  private edges(): Edges {
    const { edges } = this.g;
    const points: number[] = [];
    const start = new Int32Array(edges.count + 1);
    for (let edge = 0; edge < edges.count; edge++) {
      this.line(Array.from(edges.points.subarray(edges.start[edge]!, edges.start[edge + 1]!)), edges.to[edge]! < 0, points);
      start[edge + 1] = points.length;
    }
    return { ...edges, start, points: Float32Array.from(points) };
  }

  /** Write the corners of a line on its way through the columns. */
  private line(corners: readonly number[], leaves: boolean, points: number[]): void {
    let at = this.columns.indexOf(this.columnOf(corners[1]!));
    for (let place = 0; place < corners.length; place += 2) {
      const [x, y] = [corners[place]!, corners[place + 1]!];
      for (let column = this.columns[at]!; y > column.to; column = this.columns[++at]!) this.cross(column, this.columns[at + 1]!, x, points);
      const column = this.columns[at]!;
      points.push(x + column.dx, leaves && place === corners.length - 2 ? this.height : this.moved(column, y));
    }
  }

  /** Write how a line goes on from the foot of one column to the head of the next: lines do not cross on the way. */
  private cross(from: Column, to: Column, x: number, points: number[]): void {
    const place = from.crossing.findIndex((other) => near(other, x)), lines = from.crossing.length;
    const foot = this.moved(from, from.to) + NOTE + STEP * place;
    const between = from.dx + from.right + SIZE.side + STEP * (place + 1);
    const head = to.top - STEP * (lines - place);
    points.push(x + from.dx, foot, between, foot, between, head, x + to.dx, head);
  }
}
