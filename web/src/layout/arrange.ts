/** Arranges one open box: heights of its rows, places of its items and ports. `routes.ts` draws the lines. */

import type { Edges, Geometry, Note } from "./geometry";
import { type Box, notesOf } from "./notes";
import { type Columns, columnAt, type Extents, placeChains } from "./place";
import { isMain } from "./lanes";
import type { Plan } from "./plan";
import { outputsOf, routesOf } from "./routes";
import { SIZE } from "./sizes";

/** What an arrangement is made of: a plan, and the geometries of what is open in it. */
export interface Opened {
  plan: Plan;
  open: ReadonlyMap<number, Geometry>;
  /** Width of the title of the box, and on which side of its parent's axis the box stands. */
  title: number;
  side: number;
  /** Chains keep one distance from the axis, whatever is open: for pictures, in which nothing is opened. */
  straight: boolean;
  isRoot: boolean;
}

/** An arrangement in the making: everything but the lines. */
export interface Stand {
  plan: Plan;
  open: ReadonlyMap<number, Geometry>;
  extents: Extents;
  columns: Columns;
  height: Float64Array;
  x: Float64Array;
  y: Float64Array;
  rowY: Float64Array; // upper borders of the rows; the last is the lower border of the last gap
  rowHeight: Float64Array;
  /** Where each edge enters its reader; of outputs, where they leave the box. */
  entry: Float64Array;
  inX: Float64Array;
}

let made = 0;

/** Return the geometry of an open box; equal boxes with equal insides share one. */
export function arrange({ plan, open, title, side, straight, isRoot }: Opened): Geometry {
  let key = `${title}:${side}${isRoot ? "r" : ""}`;
  for (const [item, inside] of open) key += `,${item}:${inside.id}`;
  const known = plan.memo.get(key) as Geometry | undefined;
  if (known !== undefined) return known;
  const stand = standOf(plan, open, straight ? new Float64Array(plan.chains.length) : plan.column, straight);
  const outX = outputsOf(stand);
  const geometry = new Arranged(stand, boxOf(stand, title, side), outX, isRoot);
  if (plan.memo.size > 64) plan.memo.clear();
  plan.memo.set(key, geometry);
  return geometry;
}

class Arranged implements Geometry {
  readonly id = ++made;
  readonly plan: Plan;
  readonly x: Float64Array;
  readonly y: Float64Array;
  readonly left: Float64Array;
  readonly right: Float64Array;
  readonly height: Float64Array;
  readonly boxLeft: number;
  readonly boxRight: number;
  readonly boxHeight: number;
  readonly inX: Float64Array;
  private madeEdges: Edges | null = null;
  private madeNotes: Note[] | null = null;

  constructor(private readonly stand: Stand, private readonly box: Box, readonly outX: Float64Array, private readonly isRoot: boolean) {
    ({ plan: this.plan, x: this.x, y: this.y, height: this.height, inX: this.inX } = stand);
    ({ left: this.left, right: this.right } = stand.extents);
    ({ boxLeft: this.boxLeft, boxRight: this.boxRight, boxHeight: this.boxHeight } = box);
  }

  get edges(): Edges {
    return (this.madeEdges ??= routesOf(this.stand));
  }

  get notes(): Note[] {
    return (this.madeNotes ??= notesOf(this.stand, this.edges, this.box, this.isRoot));
  }
}

/** Place the rows, columns and ports of a box. */
export function standOf(plan: Plan, open: ReadonlyMap<number, Geometry>, column: Float64Array, straight: boolean): Stand {
  const { left, right, height } = sizesOf(plan, open);
  const limits = new Int32Array(plan.row);
  for (const item of open.keys()) limits[item] = rowLimit(plan, item);
  const { rowY, rowHeight, lastRow } = rowsOf(plan, open, height, limits);
  const extents = { left, right, lastRow };
  const columns = placeChains(plan, extents, column, straight);
  const x = new Float64Array(plan.count);
  const y = new Float64Array(plan.count);
  for (let item = 0; item < plan.count; item++) {
    const row = plan.row[item]!;
    x[item] = columnAt(plan, columns, plan.chainOf[item]!, row);
    y[item] = rowY[row]! + (open.has(item) ? 0 : (plan.rowHeight[row]! - height[item]!) / 2);
  }
  const stand: Stand = {
    plan, open, extents, columns, height, x, y, rowY, rowHeight,
    entry: new Float64Array(plan.wires.from.length), inX: new Float64Array(plan.inputCount).fill(NaN),
  };
  setEntries(stand);
  setInputs(stand);
  return stand;
}

function sizesOf(plan: Plan, open: ReadonlyMap<number, Geometry>): { left: Float64Array; right: Float64Array; height: Float64Array } {
  if (open.size === 0) return { left: plan.half, right: plan.half, height: plan.height };
  const sizes = { left: Float64Array.from(plan.half), right: Float64Array.from(plan.half), height: Float64Array.from(plan.height) };
  for (const [item, inside] of open) {
    sizes.left[item] = Math.max(plan.half[item]!, inside.boxLeft);
    sizes.right[item] = Math.max(plan.half[item]!, inside.boxRight + sheetsOf(plan, item));
    sizes.height[item] = inside.boxHeight;
  }
  return sizes;
}

/** Return how far the sheets behind an open item stand out to the right and below. */
function sheetsOf(plan: Plan, item: number): number {
  return plan.drawn.items[item]!.times > 1 ? 2 * SIZE.stack : 0;
}

/** Return the last row into which an open item may reach down: above its readers, and above lines across its column. */
function rowLimit(plan: Plan, item: number): number {
  const chain = plan.chains[plan.chainOf[item]!]!;
  let limit = chain.last;
  const below = chain.items[chain.items.indexOf(item) + 1];
  if (below !== undefined) limit = Math.min(limit, plan.row[below]! - 1);
  const from = plan.readersStart[item]!;
  for (let place = from; place < plan.readersStart[item + 1]!; place++) {
    const reader = plan.readers[place]!;
    limit = Math.min(limit, (reader === plan.count ? plan.rowCount : plan.row[reader]!) - 1);
  }
  const column = columnOf(plan, item);
  for (let gap = plan.row[item]! + 1; gap <= limit; gap++)
    for (const one of plan.across[gap] ?? []) if (one.node !== item && one.low < column && one.high > column) return gap - 1;
  return Math.max(limit, plan.row[item]!);
}

function columnOf(plan: Plan, item: number): number {
  const chain = plan.chainOf[item]!;
  return plan.chains[chain]!.side * plan.column[chain]!;
}

/** Heights of rows. An open item may reach into rows that are free below it, so that its neighbours stay together. */
function rowsOf(plan: Plan, open: ReadonlyMap<number, Geometry>, height: Float64Array, limits: Int32Array) {
  const rowHeight = Float64Array.from(plan.rowHeight);
  const lastRow = Int32Array.from(plan.row);
  const rowY = new Float64Array(plan.rowCount + 1);
  const ending = new Map<number, number[]>(); // open items by the last row that they may reach
  const items = [...open.keys()];
  for (const item of items) ending.set(limits[item]!, [...(ending.get(limits[item]!) ?? []), item]);
  const tall = (item: number) => height[item]! + sheetsOf(plan, item);
  let y = SIZE.head + SIZE.top - SIZE.gap;
  for (let row = 0; row <= plan.rowCount; row++) {
    y += plan.gap[row]!;
    rowY[row] = y;
    if (row === plan.rowCount) break;
    for (const item of ending.get(row) ?? []) rowHeight[row] = Math.max(rowHeight[row]!, rowY[plan.row[item]!]! + tall(item) - y);
    y += rowHeight[row]!;
  }
  for (const item of items) {
    const bottom = rowY[plan.row[item]!]! + tall(item);
    let row = plan.row[item]!;
    while (row < limits[item]! && rowY[row]! + rowHeight[row]! < bottom - 0.01) row++;
    lastRow[item] = row;
  }
  return { rowY, rowHeight, lastRow };
}

// Ports ------------------------------------------------------------------------------------------------------------------

/** Return the row below which the line of a node may leave its column. */
export function exitRow(stand: Stand, node: number): number {
  return node < stand.plan.count ? stand.extents.lastRow[node]! : -1;
}

/** Return the place where an output of an item leaves it. */
export function exitX(stand: Stand, node: number, output: number): number {
  const inside = stand.open.get(node);
  const x = stand.x[node]!;
  return inside === undefined ? x : x + (inside.outX[output] ?? inside.outX[0] ?? 0);
}

/** Is the reader of an edge further down than the next row? */
export function isFar(stand: Stand, edge: number): boolean {
  const { plan } = stand;
  const node = plan.wires.from[edge]!;
  return readerRow(plan, edge) > (node < plan.count ? plan.row[node]! : -1) + 1;
}

export function readerRow(plan: Plan, edge: number): number {
  const reader = plan.wires.reader[edge]!;
  return reader === plan.count ? plan.rowCount : plan.row[reader]!;
}

/** Return the chain in which the value of an edge runs down to its reader; only for far ones. */
export function laneFor(plan: Plan, edge: number): number {
  return isMain(plan, edge) ? plan.chainOf[plan.wires.reader[edge]!]! : plan.laneOf[plan.wires.value[edge]!]!;
}

/** Set where edges enter items: the chain in the middle, the others in the order in which they come. */
function setEntries(stand: Stand): void {
  const { plan, open, entry, x } = stand;
  const { wires } = plan;
  for (let item = 0; item < plan.count; item++) {
    const [begin, end] = [wires.start[item]!, wires.start[item + 1]!];
    const inside = open.get(item);
    if (inside !== undefined) {
      for (let edge = begin; edge < end; edge++) entry[edge] = x[item]! + (inside.inX[wires.argument[edge]!] ?? 0);
    } else if (end - begin === 1) entry[begin] = x[item]!;
    else if (end > begin) spreadEntries(stand, item, begin, end);
  }
}

interface Arrival {
  edge: number;
  x: number; // where its line comes from
  lane: number; // of a bundle; -1 otherwise
}

function spreadEntries(stand: Stand, item: number, begin: number, end: number): void {
  const { plan, entry, x } = stand;
  const own = x[item]!;
  const arrivals: Arrival[] = [];
  const sharing = new Map<number, number>(); // bundle → the edge whose entry the others share
  let main = -1;
  for (let edge = begin; edge < end; edge++) {
    const far = isFar(stand, edge);
    const lane = far ? laneFor(plan, edge) : -1;
    if (main < 0 && plan.mainEdge[item] === edge && (!far || lane === plan.chainOf[item])) {
      main = edge;
      entry[edge] = own;
      continue;
    }
    const bundled = lane >= 0 && plan.chains[lane]!.values > 1 ? lane : -1;
    if (bundled >= 0 && sharing.has(bundled)) continue;
    if (bundled >= 0) sharing.set(bundled, edge);
    arrivals.push({ edge, x: arrivalX(stand, edge, far, lane), lane: bundled });
  }
  spread(arrivals, own, plan.half[item]!, main >= 0, entry);
  if (sharing.size === 0) return;
  for (let edge = begin; edge < end; edge++) {
    const first = isFar(stand, edge) ? sharing.get(laneFor(plan, edge)) : undefined;
    if (first !== undefined && edge !== main) entry[edge] = entry[first]!;
  }
}

/** Set the entries of arrivals in the order in which they come, around the middle, which is free or taken. */
function spread(arrivals: Arrival[], own: number, half: number, isTaken: boolean, entry: Float64Array): void {
  arrivals.sort((a, b) => a.x - b.x || a.edge - b.edge);
  const room = half - 8;
  const left = arrivals.findIndex((one) => one.x >= own);
  const before = left < 0 ? arrivals.length : left; // those that come from the left
  const most = isTaken ? Math.max(before, arrivals.length - before) : (arrivals.length - 1) / 2;
  const step = Math.min(SIZE.port, room / Math.max(most, 0.5));
  arrivals.forEach((one, place) => {
    const wanted = own + step * (isTaken ? (place < before ? place - before : place - before + 1) : place - most);
    const isNear = Math.abs(wanted - one.x) < step * 0.45 && Math.abs(one.x - own) < half - 6; // no tiny jogs
    entry[one.edge] = isNear ? one.x : wanted;
  });
}

const BEYOND = 1e4; // inputs have no place yet: those before the main one come from the left

function arrivalX(stand: Stand, edge: number, far: boolean, lane: number): number {
  const { plan } = stand;
  const node = plan.wires.from[edge]!;
  if (far) return columnAt(plan, stand.columns, lane, readerRow(plan, edge) - 1);
  if (node < plan.count) return exitX(stand, node, plan.wires.output[plan.wires.value[edge]!]!);
  const input = node - plan.count;
  return input === plan.mainInput ? 0 : input + (input > plan.mainInput ? BEYOND : -BEYOND);
}

const APART = 8; // between two inputs of a box

/** Set where inputs enter the box: straight above their first reader in the first row, otherwise above their lane. */
function setInputs(stand: Stand): void {
  const { plan, entry, inX, columns } = stand;
  const { wires } = plan;
  const wanted: [number, number][] = []; // place, input
  const seen = new Uint8Array(plan.inputCount);
  const laneX = new Float64Array(plan.inputCount).fill(NaN);
  for (let edge = 0; edge < wires.from.length; edge++) {
    const input = wires.from[edge]! - plan.count;
    if (input < 0) continue;
    if (isFar(stand, edge)) {
      if (Number.isNaN(laneX[input]!)) laneX[input] = columnAt(plan, columns, laneFor(plan, edge), 0);
    } else if (!seen[input] && wires.reader[edge]! < plan.count) {
      seen[input] = 1;
      wanted.push([entry[edge]!, input]);
    }
  }
  for (let input = 0; input < plan.inputCount; input++)
    if (!seen[input] && !Number.isNaN(laneX[input]!)) wanted.push([laneX[input]!, input]);
  if (plan.mainInput >= 0) {
    const known = wanted.find((one) => one[1] === plan.mainInput);
    if (known !== undefined) known[0] = 0;
  }
  spreadInputs(wanted, inX, plan.mainInput);
  let unread = 0;
  for (let input = 0; input < plan.inputCount; input++)
    if (Number.isNaN(inX[input]!)) inX[input] = unreadPlace(inX, ++unread);
}

/** Give inputs different places: outward from the axis, each at least a little further out than the one before. */
function spreadInputs(wanted: [number, number][], inX: Float64Array, main: number): void {
  for (const side of [1, -1]) {
    const here = wanted.filter(([x, input]) => input !== main && (side > 0 ? x >= 0 : x < 0)).sort((a, b) => side * (a[0] - b[0]) || a[1] - b[1]);
    let last = wanted.some(([, input]) => input === main) ? 0 : -APART;
    for (const [x, input] of here) {
      last = Math.max(side * x, last + APART);
      inX[input] = side * last;
    }
  }
  for (const [x, input] of wanted) if (input === main) inX[input] = x;
}

/** What is not read enters right of everything else. */
function unreadPlace(inX: Float64Array, place: number): number {
  let most = 0;
  for (const x of inX) if (x > most) most = x;
  return Math.max(most, 12 * place) + 12;
}

/** Return the extents of the box: room for what is in it and for its title, which grows away from the parent's axis. */
function boxOf(stand: Stand, title: number, side: number): Box {
  const { plan, columns, inX } = stand;
  let [left, right] = [20, 20];
  for (let row = 0; row < plan.rowCount; row++) {
    left = Math.max(left, columns.left[row]!);
    right = Math.max(right, columns.right[row]!);
  }
  for (const x of inX) {
    left = Math.max(left, -x);
    right = Math.max(right, x);
  }
  left += SIZE.side;
  right += SIZE.side;
  const missing = Math.max(0, title + 40 - left - right);
  if (side > 0) right += missing;
  else if (side < 0) left += missing;
  else {
    left += missing / 2;
    right += missing / 2;
  }
  return { boxLeft: left, boxRight: right, boxHeight: bottomOf(stand) };
}

/** Return the lower border of the box; where several lines leave it side by side there is more room above it. */
export function bottomOf({ plan, rowY }: Stand): number {
  const last = plan.gap[plan.rowCount]!;
  const below = plan.rowCount > 0 ? rowY[plan.rowCount]! - last : SIZE.head + 8;
  return below + SIZE.bottom + (last - SIZE.gap) * 0.7;
}
