/**
 * Lanes: columns in which values run down past further rows. A residual connection has one to the left of the axis.
 * Where one item reads many values from afar, as in a DenseNet, they share one: a bundle.
 */

import type { Chains } from "./chains";
import type { Plan, PortOrder } from "./plan";

const BUNDLED = 5; // values that one item reads from lanes
const BUNDLED_OUT = 3; // values that leave the box from lanes, such as a cache

/** A plan without lanes. */
export type Unlaned = Pick<Plan, "drawn" | "count" | "inputCount" | "rowCount" | "row" | "wires" | keyof Chains>;

/** Return the lane of each value, and the order in which chains are placed; lanes are added to the chains. */
export function lanesOf(plan: Unlaned, portsOf: (item: number) => PortOrder | null): { laneOf: Int32Array; order: Int32Array } {
  const { wires, count } = plan;
  const farthest = new Int32Array(wires.valueCount).fill(-2); // the last row in which each value is read from afar
  const readLeft = new Uint8Array(wires.valueCount);
  const target = new Int32Array(wires.valueCount).fill(-1); // the edge to its farthest reader
  for (let edge = 0; edge < wires.start[count + 1]!; edge++) {
    const [value, reader] = [wires.value[edge]!, wires.reader[edge]!];
    if (isMain(plan, edge)) continue;
    const row = reader === count ? plan.rowCount : plan.row[reader]!;
    if (row > farthest[value]!) [farthest[value], target[value]] = [row, edge];
    const isOnAxis = reader === count ? edge === wires.start[count] : plan.chains[plan.chainOf[reader]!]!.side <= 0;
    if (row > rowAbove(plan, value) + 1 && isOnAxis) readLeft[value] = 1;
  }
  const laneOf = new Int32Array(wires.valueCount).fill(-1);
  const owned = new Set<number>();
  const alone: number[] = [];
  for (let value = 0; value < wires.valueCount; value++) {
    const last = farthest[value]! - 1;
    if (last < rowAbove(plan, value) + 1) continue;
    const own = ownColumn(plan, value, last, owned);
    if (own >= 0) laneOf[value] = own;
    else alone.push(value);
  }
  addLanes(plan, alone, farthest, readLeft, target, laneOf, portsOf);
  return { laneOf, order: orderOf(plan, laneOf, target, portsOf) };
}

/** Does an edge run straight down in its chain? Only the first value of an item that is read there does. */
export function isMain(plan: Pick<Plan, "mainEdge" | "next" | "wires" | "count">, edge: number): boolean {
  const reader = plan.wires.reader[edge]!;
  return reader < plan.count && plan.mainEdge[reader] === edge && plan.next[plan.wires.from[edge]!] === reader;
}

function rowAbove(plan: Unlaned, value: number): number {
  const node = plan.wires.source[value]!;
  return node < plan.count ? plan.row[node]! : -1;
}

/** Return the chain in whose own column a value can run down, or -1: that of its item, or of the item below it. */
function ownColumn(plan: Unlaned, value: number, last: number, owned: Set<number>): number {
  const node = plan.wires.source[value]!;
  const below = plan.next[node]!;
  if (below >= 0) {
    const isSame = plan.wires.value[plan.mainEdge[below]!] === value;
    return isSame && last < plan.row[below]! ? plan.chainOf[below]! : -1;
  }
  const chain = node < plan.count ? plan.chainOf[node]! : -1;
  if (chain < 0 || plan.chains[chain]!.items.at(-1) !== node || owned.has(chain)) return -1;
  owned.add(chain);
  plan.chains[chain]!.last = last;
  return chain;
}

function addLanes(
  plan: Unlaned, values: number[], farthest: Int32Array, readLeft: Uint8Array, target: Int32Array, laneOf: Int32Array, portsOf: (item: number) => PortOrder | null,
): void {
  const bundles = bundlesOf(plan, values);
  const laneOfBundle = new Map<number, number>();
  for (const value of values) {
    const node = plan.wires.source[value]!;
    const chain = node < plan.count ? plan.chains[plan.chainOf[node]!]! : null;
    const fromAxis = chain === null ? node - plan.count === plan.mainInput : chain.side === 0;
    const skips = fromAxis && readLeft[value] === 1;
    const [first, last] = [rowAbove(plan, value) + 1, farthest[value]! - 1];
    const bundle = bundles.get(value);
    const known = bundle === undefined ? undefined : laneOfBundle.get(bundle);
    if (known !== undefined) {
      const lane = plan.chains[known]!;
      lane.first = Math.min(lane.first, first);
      lane.last = Math.max(lane.last, last);
      lane.values++;
      laneOf[value] = known;
      continue;
    }
    laneOf[value] = plan.chains.length;
    if (bundle !== undefined) laneOfBundle.set(bundle, plan.chains.length);
    const side = chain !== null && chain.side !== 0 ? chain.side : sideOf(plan, target[value]!, skips, portsOf);
    const beside = chain === null || chain.side !== side ? 0 : plan.chainOf[node]!;
    plan.chains.push({ items: [], first, last, side, lane: true, skips, values: 1, beside });
  }
}

/** Return the side of a lane that comes from the axis or from above: that of the port to which it leads. */
function sideOf(plan: Unlaned, edge: number, skips: boolean, portsOf: (item: number) => PortOrder | null): -1 | 1 {
  const reader = plan.wires.reader[edge]!;
  const x = reader < plan.count ? portsOf(reader)?.x[plan.wires.argument[edge]!] : undefined;
  if (x !== undefined && !Number.isNaN(x) && x !== 0) return x < 0 ? -1 : 1;
  return skips ? -1 : 1;
}

/** Return the bundle of each value that is in one: an item that reads many values from lanes joins them. */
function bundlesOf(plan: Unlaned, values: number[]): Map<number, number> {
  const parent = new Map<number, number>(values.map((value) => [value, value]));
  const find = (value: number): number => {
    let root = value;
    while (parent.get(root) !== root) root = parent.get(root)!;
    while (parent.get(value) !== root) {
      const up = parent.get(value)!;
      parent.set(value, root);
      value = up;
    }
    return root;
  };
  const joined = new Set<number>();
  const { wires, count } = plan;
  for (let reader = 0; reader <= count; reader++) {
    const read: number[] = [];
    for (let edge = wires.start[reader]!; edge < wires.start[reader + 1]!; edge++) {
      const value = wires.value[edge]!;
      const row = reader === count ? plan.rowCount : plan.row[reader]!;
      if (parent.has(value) && row > rowAbove(plan, value) + 1) read.push(value);
    }
    if (read.length < (reader === count ? BUNDLED_OUT : BUNDLED)) continue;
    for (const value of read) {
      parent.set(find(value), find(read[0]!));
      joined.add(value);
    }
  }
  return new Map([...joined].map((value) => [value, find(value)]));
}

/**
 * The shortest span stands nearest to the axis, and what stands beside a chain comes right after it. Lanes of equal span
 * to one item are in the order in which it has its ports.
 */
function orderOf(plan: Unlaned, laneOf: Int32Array, target: Int32Array, portsOf: (item: number) => PortOrder | null): Int32Array {
  const { chains } = plan;
  const port = new Float64Array(chains.length);
  for (let value = 0; value < laneOf.length; value++) {
    const edge = target[value]!;
    const lane = laneOf[value]!;
    if (edge < 0 || lane < 0 || !chains[lane]!.lane) continue;
    const reader = plan.wires.reader[edge]!;
    const x = reader < plan.count ? portsOf(reader)?.x[plan.wires.argument[edge]!] : undefined;
    port[lane] = x !== undefined && !Number.isNaN(x) ? x : edge - plan.wires.start[reader]!;
  }
  const inner = new Int32Array(chains.length); // of each chain the one next to the axis beside which it stands
  const depth = new Int32Array(chains.length);
  chains.forEach((chain, index) => {
    const isOwn = chain.beside === 0 || chains[chain.beside]!.side !== chain.side;
    inner[index] = isOwn ? index : inner[chain.beside]!;
    depth[index] = isOwn ? 0 : depth[chain.beside]! + 1;
  });
  const span = (index: number) => chains[index]!.last - chains[index]!.first;
  const byPort = (a: number, b: number) => {
    const [one, two] = [chains[a]!, chains[b]!];
    return one.lane && two.lane && one.side === two.side ? one.side * (port[a]! - port[b]!) : 0;
  };
  const order = chains.map((_, index) => index).slice(1);
  order.sort(
    (a, b) =>
      span(inner[a]!) - span(inner[b]!) || byPort(inner[a]!, inner[b]!) || inner[a]! - inner[b]! ||
      depth[a]! - depth[b]! || span(a) - span(b) || byPort(a, b) || a - b,
  );
  return Int32Array.from(order);
}
