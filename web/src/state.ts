// What the reader of the page has chosen. Every part of the page reads it here and writes it here; no part calls another.

/** A call, or with `item >= 0` one item of its body (an operation, views, a read parameter). */
export interface Place {
  readonly call: number;
  readonly item: number;
}

export type View = "graph" | "training" | "timeline" | "memory" | "attention" | "distributions" | "findings" | "reports";
export const VIEWS: readonly View[] = ["graph", "training", "timeline", "memory", "attention", "distributions", "findings", "reports"];

export type Theme = "auto" | "light" | "dark";
export const THEMES: readonly Theme[] = ["auto", "light", "dark"];

/** The run that the selection is in: the only one, or the left one of a comparison is 0. */
export type Side = 0 | 1;

export interface State {
  readonly selected: Place | null;
  readonly open: ReadonlySet<number>; // calls whose bodies are drawn, of the run of `compareSide`
  readonly overlay: string; // "" none; a measure; "status", "findings", "error"; "where: …" for a condition
  readonly filter: readonly string[]; // entries of the legend that are left out
  readonly query: string; // the text in the search field
  readonly view: View;
  readonly theme: Theme;
  readonly compareSide: Side;
}

export const START: State = {
  selected: null,
  open: new Set([0]),
  overlay: "",
  filter: [],
  query: "",
  view: "graph",
  theme: "auto",
  compareSide: 0,
};

/** Called after each change with the new state, the old one, and a way to ask which fields changed. */
export type Listener = (now: State, before: State) => void;

/** Holds the one state of the page. */
export class Store {
  private state: State;
  private readonly listeners = new Set<Listener>();
  private queue: Array<[State, State]> = [];
  private telling = false;

  constructor(start: Partial<State> = {}) {
    this.state = { ...START, ...start };
  }

  get(): State {
    return this.state;
  }

  /** Change some fields. Nothing happens where all of them are as they were. */
  set(patch: Partial<State>): void {
    const before = this.state;
    const now = { ...before, ...patch };
    if (same(before, now)) return;
    this.state = now;
    this.queue.push([now, before]);
    if (this.telling) return; // a listener set something: the others hear of both changes in order
    this.telling = true;
    try {
      for (let next = this.queue.shift(); next; next = this.queue.shift()) {
        for (const listener of this.listeners) listener(...next);
      }
    } finally {
      this.telling = false;
      this.queue = [];
    }
  }

  /** Returns the function that ends the subscription. */
  subscribe(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

export function samePlace(one: Place | null, other: Place | null): boolean {
  if (one === null || other === null) return one === other;
  return one.call === other.call && one.item === other.item;
}

function same(one: State, other: State): boolean {
  return (
    samePlace(one.selected, other.selected) &&
    one.open === other.open &&
    one.overlay === other.overlay &&
    one.filter === other.filter &&
    one.query === other.query &&
    one.view === other.view &&
    one.theme === other.theme &&
    one.compareSide === other.compareSide
  );
}
