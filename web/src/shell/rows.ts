// The rows of the tree: calls, and the operations of those that are expanded, in execution order. Columns, no objects:
// a run of 100,000 calls is expanded as a whole in some milliseconds.

import { ITEM_KINDS, type Run } from "../payload";
import type { Place } from "../state";

const CALL = ITEM_KINDS.indexOf("call");
const STRUCTURE = ITEM_KINDS.indexOf("structure");

const FIRST_ROWS = 60; // that are shown at the beginning

export class Rows {
  count = 0;
  call = new Int32Array(256);
  item = new Int32Array(256); // -1 for a call
  level = new Int32Array(256); // 1 for the root
  position = new Int32Array(256); // among its siblings, from 1
  siblings = new Int32Array(256);

  private readonly expanded = new Set<number>();
  private readonly shown = new Set<string>(); // items that have a row although they are of no tensors: chosen ones
  private readonly itemsOf = new Map<number, number>(); // by body: items that are rows, without calls

  constructor(readonly run: Run, private operations = true) {
    this.expandFirst();
  }

  /** Expand the outermost calls, level by level, as long as their rows fit a window. */
  private expandFirst(): void {
    let level = [0];
    let rows = 1;
    while (level.length) {
      const parents = level.filter((call) => this.run.hasChildren(call));
      const next = parents.flatMap((call) => this.run.children(call));
      rows += next.length + parents.reduce((sum, call) => sum + (this.operations ? this.ownItems(call) : 0), 0);
      if (rows > FIRST_ROWS && level[0] !== 0) break;
      for (const call of parents) this.expanded.add(call);
      level = next;
    }
    this.flatten();
  }

  place(row: number): Place {
    return { call: this.call[row]!, item: this.item[row]! };
  }

  /** The row of a place; -1 where a call around it is not expanded. */
  rowOf(place: Place): number {
    const { call, item } = this.run.normal(place);
    for (let row = this.call.indexOf(call); row >= 0 && row < this.count; row = this.call.indexOf(call, row + 1)) {
      if (this.item[row] === item) return row;
    }
    return -1;
  }

  isExpanded(row: number): boolean {
    return this.item[row]! < 0 && this.expanded.has(this.call[row]!);
  }

  /** Has a row others below it? */
  isParent(row: number): boolean {
    const call = this.call[row]!;
    return this.item[row]! < 0 && (this.run.hasChildren(call) || (this.operations && this.ownItems(call) > 0));
  }

  setExpanded(call: number, expanded: boolean): void {
    if (expanded === this.expanded.has(call)) return;
    if (expanded) this.expanded.add(call);
    else this.expanded.delete(call);
    this.flatten();
  }

  expandAll(calls: Iterable<number>): void {
    for (const call of calls) this.expanded.add(call);
    this.flatten();
  }

  /** Expand every call around a place, so that it has a row. */
  reveal(place: Place): void {
    const { call, item } = this.run.normal(place);
    let around = item < 0 ? this.run.parent(call) : call;
    const before = this.expanded.size + this.shown.size;
    if (item >= 0 && this.rowOf(place) < 0) this.shown.add(`${call}/${item}`);
    for (; around >= 0; around = this.run.parent(around)) this.expanded.add(around);
    if (this.expanded.size + this.shown.size !== before) this.flatten();
  }

  /** Expand or collapse all calls at some depth or above it. */
  expandTo(depth: number): void {
    const { depth: depths } = this.run.data.calls;
    for (let call = 0; call < this.run.callCount; call++) {
      if (depths[call]! < depth) this.expanded.add(call);
      else if (call) this.expanded.delete(call);
    }
    this.flatten();
  }

  showOperations(operations: boolean): void {
    this.operations = operations;
    this.flatten();
  }

  // Rows are made depth first without recursion: models may be nested deeper than a stack.
  private flatten(): void {
    this.count = 0;
    this.add(0, -1, 1, 1, 1);
    const pending: { list: Int32Array; call: number; at: number; level: number }[] = [];
    const enter = (call: number, level: number): void => {
      if (this.expanded.has(call)) pending.push({ list: this.listed(call), call, at: 0, level });
    };
    enter(0, 2);
    while (pending.length) {
      const top = pending[pending.length - 1]!;
      if (top.at === top.list.length) {
        pending.pop();
        continue;
      }
      const entry = top.list[top.at++]!;
      if (entry < 0) this.add(top.call, ~entry, top.level, top.at, top.list.length);
      else {
        this.add(entry, -1, top.level, top.at, top.list.length);
        enter(entry, top.level + 1);
      }
    }
  }

  /** What a call is made of, in order: calls by their number, items of its body by `~item`. */
  private listed(call: number): Int32Array {
    const children = this.run.children(call);
    if (!this.operations || !this.ownItems(call)) return Int32Array.from(children);
    const { firstItem, kind } = this.run.data.bodies;
    const { item } = this.run.data.calls;
    const body = this.run.data.calls.body[call]!;
    const byItem = new Map(children.map((child) => [item[child]!, child]));
    const found: number[] = [];
    for (let i = firstItem[body]!, own = 0; i < firstItem[body + 1]!; i++, own++) {
      const child = byItem.get(own);
      if (kind[i] === CALL) {
        if (child !== undefined) found.push(child);
      } else if (kind[i] !== STRUCTURE || this.shown.has(`${call}/${own}`)) found.push(~own);
    }
    for (const child of children) if (item[child]! < 0) found.push(child); // in no graph
    return Int32Array.from(found);
  }

  private ownItems(call: number): number {
    const body = this.run.data.calls.body[call]!;
    if (body < 0) return 0;
    let count = this.itemsOf.get(body);
    if (count === undefined) {
      count = 0;
      const { firstItem, kind } = this.run.data.bodies;
      for (let i = firstItem[body]!; i < firstItem[body + 1]!; i++) if (kind[i] !== CALL && kind[i] !== STRUCTURE) count++;
      this.itemsOf.set(body, count);
    }
    return count;
  }

  private add(call: number, item: number, level: number, position: number, siblings: number): void {
    if (this.count === this.call.length) this.grow();
    const row = this.count++;
    this.call[row] = call;
    this.item[row] = item;
    this.level[row] = level;
    this.position[row] = position;
    this.siblings[row] = siblings;
  }

  private grow(): void {
    for (const name of ["call", "item", "level", "position", "siblings"] as const) {
      const larger = new Int32Array(this[name].length * 2);
      larger.set(this[name]);
      this[name] = larger;
    }
  }
}
