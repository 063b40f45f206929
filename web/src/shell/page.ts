// What the parts of the page share: the data, the state, and words for calls and operations.

import { VERDICTS, type Payload, type Run } from "../payload";
import type { Place, Side, State, Store } from "../state";

/** The data and the state of one page. */
export class Page {
  constructor(readonly payload: Payload, readonly store: Store) {}

  /** The run that is looked at: of a comparison, that of the chosen side. */
  get run(): Run {
    return this.payload.runs[this.store.get().compareSide] ?? this.payload.run;
  }

  get selected(): Place | null {
    return this.store.get().selected;
  }

  select(place: Place | null, side: Side = this.store.get().compareSide): void {
    const run = this.payload.runs[side] ?? this.payload.run;
    this.store.set({ selected: place && run.normal(place), compareSide: side });
  }

  /** Open the body of a call in the graph, or close it. */
  toggle(call: number): void {
    const open = new Set(this.store.get().open);
    if (!open.delete(call)) open.add(call);
    this.store.set({ open });
  }

  /** Call a function now, and whenever one of these fields has changed. */
  follow(fields: readonly (keyof State)[], tell: (state: State) => void): void {
    this.store.subscribe((now, before) => {
      if (fields.some((field) => now[field] !== before[field])) tell(now);
    });
    tell(this.store.get());
  }
}

/** How a place is named in lists: its own name, its class, the shape of its result. */
export interface Words {
  readonly name: string;
  readonly type: string;
  readonly shape: string;
}

export function wordsOf(run: Run, place: Place): Words {
  const { call, item } = place;
  if (item >= 0) {
    const bodies = run.data.bodies;
    const at = bodies.firstItem[run.data.calls.body[call]!]! + item;
    return { name: run.text(bodies.label[at]!), type: "", shape: run.text(bodies.shape[at]!) };
  }
  const value = run.outputOf(call);
  const shape = value < 0 ? "" : run.text(run.data.values.shape[value]!);
  const type = run.type(call);
  if (!run.path(call)) return { name: run.data.model || type, type: type === run.data.model ? "" : type, shape };
  return { name: run.name(call), type, shape };
}

/** How many functions and methods the graphs of all calls ran. */
export function operationCount(run: Run): number {
  const { steps, calls } = run.data;
  const ofGraph = Array.from({ length: Math.max(0, steps.first.length - 1) }, (_, graph) => {
    let count = 0;
    for (let at = steps.first[graph]!; at < steps.first[graph + 1]!; at++) if (isOperation(steps.kind[at]!)) count++;
    return count;
  });
  let sum = 0;
  for (const graph of calls.graph) if (graph >= 0) sum += ofGraph[graph]!;
  return sum;
}

/** Is a kind of node, by its number, a function or a method? */
export function isOperation(kind: number): boolean {
  return kind === 2 || kind === 3;
}

/** The calls around a place, outermost first, without the place itself. */
export function around(run: Run, place: Place): number[] {
  const found: number[] = [];
  for (let call = place.item < 0 ? run.parent(place.call) : place.call; call >= 0; call = run.parent(call)) found.push(call);
  return found.reverse();
}

/** Path and number of a call, with the number only where the module was called several times. */
export function idOf(run: Run, place: Place): string {
  const path = run.path(place.call) || run.data.model;
  const number = run.data.calls.number[place.call]!;
  const call = number ? `${path}#${number}` : path;
  if (place.item < 0) return call;
  const step = run.stepOf(place);
  return `${call}/${step < 0 ? wordsOf(run, place).name : run.step(step, place.call).name}`;
}

/** What is amiss at a place, worst first, for marks in lists. */
export type Mark = "raised" | "error" | "warning" | "advice" | "opaque" | "recorded" | "adds";

const ofRun = new WeakMap<Run, Map<string, Mark>>();
const RANK: readonly Mark[] = ["raised", "error", "adds", "warning", "advice", "opaque", "recorded"];

export function markOf(page: Page, run: Run, place: Place): Mark | null {
  let marks = ofRun.get(run);
  if (!marks) ofRun.set(run, (marks = marksOf(page, run)));
  const own = marks.get(`${place.call}/${place.item}`);
  if (own || place.item >= 0) return own ?? null;
  const status = run.status(place.call);
  return status === "opaque" || status === "recorded" ? status : null;
}

function marksOf(page: Page, run: Run): Map<string, Mark> {
  const marks = new Map<string, Mark>();
  const note = ({ call, item }: Place, mark: Mark): void => {
    const key = `${call}/${item}`;
    const known = marks.get(key);
    if (!known || RANK.indexOf(mark) < RANK.indexOf(known)) marks.set(key, mark);
  };
  for (const finding of run.data.findings) note(placeOf(run, finding.call, finding.step), finding.severity);
  for (let call = 0; call < run.callCount; call++) if (run.data.calls.failure[call]! >= 0) note({ call, item: -1 }, "raised");
  const { comparison } = page.payload;
  if (comparison && run === page.payload.run) {
    const { rows } = comparison;
    for (const row of comparison.findings) {
      if (VERDICTS[rows.verdict[row]!] === "adds" && rows.bCall[row]! >= 0) note(placeOf(run, rows.bCall[row]!, rows.bStep[row]!), "adds");
    }
  }
  return marks;
}

/** The place of a call, or of one of its steps. */
export function placeOf(run: Run, call: number, step: number): Place {
  return step < 0 ? { call, item: -1 } : run.placeOfStep(step, call < 0 ? undefined : call);
}
