/** What is open when a page is first seen: boxes that most of the run happens in, as long as few enough items are drawn. */

import type { Drawn } from "../fold";
import type { Run } from "../payload";
import type { Box, DrawnTree, Member } from "./tree";

const SHARE = 0.4; // of all operations that must be inside
const MOST_ITEMS = 48; // rows of views count a quarter

/** Calls to open: of repeats the first of them. */
export function firstOpened(tree: DrawnTree): Set<number> {
  const { run } = tree, open = new Set([0]), size = sizesOf(run);
  const candidates: Member[] = [];
  const add = (box: Box): number => {
    box.drawn.items.forEach((item, index) => {
      if (item.group) add(box.inside(index)!);
      else if (item.kind === "call" || item.kind === "repeat") candidates.push({ box, index });
    });
    return weightOf(box.drawn);
  };
  // What a root does besides its calls, such as masks, is not a reason to show less of them.
  let items = Math.min(12, add(tree.root));
  const inside = ({ box, index }: Member): number => {
    let sum = 0;
    for (const place of box.places(index)) if (place.item < 0) sum += size(place.call);
    return sum;
  };
  while (candidates.length) {
    const { box, index } = candidates.shift()!, inner = box.inside(index);
    if (!inner?.drawn.items.some((item) => item.kind === "call" || item.kind === "repeat")) continue;
    if (inside({ box, index }) < SHARE * size(0) || items + weightOf(inner.drawn) > MOST_ITEMS) continue;
    items += add(inner);
    open.add(inner.calls[0]!);
  }
  for (let call = 0; call < run.callCount; call++)
    if (run.failure(call)?.here) for (let one = run.parent(call); one >= 0; one = run.parent(one)) open.add(one);
  return open;
}

function weightOf(drawn: Drawn): number {
  return drawn.items.reduce((sum, item) => sum + (item.group ? weightOf(item.group) : item.kind === "views" ? 0.25 : 1), 0);
}

/** How much happens in a call: its operations, or calls where no operations were recorded. */
function sizesOf(run: Run): (call: number) => number {
  const { parent, firstStep } = run.data.calls, end = new Int32Array(run.callCount);
  for (let call = run.callCount - 1; call >= 0; call--) {
    end[call] = Math.max(end[call]!, call + 1);
    if (parent[call]! >= 0) end[parent[call]!] = Math.max(end[parent[call]!]!, end[call]!);
  }
  return (call) => firstStep[end[call]!]! - firstStep[call]! + end[call]! - call;
}
