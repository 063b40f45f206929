/** Which boxes of a picture are open: to a depth, or as many as stay readable. */

import type { Drawn, DrawnItem, Folder } from "../fold";
import type { Path } from "../layout/layout";

export const READABLE = 76; // items of a picture, with the titles of its boxes
const TITLE = 2; // items for which the title of an open box counts
const MOST = 20_000; // items that are counted

interface Candidate {
  path: Path;
  item: DrawnItem;
  drawn: Drawn;
}

/** Says what is open. `depth`: calls at this depth stay closed, null opens what stays readable. `leaves`: also calls without calls. */
export interface Opening {
  depth: number | null;
  leaves: boolean;
  fold: boolean;
  /** Calls of these bodies, and no others, are open; null: by the rules above. */
  opened: number[] | null;
}

/** Return the paths of the boxes that are open, and how many items are drawn then; `most` where the choice is ours. */
export function opened(folder: Folder, root: number, opening: Opening, most = READABLE): { paths: Path[]; count: number } {
  const drawnOf = (item: DrawnItem): Drawn => item.group ?? folder.drawn(item.body, opening.fold);
  const first = folder.drawn(root, opening.fold);
  const paths: Path[] = [];
  let count = first.items.length;
  let titles = 0;
  let level: Candidate[] = candidatesIn(first, [], opening, drawnOf);
  for (let depth = 1; level.length > 0; depth++) {
    const chosen = opening.opened !== null ? level.filter(({ item }) => opening.opened!.includes(item.body)) : opening.depth === null ? readable(level, most - count - titles) : depth < opening.depth ? level : [];
    count += sum(chosen, ({ drawn }) => drawn.items.length);
    titles += TITLE * chosen.length;
    if (count > MOST) break;
    paths.push(...chosen.map(({ path }) => path));
    level = chosen.flatMap(({ path, drawn }) => candidatesIn(drawn, path, opening, drawnOf));
  }
  return { paths, count };
}

/** Return the items of a box that can be opened; a group is open already, and counts as part of its box. */
function candidatesIn(drawn: Drawn, path: Path, opening: Opening, drawnOf: (item: DrawnItem) => Drawn): Candidate[] {
  const found: Candidate[] = [];
  drawn.items.forEach((item, slot) => {
    const own = [...path, slot];
    if (item.group !== null) found.push(...candidatesIn(item.group, own, opening, drawnOf));
    else if (item.body >= 0) {
      const inside = drawnOf(item);
      if (opening.leaves || opening.opened !== null || inside.items.some((one) => one.kind === "call" || one.kind === "repeat")) found.push({ path: own, item, drawn: inside });
    }
  });
  return found;
}

/** Return the calls of a level that fit: all of one class or none, those with repetitions first. */
function readable(level: readonly Candidate[], room: number): Candidate[] {
  const classes = new Map<string, Candidate[]>();
  for (const one of level) {
    const known = classes.get(one.item.type);
    if (known === undefined) classes.set(one.item.type, [one]);
    else known.push(one);
  }
  const size = (all: readonly Candidate[]) => sum(all, ({ drawn }) => drawn.items.length + TITLE);
  const order = [...classes.values()].sort((a, b) => b[0]!.item.times - a[0]!.item.times || size(a) - size(b));
  const chosen: Candidate[] = [];
  for (const all of order) {
    if (size(all) > room) continue;
    room -= size(all);
    chosen.push(...all);
  }
  return chosen;
}

function sum<T>(all: readonly T[], number: (one: T) => number): number {
  return all.reduce((total, one) => total + number(one), 0);
}
