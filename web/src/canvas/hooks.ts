/** `window.fxdebug`: what the page shows, as plain data, for tests and for people at the console. */

import type { Payload } from "../payload";
import type { Place, Side, State, Store } from "../state";
import type { Graph } from "./graph";
import { entryOf, overlayOf, readingOf, type Overlay } from "./overlay";
import type { Pane, Visible } from "./pane";
import { countsOf } from "./legend";
import type { ShellHooks } from "../shell/hooks";
import { matcher } from "../shell/search";
import { locate } from "./scene";

export interface Hooks {
  state(): Omit<State, "open"> & { open: number[] };
  set(patch: Partial<Omit<State, "open">> & { open?: number[] }): void;
  /** The items in sight, of one side of a comparison. */
  visible(side?: Side): Visible[];
  layout(side?: Side): { camera: { x: number; y: number; scale: number }; width: number; height: number; boxes: number; items: number; edges: number; texts: number; drawMs: number; layoutMs: number; frames: number; moving: boolean };
  /** Choose a call by its id ("h.0.attn#0") or path, or a place. */
  select(what: string | Place): Place | null;
  /** Open a call, or all calls of a path; what is around it, too. */
  open(what: string | number): void;
  close(what: string | number): void;
  /** Where a place is drawn, wherever the window is. */
  where(what: string | Place, side?: Side): Visible | null;
  legend(): { id: string; kind: string; low: number | null; high: number | null; entries: Record<string, number> } | null;
  reading(what: string | Place, side?: Side): { value: number | null; entry: string } | null;
  call(what: string): number;
  fit(): void;
  settle(): Promise<void>;
  payload: Payload;
}

export function installHooks(payload: Payload, store: Store, graph: Graph, opened: number, shell: ShellHooks): void {
  const pane = (side?: Side): Pane => (side === undefined ? graph.active : graph.panes[side]!);
  const call = (what: string | number, side?: Side): number => (typeof what === "number" ? what : pane(side).run.callOf(what));
  const place = (what: string | Place, side?: Side): Place => (typeof what === "string" ? { call: call(what, side), item: -1 } : what);
  const overlay = (side: Side): Overlay | null => overlayOf(store.get().overlay, payload, side, matcher);
  const hooks: Hooks & ShellHooks & { ready: number } = {
    ...shell, payload, ready: opened,
    state: () => ({ ...store.get(), open: [...store.get().open] }),
    set: ({ open, ...patch }) => store.set({ ...patch, ...(open ? { open: new Set(open) } : {}) }),
    visible: (side) => pane(side).visible(),
    layout: (side) => {
      const { camera, width, height, counts, drawTime, layoutTime, frames, moving } = pane(side);
      return { camera: { ...camera }, width, height, ...counts, drawMs: drawTime, layoutMs: layoutTime, frames, moving };
    },
    select: (what) => {
      const chosen = place(what);
      store.set({ selected: chosen.call < 0 ? null : chosen });
      return store.get().selected;
    },
    open: (what) => {
      const open = new Set(store.get().open), { run } = graph.active;
      for (let one = call(what); one >= 0; one = run.parent(one)) open.add(one);
      store.set({ open });
    },
    close: (what) => {
      const open = new Set(store.get().open);
      open.delete(call(what));
      store.set({ open });
    },
    where: (what, side) => {
      const at = pane(side).tree.find(place(what, side), false);
      return at && pane(side).described(locate(pane(side).tree.visible(at)));
    },
    legend: () => {
      const shown = overlay(store.get().compareSide);
      return shown && { id: shown.id, kind: shown.scale?.kind ?? "classes", low: shown.scale?.low ?? null, high: shown.scale?.high ?? null, entries: Object.fromEntries(countsOf(shown)) };
    },
    reading: (what, side) => {
      const shown = overlay(side ?? store.get().compareSide), at = pane(side).tree.find(place(what, side), false);
      const reading = shown ? readingOf(shown, place(what, side), !at || at.box.child(at.index) !== null) : undefined;
      return shown && { value: reading ?? null, entry: entryOf(shown, reading) };
    },
    call: (what) => call(what),
    fit: () => graph.panes.forEach((one) => one.fit(true)),
    settle: async () => {
      do await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
      while (graph.panes.some((one) => one.moving));
    },
  };
  (window as unknown as { fxdebug: Hooks }).fxdebug = hooks;
  document.documentElement.dataset["ready"] = "1";
}
