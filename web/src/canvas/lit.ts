/** The lines to and from an item, followed through the borders of boxes. */

import type { Box, Member } from "./tree";

const MOST = 3000;

/** Of each box the numbers of its lines that carry what an item reads or what it returns. */
export function linesOf({ box, index }: Member): Map<Box, Set<number>> {
  const lines = new Lines();
  const { edges } = box.geometry;
  for (let e = 0; e < edges.count; e++) {
    if (edges.from[e] === index) lines.down(box, e);
    if (edges.to[e] === index) lines.up(box, e);
  }
  return lines.found;
}

class Lines {
  readonly found = new Map<Box, Set<number>>();
  private count = 0;

  private add(box: Box, edge: number): boolean {
    let known = this.found.get(box);
    if (!known) this.found.set(box, (known = new Set()));
    if (known.has(edge) || this.count++ > MOST) return false;
    known.add(edge);
    return true;
  }

  /** A line to its reader: on inside of an open box, or out of this one. */
  down(box: Box, edge: number): void {
    if (!this.add(box, edge)) return;
    const { edges, plan } = box.geometry, to = edges.to[edge]!, value = edges.value[edge]!;
    if (to < 0) {
      if (box.parent) this.outside(box.parent, (e, outer) => outer.from[e] === box.index && box.parent!.geometry.plan.wires.output[outer.value[e]!] === ~to, true);
      return;
    }
    const inner = box.child(to);
    if (!inner) return;
    const { wires } = plan;
    for (let k = wires.start[to]!; k < wires.start[to + 1]!; k++)
      if (wires.value[k] === value) this.outside(inner, (e, deeper) => deeper.from[e] === ~wires.argument[k]!, true);
  }

  /** A line back to what made its value: inside of an open box, or outside of this one. */
  up(box: Box, edge: number): void {
    if (!this.add(box, edge)) return;
    const { edges, plan } = box.geometry, from = edges.from[edge]!, value = edges.value[edge]!;
    if (from < 0) {
      if (!box.parent) return;
      const { wires } = box.parent.geometry.plan;
      for (let k = wires.start[box.index]!; k < wires.start[box.index + 1]!; k++)
        if (wires.argument[k] === ~from) this.outside(box.parent, (e, outer) => outer.to[e] === box.index && outer.value[e] === wires.value[k], false);
      return;
    }
    const inner = box.child(from), output = plan.wires.output[value]!;
    if (inner) this.outside(inner, (e, deeper) => deeper.to[e] === ~output, false);
  }

  private outside(box: Box, wanted: (edge: number, edges: Box["geometry"]["edges"]) => boolean, down: boolean): void {
    const { edges } = box.geometry;
    for (let e = 0; e < edges.count; e++) if (wanted(e, edges)) down ? this.down(box, e) : this.up(box, e);
  }
}
