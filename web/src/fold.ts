/**
 * What of a body is drawn: structure is passed through, rows of views are one pill, repeated calls and groups of items
 * that repeat in turn are drawn once. Nothing is lost: each drawn item knows the items of the body that it stands for.
 */

import type { Bodies, Body, Edge, Item, Output, Port } from "./bodies";

/** An item as it is drawn. */
export interface DrawnItem extends Item {
  /**
   * The items of the body that it stands for, one list for each repetition: `[[4, 5]]` is a pill of two views,
   * `[[3], [4], [5]]` a call that is repeated three times.
   */
  members: readonly (readonly number[])[];
  /** The items of one turn, where several items repeat in turn; such a group is always drawn open. */
  group: Drawn | null;
  /** Do the turns of a loop stand in it, each of which takes what the turn before has made: a state? */
  carried?: boolean;
}

/** A body as it is drawn. */
export interface Drawn {
  title: string;
  inputs: Port[];
  items: DrawnItem[];
  outputs: Output[];
  /** For the items of the body from `first` on, the drawn item that shows each; -1 where none does. */
  shownBy: Int32Array;
  first: number;
}

const LONGEST_TURN = 16; // items that repeat in turn
const FEWEST_TURNS = 3;
const FEWEST_OPERATIONS = 24; // repeated operations without a call are folded where there are many

/** Makes and keeps what is drawn of each body, folded and unfolded. */
export class Folder {
  private readonly folded = new Map<number, Drawn>();
  private readonly unfolded = new Map<number, Drawn>();

  private readonly readInputs = new Map<number, Uint8Array>();
  private apart = false;

  constructor(readonly bodies: Bodies) {}

  /** Draw every repetition by itself, from now on. */
  keepApart(): void {
    this.apart = true;
  }

  /** Does an item read an argument? A call does not if nothing in it does, and nothing in what it calls. */
  private reads(item: Item, argument: number): boolean {
    if (item.body < 0) return true;
    let read = this.readInputs.get(item.body);
    if (read === undefined) {
      const body = this.bodies.body(item.body);
      read = new Uint8Array(body.inputs.length).fill(body.whole === true ? 0 : 1);
      if (body.whole === true) {
        const use = (from: number) => from < 0 && (read![~from] = 1);
        for (const output of body.outputs) use(output.from);
        for (const inner of body.items) for (const edge of inner.edges) if (edge.from < 0 && !read[~edge.from] && this.reads(inner, edge.argument)) use(edge.from);
      }
      this.readInputs.set(item.body, read);
    }
    return read[argument] !== 0;
  }

  /** Return what is drawn of a body; with `fold` repetitions are drawn once. */
  drawn(body: number, fold: boolean): Drawn {
    if (this.apart) fold = false;
    const known = fold ? this.folded : this.unfolded;
    let drawn = known.get(body);
    if (drawn === undefined) {
      drawn = condensed(this.bodies.body(body), (item, argument) => this.reads(item, argument));
      if (fold) drawn = foldedBody(drawn);
      known.set(body, drawn);
    }
    return drawn;
  }
}

/** Operations that take a part or another type of one tensor, and those that make a constant: drawn small, like views. */
const SMALL = new Set(
  "getitem select narrow chunk split unbind tensor_split index_select to float half bfloat16 double long int bool type type_as cpu cuda movedim".split(" "),
);

/** Return a body without structure, unread views and arguments that nothing reads, and with rows of views as one item. */
export function condensed(whole: Body, reads: (item: Item, argument: number) => boolean = () => true): Drawn {
  const { title, inputs, outputs } = whole; // a body that is decoded late has no fields of its own
  const body: Body = { title, inputs, outputs, items: whole.items.map((item) => lightened(item, reads)) };
  const count = body.items.length;
  const readers = new Int32Array(count);
  for (const item of body.items) for (const edge of item.edges) if (edge.from >= 0) readers[edge.from]!++;
  const returned = new Uint8Array(count);
  for (const output of body.outputs) if (output.from >= 0) returned[output.from] = 1;
  const kept = new Uint8Array(count);
  for (let index = count - 1; index >= 0; index--) {
    const item = body.items[index]!;
    const idle = readers[index] === 0 && returned[index] === 0;
    if (idle && (item.kind === "views" || item.kind === "structure")) {
      for (const edge of item.edges) if (edge.from >= 0) readers[edge.from]!--;
    } else {
      kept[index] = 1;
    }
  }
  return joinedViews(body, kept, readers, returned);
}

/** Return an item as it is drawn by itself: without the arguments that a call does not read, small operations as views. */
function lightened(item: Item, reads: (item: Item, argument: number) => boolean): Item {
  const isSmall = item.kind === "operation" && (item.edges.length === 0 || (item.edges.length === 1 && SMALL.has(item.label)));
  if (isSmall) return drawnItem(item, "views", item.edges);
  const isRead = item.kind !== "call" || item.edges.every((edge) => reads(item, edge.argument));
  return isRead ? item : drawnItem(item, "call", item.edges.filter((edge) => reads(item, edge.argument)));
}

function joinedViews(body: Body, kept: Uint8Array, readers: Int32Array, returned: Uint8Array): Drawn {
  const count = body.items.length;
  const shownBy = new Int32Array(count).fill(-1);
  const items: DrawnItem[] = [];
  const rows: number[][] = []; // of each drawn item, the items of the body
  for (let index = 0; index < count; index++) {
    if (!kept[index]) continue;
    const item = body.items[index]!;
    const before = item.kind === "views" && item.edges.length === 1 ? item.edges[0]!.from : -1;
    const joins = before >= 0 && body.items[before]!.kind === "views" && readers[before] === 1 && !returned[before];
    if (joins) {
      const row = shownBy[before]!;
      rows[row]!.push(index);
      shownBy[index] = row;
      items[row]!.shape = item.shape;
      items[row]!.health ||= item.health;
      continue;
    }
    shownBy[index] = items.length;
    rows.push([index]);
    const kind = item.kind === "structure" ? "views" : item.kind;
    items.push(drawnItem(item, kind, item.edges));
  }
  for (const [place, item] of items.entries()) {
    const row = rows[place]!;
    item.members = [row];
    if (row.length > 1) item.label = viewsLabel(row.map((index) => body.items[index]!.label));
    item.edges = movedEdges(item.edges, (from) => shownBy[from]!, place);
  }
  return { title: body.title, inputs: body.inputs, items, outputs: movedOutputs(body.outputs, shownBy), shownBy, first: 0 };
}

/** Return the drawn item that shows an item of the body; -1 where none does. */
export function shownBy(drawn: Drawn, item: number): number {
  return drawn.shownBy[item - drawn.first] ?? -1;
}

/** Return an item to be drawn; written out, since this is done for every item of a run. */
function drawnItem(item: Item, kind: Item["kind"], edges: Edge[]): DrawnItem {
  return {
    kind, label: item.label, type: item.type, edges, shape: item.shape, body: item.body, times: item.times, health: item.health, members: [], group: null,
  };
}

function viewsLabel(labels: string[]): string {
  const rest = labels.length - 2;
  return labels.slice(0, 2).join(" · ") + (rest > 0 ? ` +${rest}` : "");
}

/** Return edges with their sources renamed; an edge from the item itself goes, equal ones are one. */
function movedEdges(edges: readonly Edge[], moved: (from: number) => number, own: number): Edge[] {
  const result: Edge[] = [];
  for (const edge of edges) {
    const from = edge.from < 0 ? edge.from : moved(edge.from);
    if (from === own || (edge.from >= 0 && from < 0)) continue;
    if (!result.some((known) => known.from === from && known.output === edge.output && known.argument === edge.argument))
      result.push({ from, argument: edge.argument, output: edge.output });
  }
  return result;
}

function movedOutputs(outputs: readonly Output[], shownBy: Int32Array): Output[] {
  const moved = outputs.map((output) => ({ ...output, from: output.from < 0 ? output.from : shownBy[output.from]! }));
  return moved.filter((output, index) => output.from >= 0 || outputs[index]!.from < 0);
}

// Repetitions -----------------------------------------------------------------------------------------------------------

interface Run {
  start: number;
  period: number;
  turns: number;
}

/** Return a condensed body with repetitions drawn once; the same object where nothing repeats. */
export function foldedBody(drawn: Drawn): Drawn {
  const runs = chosenRuns(drawn);
  return runs.length === 0 ? drawn : new Fold(drawn, runs).result();
}

/** Return the runs that are folded: those that save most first, none overlapping another. */
function chosenRuns(drawn: Drawn): Run[] {
  const tokens = tokensOf(drawn);
  const count = tokens.length;
  const found: Run[] = [];
  for (let period = 1; period <= Math.min(LONGEST_TURN, count >> 1); period++) {
    for (let start = 0; start + period < count; ) {
      let end = start;
      while (end + period < count && tokens[end] === tokens[end + period] && isWiredAlike(drawn, start, end, period)) end++;
      const turns = Math.floor((end - start) / period) + 1;
      if (turns > 1 && worthFolding(drawn, start, period, turns)) found.push({ start, period, turns });
      start = Math.max(end, start + 1);
    }
  }
  found.sort((a, b) => b.turns * b.period - b.period - (a.turns * a.period - a.period) || a.period - b.period || a.start - b.start);
  const taken = new Uint8Array(count);
  const chosen: Run[] = [];
  for (const run of found) {
    const end = run.start + run.period * run.turns;
    if (taken.subarray(run.start, end).some((one) => one !== 0)) continue;
    taken.fill(1, run.start, end);
    chosen.push(run);
  }
  return chosen.sort((a, b) => a.start - b.start);
}

/** Return a number for each item, equal where they do the same and fare the same. */
function tokensOf(drawn: Drawn): Int32Array {
  const numbers = new Map<string, number>();
  const tokens = new Int32Array(drawn.items.length);
  drawn.items.forEach((item, index) => {
    const key = [item.kind, item.kind === "call" ? family(item.label) : item.label, item.type, item.body, item.shape, item.health, item.edges.length].join("\n");
    let number = numbers.get(key);
    if (number === undefined) numbers.set(key, (number = numbers.size));
    tokens[index] = number;
  });
  return tokens;
}

/**
 * Does an item read like the one a turn later: the same, or the same of its own turn or the turn before? Items of the
 * first turn may read something from before instead.
 */
function isWiredAlike(drawn: Drawn, start: number, index: number, period: number): boolean {
  const later = drawn.items[index + period]!.edges;
  return drawn.items[index]!.edges.every((edge, place) => {
    const other = later[place]!;
    if (other.argument !== edge.argument) return false;
    if (other.from === edge.from) return true;
    if (other.from < start || edge.from < 0) return edge.from < start && index < start + period && other.from >= 0;
    if (other.output !== edge.output && edge.from >= start) return false;
    return other.from - edge.from === period || (edge.from < start && index < start + period);
  });
}

/** The name of a call without its numbers: the layers of a list have one family, q_proj and k_proj have two. */
function family(label: string): string {
  return label.replace(/\d+/g, "#");
}

function worthFolding(drawn: Drawn, start: number, period: number, turns: number): boolean {
  const block = drawn.items.slice(start, start + period);
  const calls = block.filter((item) => item.kind === "call");
  if (period === 1) {
    const item = block[0]!;
    if (item.kind !== "call") return item.kind === "operation" && turns >= 8;
    return turns >= FEWEST_TURNS || (turns === 2 && item.body >= 0 && /\d/.test(item.label));
  }
  if (calls.length > 0) return turns >= FEWEST_TURNS;
  return turns > FEWEST_TURNS && turns * period >= FEWEST_OPERATIONS;
}

/** Builds a body in which each run is one item. */
class Fold {
  private readonly to: Int32Array; // condensed item → drawn item
  private readonly outputOf = new Map<number, number>(); // condensed item of a group → output of the group
  private readonly runOf: Int32Array;
  private readonly items: DrawnItem[] = [];

  constructor(
    private readonly drawn: Drawn,
    private readonly runs: Run[],
  ) {
    const count = drawn.items.length;
    this.to = new Int32Array(count);
    this.runOf = new Int32Array(count).fill(-1);
    runs.forEach((run, index) => this.runOf.fill(index, run.start, run.start + run.period * run.turns));
    let next = 0;
    for (let index = 0; index < count; index++) {
      const run = this.runOf[index]! < 0 ? null : runs[this.runOf[index]!]!;
      this.to[index] = next;
      if (run === null || index === run.start + run.period * run.turns - 1) next++;
    }
  }

  result(): Drawn {
    const { drawn, to } = this;
    this.findGroupOutputs();
    for (let index = 0; index < drawn.items.length; index++) {
      const run = this.runOf[index]! < 0 ? null : this.runs[this.runOf[index]!]!;
      if (run === null) {
        const item = drawn.items[index]!;
        this.items.push({ ...item, edges: this.moved(item.edges, this.items.length) });
      } else if (index === run.start) {
        this.items.push(run.period === 1 ? this.repeatedItem(run) : this.repeatedGroup(run));
      }
    }
    const shownBy = drawn.shownBy.map((item) => (item < 0 ? -1 : to[item]!));
    const outputs = drawn.outputs.map((output) => ({ ...output, ...this.source(output.from, output.output) }));
    return { title: drawn.title, inputs: drawn.inputs, items: this.items, outputs, shownBy, first: 0 };
  }

  /** Number the items of each group that are read after it or returned. */
  private findGroupOutputs(): void {
    const used = this.runs.map(() => new Set<number>());
    const use = (from: number, reader: number) => {
      if (from < 0) return;
      const run = this.runOf[from]!;
      if (run >= 0 && run !== reader) used[run]!.add((from - this.runs[run]!.start) % this.runs[run]!.period);
    };
    this.drawn.items.forEach((item, index) => item.edges.forEach((edge) => use(edge.from, this.runOf[index]!)));
    this.drawn.outputs.forEach((output) => use(output.from, -1));
    this.runs.forEach((run, index) => {
      if (run.period === 1) return;
      const places = [...used[index]!].sort((a, b) => b - a);
      if (places.length === 0) places.push(run.period - 1);
      places.forEach((place, output) => {
        for (let turn = 0; turn < run.turns; turn++) this.outputOf.set(run.start + turn * run.period + place, output);
      });
    });
  }

  /** Return where a value of a condensed item comes from in the folded body. */
  private source(from: number, output: number): { from: number; output: number } {
    if (from < 0) return { from, output };
    return { from: this.to[from]!, output: this.outputOf.get(from) ?? output };
  }

  private moved(edges: readonly Edge[], own: number): Edge[] {
    const result: Edge[] = [];
    for (const edge of edges) {
      const { from, output } = this.source(edge.from, edge.output);
      if (from === own) continue;
      const isTurn = edge.from >= 0 && this.runOf[edge.from]! >= 0; // of all turns of a repetition one line goes on
      if (!result.some((known) => known.from === from && known.output === output && (isTurn || known.argument === edge.argument)))
        result.push({ from, argument: edge.argument, output });
    }
    return result;
  }

  private repeatedItem(run: Run): DrawnItem {
    const turns = this.drawn.items.slice(run.start, run.start + run.turns);
    const first = turns[0]!;
    const own = this.items.length;
    const edges = this.moved(first.edges, own);
    for (const turn of turns.slice(1))
      for (const edge of this.moved(turn.edges, own))
        if (!edges.some((known) => known.from === edge.from && known.output === edge.output)) edges.push(edge);
    const last = turns.at(-1)!;
    return {
      ...first,
      kind: "repeat",
      label: first.kind === "call" ? rangeOf(first.label, last.label) : first.label,
      shape: last.shape,
      edges,
      times: run.turns,
      members: turns.map((turn) => turn.members[0]!),
      carried: this.carries(run),
    };
  }

  /** Does a turn read what the turn before made, and call the same modules? Layers of a stack are others each. */
  private carries({ start, period, turns }: Run): boolean {
    const { items } = this.drawn;
    const later = items.slice(start + period, start + period * turns);
    const isBefore = (from: number, at: number) => from >= start && from < start + period * Math.floor(at / period + 1);
    return (
      later.every((item, at) => item.kind !== "call" || item.label === items[start + at]!.label) &&
      later.some((item, at) => item.edges.some((edge) => isBefore(edge.from, at)))
    );
  }

  private repeatedGroup(run: Run): DrawnItem {
    const { start, period, turns } = run;
    const block = this.drawn.items.slice(start, start + period);
    const own = this.items.length;
    const inputs: Port[] = [];
    const edges: Edge[] = [];
    const portOf = new Map<string, number>();
    const inside = block.map((item, place) => {
      const kept: Edge[] = [];
      item.edges.forEach((edge, position) => {
        if (edge.from >= start) {
          kept.push({ ...edge, from: edge.from - start });
          return;
        }
        const key = `${edge.from}.${edge.output}`;
        let port = portOf.get(key);
        if (port === undefined) {
          portOf.set(key, (port = inputs.length));
          inputs.push({ name: "", shape: this.shapeOf(edge.from) });
        }
        for (let turn = 0; turn < turns; turn++) this.enter(edges, start + turn * period + place, position, port, own);
        kept.push({ from: ~port, argument: edge.argument, output: 0 });
      });
      const members = Array.from({ length: turns }, (_, turn) => this.drawn.items[start + turn * period + place]!.members[0]!);
      return { ...item, edges: kept, members, label: item.label };
    });
    const outputs: Output[] = [];
    for (let place = 0; place < period; place++) {
      const output = this.outputOf.get(start + place);
      if (output !== undefined) outputs[output] = { from: place, output: 0, name: "" };
    }
    const end = start + turns * period - 1;
    const calls = this.drawn.items.slice(start, end + 1).filter((item) => item.kind === "call");
    const kinds = [...new Set(block.filter((item) => item.kind !== "views").map((item) => item.type || item.label))];
    return {
      kind: "repeat",
      label: groupLabel(calls),
      type: kinds.join(" · "),
      edges,
      shape: this.drawn.items[end]!.shape,
      body: -1,
      times: turns,
      health: 0,
      members: [block.flatMap((item) => item.members[0]!)],
      group: { title: kinds.join(" · "), inputs, items: inside, outputs, ...shownInside(inside) },
      carried: this.carries(run),
    };
  }

  /** Add the edge by which one item of one turn reads from outside of its group. */
  private enter(edges: Edge[], index: number, position: number, port: number, own: number): void {
    const edge = this.drawn.items[index]!.edges[position];
    if (edge === undefined) return;
    const { from, output } = this.source(edge.from, edge.output);
    if (from === own || edges.some((known) => known.from === from && known.output === output && known.argument === port)) return;
    edges.push({ from, argument: port, output });
  }

  private shapeOf(from: number): string {
    return (from < 0 ? this.drawn.inputs[~from]?.shape : this.drawn.items[from]!.shape) ?? "";
  }
}

/** Return which item of a group shows each item of the body between its first and its last. */
function shownInside(items: DrawnItem[]): { shownBy: Int32Array; first: number } {
  const all = items.flatMap((item) => item.members.flat());
  const first = all.reduce((least, one) => Math.min(least, one), Infinity);
  const last = all.reduce((most, one) => Math.max(most, one), -1);
  const shownBy = new Int32Array(last - first + 1).fill(-1);
  items.forEach((item, place) => item.members.forEach((turn) => turn.forEach((one) => (shownBy[one - first] = place))));
  return { shownBy, first };
}

/** Return the name of a group: `norms.0…2 · rounds.0…2`, from the first to the last of each family of calls. */
function groupLabel(calls: DrawnItem[]): string {
  const families = new Map<string, [string, string]>();
  for (const { label } of calls) {
    const known = families.get(family(label));
    if (known === undefined) families.set(family(label), [label, label]);
    else known[1] = label;
  }
  const ranges = [...families.values()].map(([first, last]) => rangeOf(first, last));
  return ranges.slice(0, 2).join(" · ") + (ranges.length > 2 ? ` +${ranges.length - 2}` : "");
}

/** `layers.0` and `layers.31` are `layers.0…31`; one name that is called again is itself. */
export function rangeOf(first: string, last: string): string {
  if (first === last) return first;
  const firstParts = first.split(".");
  const lastParts = last.split(".");
  let same = 0;
  while (same < firstParts.length - 1 && firstParts[same] === lastParts[same]) same++;
  return `${first}…${lastParts.slice(same).join(".")}`;
}
