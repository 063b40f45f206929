/** Routes of the lines in one open box: down a column, across in the gap between two rows, down again. */

import { EDGE, type Edges } from "./geometry";
import { bottomOf, exitRow, exitX, isFar, laneFor, readerRow, type Stand } from "./arrange";
import { isMain } from "./lanes";
import { columnAt } from "./place";
import { SIZE } from "./sizes";
import { assignTracks, type Crossing } from "./tracks";

const NEAR = 0.5; // what is nearer is straight
const HEAD = 12; // between the lowest line across and the row below

/** Return the lines of an arrangement. */
export function routesOf(stand: Stand): Edges {
  const router = new Router(stand);
  router.routeAll();
  return router.lines();
}

/** Return for each gap what runs across in it, with everything closed, and how many tracks it needs. */
export function acrossOf(stand: Stand): { across: { low: number; high: number; node: number }[][]; tracks: Int32Array } {
  outputsOf(stand);
  const router = new Router(stand);
  router.routeAll();
  const across = router.crossings.map((gap) => gap.map(({ low, high, key }) => ({ low, high, node: router.nodeOf(key) })));
  return { across, tracks: Int32Array.from(router.crossings, assignTracks) };
}

/** Set and return where outputs leave the box: below their line. */
export function outputsOf(stand: Stand): Float64Array {
  const { plan, entry, columns, inX } = stand;
  const { wires } = plan;
  const begin = wires.start[plan.count]!;
  const outX = new Float64Array(wires.from.length - begin);
  for (let edge = begin; edge < wires.from.length; edge++) {
    const node = wires.from[edge]!;
    const output = wires.output[wires.value[edge]!]!;
    let x: number;
    if (isFar(stand, edge)) x = columnAt(plan, columns, laneFor(plan, edge), plan.rowCount - 1);
    else x = node < plan.count ? exitX(stand, node, output) : inX[node - plan.count]!;
    entry[edge] = outX[edge - begin] = x;
  }
  return outX;
}

const NOTHING_ACROSS: Crossing[] = [];

/** Routes all lines of a box. What it notes of a line is in columns, since a body may have 100,000. */
class Router {
  /** What runs across in each gap. */
  readonly crossings: Crossing[][];
  private readonly trunk: Int32Array; // of each value the edge to its farthest reader in a lane
  private readonly begin: Float64Array; // of each edge, where it begins across
  private readonly tap: Uint8Array;
  private readonly lane: Int32Array; // -1 for those to the next row
  private readonly turnStart: Int32Array; // the turns of edge i are those from turnStart[i] on
  private readonly turnGap: number[] = [];
  private readonly turnX: number[] = [];
  private readonly turnKey: number[] = [];

  constructor(private readonly stand: Stand) {
    const { plan } = stand;
    const count = plan.wires.from.length;
    this.crossings = new Array<Crossing[]>(plan.rowCount + 1).fill(NOTHING_ACROSS);
    this.trunk = new Int32Array(plan.wires.valueCount).fill(-1);
    this.begin = new Float64Array(count);
    this.tap = new Uint8Array(count);
    this.lane = new Int32Array(count).fill(-1);
    this.turnStart = new Int32Array(count + 1);
    for (let edge = 0; edge < count; edge++) {
      if (!isFar(stand, edge)) continue;
      this.lane[edge] = laneFor(plan, edge);
      if (isMain(plan, edge)) continue;
      const value = plan.wires.value[edge]!;
      if (this.trunk[value]! < 0 || readerRow(plan, edge) > readerRow(plan, this.trunk[value]!)) this.trunk[value] = edge;
    }
  }

  routeAll(): void {
    const { length } = this.stand.plan.wires.from;
    for (let edge = 0; edge < length; edge++) {
      this.route(edge);
      this.turnStart[edge + 1] = this.turnGap.length;
    }
  }

  /** Return the item whose value a key stands for; -1 for a bundle. */
  nodeOf(key: number): number {
    const { wires, chains } = this.stand.plan;
    return key < wires.valueCount ? wires.source[key]! : Math.floor((key - wires.valueCount) / chains.length) - 1;
  }

  /** Values in one bundle run across together, and those of one item run into it together; others by themselves. */
  private keyOf(edge: number, joins: boolean): number {
    const { plan } = this.stand;
    const lane = this.lane[edge]!;
    if (lane < 0 || !plan.chains[lane]!.lane || plan.chains[lane]!.values < 2) return plan.wires.value[edge]!;
    return plan.wires.valueCount + lane + (joins ? plan.chains.length * (plan.wires.from[edge]! + 1) : 0);
  }

  private route(edge: number): void {
    const { stand } = this;
    const { plan, columns, entry, inX } = stand;
    const node = plan.wires.from[edge]!;
    const value = plan.wires.value[edge]!;
    const row = readerRow(plan, edge);
    const lane = this.lane[edge]!;
    let x = node < plan.count ? exitX(stand, node, plan.wires.output[value]!) : inX[node - plan.count]!;
    if (lane >= 0 && !isMain(plan, edge) && this.trunk[value] !== edge) {
      this.tap[edge] = 1;
      x = columnAt(plan, columns, lane, row - 1);
    }
    this.begin[edge] = x;
    let joins = this.tap[edge] === 0;
    if (lane >= 0 && joins)
      for (let inside = exitRow(stand, node) + 1; inside < row; inside++) {
        const to = columnAt(plan, columns, lane, inside);
        if (Math.abs(to - x) <= NEAR) continue;
        this.turn(edge, inside, x, to, joins);
        joins = false;
        x = to;
      }
    if (Math.abs(entry[edge]! - x) > NEAR) this.turn(edge, row, x, entry[edge]!, joins);
  }

  private turn(edge: number, gap: number, from: number, to: number, joins: boolean): void {
    const key = this.keyOf(edge, joins);
    this.turnGap.push(gap);
    this.turnX.push(to);
    this.turnKey.push(key);
    if (this.crossings[gap] === NOTHING_ACROSS) this.crossings[gap] = [];
    const known = crossingOf(this.crossings[gap]!, key);
    const [low, high] = from < to ? [from, to] : [to, from];
    if (known === null) {
      this.crossings[gap]!.push({ key, low, high, above: [from], below: [to], track: 0 });
      return;
    }
    known.low = Math.min(known.low, low);
    known.high = Math.max(known.high, high);
    known.above.push(from);
    known.below.push(to);
  }

  /** Give every line its height in each gap and return the corners of all. */
  lines(): Edges {
    const { plan } = this.stand;
    const { wires } = plan;
    const count = wires.from.length;
    const heights = this.trackHeights();
    const start = new Int32Array(count + 1);
    const points = new Float32Array(4 * count + 4 * this.turnGap.length);
    const made: Edges = {
      count, start, points,
      from: new Int32Array(count), to: new Int32Array(count), value: wires.value, flags: new Uint8Array(count), width: new Uint16Array(count),
    };
    const outputs = wires.start[plan.count]!;
    for (let edge = 0; edge < count; edge++) {
      const node = wires.from[edge]!;
      start[edge + 1] = this.corners(edge, heights, points, start[edge]!);
      made.from[edge] = node < plan.count ? node : ~(node - plan.count);
      made.to[edge] = edge < outputs ? wires.reader[edge]! : ~(edge - outputs);
      made.flags[edge] = this.flagsOf(edge);
      made.width[edge] = this.lane[edge]! >= 0 ? plan.chains[this.lane[edge]!]!.values : 1;
    }
    return made;
  }

  /** Return the height of the uppermost track of each gap, and the distance of its tracks. */
  private trackHeights(): Float64Array {
    const { plan, rowY } = this.stand;
    const heights = new Float64Array(2 * this.crossings.length);
    this.crossings.forEach((gap, index) => {
      if (gap.length === 0) return;
      const tracks = assignTracks(gap);
      const step = Math.min(SIZE.track, (plan.gap[index]! - HEAD - 4) / Math.max(1, tracks - 1));
      heights[2 * index] = rowY[index]! - (index === plan.rowCount ? 8 : HEAD) - step * (tracks - 1);
      heights[2 * index + 1] = step;
    });
    return heights;
  }

  /** Write the corners of a line from a place on; return the place after them. */
  private corners(edge: number, heights: Float64Array, points: Float32Array, place: number): number {
    const { stand } = this;
    const { plan } = stand;
    const node = plan.wires.from[edge]!;
    const reader = plan.wires.reader[edge]!;
    const row = readerRow(plan, edge);
    const bottom = bottomOf(stand);
    const [first, end] = [this.turnStart[edge]!, this.turnStart[edge + 1]!];
    let y = node < plan.count ? stand.y[node]! + stand.height[node]! : 0;
    if (this.tap[edge]) y = end > first ? this.turnY(first, heights) - SIZE.radius : stand.rowY[row]! - plan.gap[row]!;
    let x = this.begin[edge]!;
    points[place++] = x;
    points[place++] = y;
    for (let turn = first; turn < end; turn++) {
      const across = Math.min(this.turnY(turn, heights), bottom - 4);
      points[place++] = x;
      points[place++] = across;
      points[place++] = x = this.turnX[turn]!;
      points[place++] = across;
    }
    points[place++] = x;
    points[place++] = reader < plan.count ? stand.y[reader]! : bottom;
    return place;
  }

  private turnY(turn: number, heights: Float64Array): number {
    const gap = this.turnGap[turn]!;
    return heights[2 * gap]! + heights[2 * gap + 1]! * crossingOf(this.crossings[gap]!, this.turnKey[turn]!)!.track;
  }

  private flagsOf(edge: number): number {
    const { plan, open } = this.stand;
    const reader = plan.wires.reader[edge]!;
    const lane = this.lane[edge]! >= 0 ? plan.chains[this.lane[edge]!]! : null;
    const inside = open.get(reader);
    let flags = 0;
    if (lane?.skips) flags |= EDGE.SKIPS;
    if (lane?.lane && lane.values > 1) flags |= EDGE.BUNDLE;
    if (this.tap[edge]) flags |= EDGE.TAP;
    if (reader === plan.count) flags |= EDGE.OUT;
    if (inside !== undefined) flags |= inside.plan.isRead[plan.wires.argument[edge]!] ? EDGE.INTO_OPEN : EDGE.UNREAD;
    return flags;
  }
}

function crossingOf(gap: Crossing[], key: number): Crossing | null {
  for (const one of gap) if (one.key === key) return one;
  return null;
}
