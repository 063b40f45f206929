/**
 * Chains: items that stand in one column, one below the other. The first is the axis: from the first output back along
 * the data; what is left makes branches beside it.
 */

import type { Drawn } from "../fold";
import type { PortOrder, Wires } from "./plan";

export interface Chain {
  items: number[]; // downwards; empty for a lane
  /** Rows that it occupies, from `first` to `last`, together with the line to the reader of its last value. */
  first: number;
  last: number;
  side: -1 | 0 | 1;
  /** A lane has no items: values run down in it. `skips`: it leaves the axis and comes back to it. */
  lane: boolean;
  skips: boolean;
  /** How many values run in it, where it is a bundle. */
  values: number;
  /** The chain beside which it stands, further out: the one that it meets; 0 for the axis. */
  beside: number;
}

export interface Chains {
  chains: Chain[];
  chainOf: Int32Array;
  /** The edge by which each item continues its chain; -1 where it begins one. */
  mainEdge: Int32Array;
  /** The item below each item or input in its chain; -1 where there is none. */
  next: Int32Array;
  /** The input on the axis; -1 where there is none. */
  mainInput: number;
}

const BIG_SHARE = 16; // an argument of an operation is big with at least this part of the largest one's elements
const ABOUT_EQUAL = 2; // rows
const MOST_LOOKED_INTO = 400; // items of a body whose calls are looked into, so that they are not all planned at once
// what makes an argument better, most important first
const CONNECTED = 8;
const FROM_FIRST = 4;
const FITTING = 2;

/** Return the chains of a body, the axis first. */
export function chainsOf(
  drawn: Drawn,
  wires: Wires,
  row: Int32Array,
  floating: Uint8Array,
  portsOf: (item: number) => PortOrder | null,
): Chains {
  const growing = new Growing(drawn, wires, row, floating, portsOf);
  growing.all();
  const { chains, chainOf, mainEdge, next } = growing;
  const top = chains.length > 0 ? mainEdge[chains[0]!.items[0]!]! : -1;
  const node = top < 0 ? -1 : wires.from[top]!;
  const mainInput = node >= drawn.items.length ? node - drawn.items.length : drawn.inputs.length > 0 ? 0 : -1;
  const result = { chains, chainOf, mainEdge, next, mainInput };
  setSides(drawn.items.length, wires, result, portsOf);
  return result;
}

class Growing {
  readonly chains: Chain[] = [];
  readonly chainOf: Int32Array;
  readonly mainEdge: Int32Array;
  readonly next: Int32Array;
  private readonly fromFirst: Uint8Array; // does it depend on the first input?
  private readonly elements = new Map<string, number>();

  constructor(
    private readonly drawn: Drawn,
    private readonly wires: Wires,
    private readonly row: Int32Array,
    private readonly floating: Uint8Array,
    private readonly portsOf: (item: number) => PortOrder | null,
  ) {
    const count = drawn.items.length;
    this.chainOf = new Int32Array(count).fill(-1);
    this.mainEdge = new Int32Array(count).fill(-1);
    this.next = new Int32Array(count + drawn.inputs.length).fill(-1);
    this.fromFirst = new Uint8Array(count);
    for (let item = 0; item < count; item++)
      for (let edge = wires.start[item]!; edge < wires.start[item + 1]!; edge++) {
        const node = wires.from[edge]!;
        if (node === count || (node < count && this.fromFirst[node])) this.fromFirst[item] = 1;
      }
  }

  all(): void {
    const count = this.drawn.items.length;
    if (count === 0) return;
    const returned = this.drawn.outputs[0]?.from ?? -1;
    this.grow(returned >= 0 ? returned : count - 1);
    for (let item = count - 1; item >= 0; item--) if (this.chainOf[item]! < 0) this.grow(item);
  }

  /** Add the chain that ends with an item. */
  private grow(end: number): void {
    const count = this.drawn.items.length;
    const items: number[] = [];
    for (let item = end; ; ) {
      this.chainOf[item] = this.chains.length;
      items.push(item);
      if (this.wires.from.length === 0 && item > 0) {
        item--; // no wires are known: one column, as they ran
        continue;
      }
      const edge = this.bestEdge(item);
      if (edge < 0) break;
      this.mainEdge[item] = edge;
      const node = this.wires.from[edge]!;
      if (node >= count) break;
      this.next[node] = item;
      item = node;
    }
    items.reverse();
    const top = items[0]!;
    const edge = this.mainEdge[top]!;
    let first = this.row[top]!;
    if (edge >= 0 && first > 0 && this.next[this.wires.from[edge]!]! < 0) {
      this.next[this.wires.from[edge]!] = top; // an input that comes down in this column
      first = 0;
    }
    this.chains.push({ items, first, last: this.row[end]!, side: 0, lane: false, skips: false, values: 1, beside: 0 });
  }

  /**
   * Return the edge by which a chain goes on upwards: of the best arguments the longest path; where paths are about
   * equally long and none leads through another, the first, of three or more the one in the middle.
   */
  private bestEdge(item: number): number {
    const { wires } = this;
    const [begin, end] = [wires.start[item]!, wires.start[item + 1]!];
    const isCall = this.drawn.items[item]!.type !== "";
    const main = isCall ? this.mainArgument(item) : -1;
    let most = 0;
    if (!isCall) for (let edge = begin; edge < end; edge++) most = Math.max(most, this.elementsOf(wires.from[edge]!));
    let best: number[] = [];
    let highest = 0;
    for (let edge = begin; edge < end; edge++) {
      const node = wires.from[edge]!;
      if (node < this.count && this.chainOf[node]! >= 0) continue;
      const fits = isCall ? wires.argument[edge] === main : this.elementsOf(node) * BIG_SHARE >= most;
      const rank = this.rankOf(node) + (fits ? FITTING : 0) + 1;
      if (rank > highest) [best, highest] = [[edge], rank];
      else if (rank === highest && !best.some((one) => wires.from[one] === node)) best.push(edge);
    }
    if (best.length < 2) return best[0] ?? -1;
    const deepest = Math.max(...best.map((edge) => this.rowOf(wires.from[edge]!)));
    best = best.filter((edge) => this.rowOf(wires.from[edge]!) >= deepest - ABOUT_EQUAL);
    best = best.filter((edge) => !best.some((other) => other !== edge && this.leadsTo(wires.from[edge]!, wires.from[other]!)));
    return best.length > 2 ? best[best.length >> 1]! : best[0]!;
  }

  private get count(): number {
    return this.drawn.items.length;
  }

  private rowOf(node: number): number {
    return node < this.count ? this.row[node]! : -1;
  }

  /** Return how well a chain goes on in an item or input, whatever the length of its path. */
  private rankOf(node: number): number {
    const isConnected = node >= this.count || !this.floating[node];
    const isFromFirst = node === this.count || (node < this.count && this.fromFirst[node] === 1);
    return (isConnected ? CONNECTED : 0) + (isFromFirst ? FROM_FIRST : 0);
  }

  /** Does a path lead from one node to another that is at most a few rows below it? */
  private leadsTo(from: number, to: number): boolean {
    if (to >= this.count || this.rowOf(from) >= this.rowOf(to)) return false;
    const { wires } = this;
    for (let edge = wires.start[to]!; edge < wires.start[to + 1]!; edge++)
      if (wires.from[edge] === from || this.leadsTo(from, wires.from[edge]!)) return true;
    return false;
  }

  /** Return the argument that goes on inside of a call on its axis; in very large bodies the first is taken for it. */
  private mainArgument(item: number): number {
    const ports = this.count > MOST_LOOKED_INTO ? null : this.portsOf(item);
    if (ports !== null && ports.main >= 0) {
      for (let edge = this.wires.start[item]!; edge < this.wires.start[item + 1]!; edge++)
        if (this.wires.argument[edge] === ports.main) return ports.main;
    }
    return this.wires.argument[this.wires.start[item]!] ?? -1;
  }

  private elementsOf(node: number): number {
    const count = this.drawn.items.length;
    const shape = (node < count ? this.drawn.items[node]!.shape : this.drawn.inputs[node - count]?.shape) ?? "";
    let elements = this.elements.get(shape);
    if (elements === undefined) {
      elements = shape === "" ? 0 : shape.split("×").reduce((product, size) => product * Number(size), 1);
      this.elements.set(shape, Number.isFinite(elements) ? elements : (elements = 0));
    }
    return elements;
  }
}

/** A branch stands left or right of the axis as in the argument list of what it meets; branches of branches outside. */
function setSides(count: number, wires: Wires, made: Chains, portsOf: (item: number) => PortOrder | null): void {
  const { chains, chainOf, mainEdge, mainInput } = made;
  const meets = new Int32Array(chains.length).fill(-1); // the edge by which a chain's last item goes on
  for (let edge = 0; edge < wires.start[count]!; edge++) {
    const node = wires.from[edge]!;
    if (node >= count || chainOf[node] === chainOf[wires.reader[edge]!]) continue;
    if (chains[chainOf[node]!]!.items.at(-1) === node) meets[chainOf[node]!] = edge;
  }
  for (let chain = 1; chain < chains.length; chain++) {
    const edge = meets[chain]!;
    let side: -1 | 1 = 1;
    if (edge >= 0) {
      const reader = wires.reader[edge]!;
      const outer = chains[chainOf[reader]!]!.side;
      if (chainOf[reader]! < chain) chains[chain]!.beside = chainOf[reader]!;
      side = outer !== 0 ? outer : placeOf(edge) < placeOf(mainEdge[reader]!) ? -1 : 1;
    }
    chains[chain]!.side = side;
  }
  for (let chain = chains.length - 1; chain > 0; chain--) {
    const one = chains[chain]!;
    if (one.side < 0 && one.items.some((item) => isFedFromRight(item, chain))) one.side = 1;
  }

  function placeOf(edge: number): number {
    if (edge < 0) return 0;
    const ports = portsOf(wires.reader[edge]!);
    const x = ports?.x[wires.argument[edge]!];
    return x !== undefined && !Number.isNaN(x) ? x : edge - wires.start[wires.reader[edge]!]!;
  }

  function isFedFromRight(item: number, chain: number): boolean {
    for (let edge = wires.start[item]!; edge < wires.start[item + 1]!; edge++) {
      const node = wires.from[edge]!;
      if (node >= count ? node - count !== mainInput : chainOf[node] !== chain && chains[chainOf[node]!]!.side > 0) return true;
    }
    return false;
  }
}
