/**
 * The plan of a body, made once and independent of what is open: the row of each item, the chains that stand in one
 * column, their sides, the lanes of values that are read further down. Inputs are numbered after the items.
 */

import type { Drawn } from "../fold";
import { chainsOf, type Chains } from "./chains";
import { lanesOf } from "./lanes";
import { standOf } from "./arrange";
import { acrossOf } from "./routes";
import { type Face, faceOf, SIZE } from "./sizes";

/** The edges of a body as columns. Those of item `i` are `start[i] … start[i + 1]`; outputs are those of item `n`. */
export interface Wires {
  start: Int32Array;
  /** The item that made the value, or `n + input`. */
  from: Int32Array;
  /** The number of the value: one for each output of an item that is read. */
  value: Int32Array;
  argument: Int32Array;
  reader: Int32Array; // `n` for outputs
  /** Of each value: the item (or input) that made it, and which of its outputs it is. */
  source: Int32Array;
  output: Int32Array;
  valueCount: number;
}

/** What a child says about the order of its inputs: their places from left to right, and which is on its axis. */
export interface PortOrder {
  x: Float64Array;
  main: number;
}

export interface Plan extends Chains {
  drawn: Drawn;
  count: number; // items
  inputCount: number;
  rowCount: number;
  row: Int32Array;
  wires: Wires;
  faces: Face[];
  half: Float64Array;
  height: Float64Array;
  rowHeight: Float64Array;
  /** Of each value the chain in which it runs down past further rows; -1 where it does not. */
  laneOf: Int32Array;
  /** Chains from the axis outward, in the order in which they are placed. */
  order: Int32Array;
  /** Distance of each chain from the axis with everything closed. */
  column: Float64Array;
  /** Height of the gap above each row, and below the last. */
  gap: Float64Array;
  /** What runs across in each gap with everything closed; `node` made the value, -1 for a bundle. */
  across: { low: number; high: number; node: number }[][];
  /** The readers of item `i` are `readers[readersStart[i]] …`. */
  readersStart: Int32Array;
  readers: Int32Array;
  /** Is each input read? */
  isRead: Uint8Array;
  /** Where inputs enter with everything closed; null until it is asked for. */
  closedInputs: Float64Array | null;
  /** Geometries that were made of this plan, by what is open in them. */
  memo: Map<string, unknown>;
}

export const rowOf = (plan: { count: number; row: Int32Array }, node: number): number => (node < plan.count ? plan.row[node]! : -1);

/** Return the rows, chains and lanes of a body. `portsOf` tells the order of a child's inputs, `lines` as in `faceOf`. */
export function planOf(drawn: Drawn, portsOf: (item: number) => PortOrder | null, lines: number): Plan {
  const count = drawn.items.length;
  const wires = wiresOf(drawn);
  const { row, rowCount, floating } = rowsOf(count, wires);
  const faces = drawn.items.map((item) => faceOf(item, lines));
  const half = Float64Array.from(faces, (face) => face.half);
  const height = Float64Array.from(faces, (face) => face.height);
  const chains = chainsOf(drawn, wires, row, floating, portsOf);
  const base = { drawn, count, inputCount: drawn.inputs.length, rowCount, row, wires, faces, half, height, ...chains };
  const { laneOf, order } = lanesOf(base, portsOf);
  const plan: Plan = {
    ...base,
    ...readersOf(count, drawn.inputs.length, wires),
    laneOf,
    order,
    rowHeight: rowHeights(rowCount, row, height),
    column: new Float64Array(base.chains.length),
    gap: new Float64Array(rowCount + 1).fill(SIZE.gap),
    across: [],
    closedInputs: null,
    memo: new Map(),
  };
  settle(plan);
  return plan;
}

/** Set the columns and gaps of a plan, as they are with everything closed. */
function settle(plan: Plan): void {
  const { across, tracks } = acrossOf(standOf(plan, new Map(), plan.column, true));
  plan.across = across;
  for (let gap = 0; gap <= plan.rowCount; gap++)
    plan.gap[gap] = Math.min(SIZE.mostGap, SIZE.gap + SIZE.track * Math.max(0, tracks[gap]! - 1));
}

function readersOf(count: number, inputCount: number, wires: Wires): Pick<Plan, "readersStart" | "readers" | "isRead"> {
  const readersStart = new Int32Array(count + 1);
  const isRead = new Uint8Array(inputCount);
  for (const node of wires.from) {
    if (node < count) readersStart[node + 1]!++;
    else isRead[node - count] = 1;
  }
  for (let item = 0; item < count; item++) readersStart[item + 1]! += readersStart[item]!;
  const next = readersStart.slice();
  const readers = new Int32Array(readersStart[count]!);
  wires.from.forEach((node, edge) => {
    if (node < count) readers[next[node]!++] = wires.reader[edge]!;
  });
  return { readersStart, readers, isRead };
}

function wiresOf(drawn: Drawn): Wires {
  const count = drawn.items.length;
  const nodes = count + drawn.inputs.length;
  const edgeCount = drawn.items.reduce((sum, item) => sum + item.edges.length, 0) + drawn.outputs.length;
  const start = new Int32Array(count + 2);
  const from = new Int32Array(edgeCount);
  const value = new Int32Array(edgeCount);
  const argument = new Int32Array(edgeCount);
  const reader = new Int32Array(edgeCount);
  const first = new Int32Array(nodes).fill(-1); // the first value of each node; its others are in `others`
  const others = new Map<number, number[]>();
  const source: number[] = [];
  const output: number[] = [];
  const numberOf = (node: number, which: number): number => {
    const known = first[node]!;
    if (known >= 0 && output[known] === which) return known;
    const rest = known < 0 ? undefined : others.get(node)?.find((one) => output[one] === which);
    if (rest !== undefined) return rest;
    const number = source.length;
    source.push(node);
    output.push(which);
    if (known < 0) first[node] = number;
    else others.set(node, [...(others.get(node) ?? []), number]);
    return number;
  };
  let next = 0;
  const add = (origin: number, which: number, place: number, item: number) => {
    const node = origin >= 0 ? origin : count + ~origin;
    from[next] = node;
    value[next] = numberOf(node, which);
    argument[next] = place;
    reader[next++] = item;
  };
  drawn.items.forEach((item, index) => {
    start[index] = next;
    for (const edge of item.edges) add(edge.from, edge.output, edge.argument, index);
  });
  start[count] = next;
  drawn.outputs.forEach((one, place) => add(one.from, one.output, place, count));
  start[count + 1] = next;
  return {
    start, from, value, argument, reader,
    source: Int32Array.from(source), output: Int32Array.from(output), valueCount: source.length,
  };
}

/** Rows by the longest path; what hangs on no input sinks to just above its first reader. Without any wires: as they ran. */
function rowsOf(count: number, wires: Wires): { row: Int32Array; rowCount: number; floating: Uint8Array } {
  const row = new Int32Array(count);
  const floating = new Uint8Array(count).fill(1);
  if (wires.from.length === 0) return { row: row.map((_, item) => item), rowCount: count, floating };
  for (let item = 0; item < count; item++) {
    for (let edge = wires.start[item]!; edge < wires.start[item + 1]!; edge++) {
      const node = wires.from[edge]!;
      if (node >= count) floating[item] = 0;
      else {
        row[item] = Math.max(row[item]!, row[node]! + 1);
        if (!floating[node]) floating[item] = 0;
      }
    }
  }
  const firstUse = new Int32Array(count).fill(-1);
  let rowCount = 0;
  for (let item = count - 1; item >= 0; item--) {
    if (floating[item] && firstUse[item]! >= 0) row[item] = Math.max(row[item]!, firstUse[item]! - 1);
    rowCount = Math.max(rowCount, row[item]! + 1);
    for (let edge = wires.start[item]!; edge < wires.start[item + 1]!; edge++) {
      const node = wires.from[edge]!;
      if (node < count && (firstUse[node]! < 0 || row[item]! < firstUse[node]!)) firstUse[node] = row[item]!;
    }
  }
  return { row, rowCount, floating };
}

function rowHeights(rowCount: number, row: Int32Array, height: Float64Array): Float64Array {
  const heights = new Float64Array(rowCount).fill(SIZE.row);
  row.forEach((place, item) => (heights[place] = Math.max(heights[place]!, height[item]!)));
  return heights;
}
