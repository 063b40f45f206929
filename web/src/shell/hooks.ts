// What tree, panel and search show, as plain data for tests and for people at the console: a part of `window.fxdebug`.

import { hashOf } from "./hash";
import type { Frame } from "./frame";
import { idOf } from "./page";
import { hitsOf } from "./search";

export interface ShellHooks {
  /** What a query finds, by ids as in Python, and how long it took in milliseconds. */
  search(query: string): { calls: string[]; operations: string[]; error: string; ms: number };
  /** The rows of the tree in sight, and how many there are in all. */
  tree(): { rows: ReturnType<Frame["tree"]["visible"]>; count: number };
  /** Expand the tree down to a depth. */
  expand(depth: number): void;
  /** The id of what is chosen, "" for nothing. */
  selected(): string;
  hash(): string;
}

export function shellHooks({ page, tree }: Frame): ShellHooks {
  const names = (calls: readonly number[]): string[] => calls.map((call) => page.run.id(call));
  return {
    search: (query) => {
      const began = performance.now();
      const hits = hitsOf(page.run, query);
      const ms = performance.now() - began;
      const operations = hits.steps.map((step) => {
        const facts = page.run.step(step);
        return `${page.run.id(facts.call)}/${facts.name}`;
      });
      return { calls: names(hits.calls), operations, error: hits.error, ms };
    },
    tree: () => ({ rows: tree.visible(), count: tree.rowCount }),
    expand: (depth) => tree.expandTo(depth),
    selected: () => (page.selected ? idOf(page.run, page.selected) : ""),
    hash: () => hashOf(page.payload, page.store.get()),
  };
}
