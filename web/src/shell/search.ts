// Search over a run as one types: paths, classes and operations by words or globs, `key:value` as in trace.find, and
// conditions on numbers. Each query is one pass over columns; texts that many calls share are looked at once.

import type { Run } from "../payload";
import type { Place } from "../state";
import { indexOf } from "./search_index";
import { isMeasureOf, namesOf, type Subject } from "./names";
import { compileCondition, NotACondition, placeOf, type Condition, type Scope } from "./where";

/** What a query found: calls and operations (by their steps), in execution order. */
export interface Hits {
  readonly query: string;
  readonly calls: readonly number[];
  readonly steps: readonly number[];
  readonly count: number;
  readonly error: string; // why the query is none, "" if it is one
  readonly isCondition: boolean;
  has(place: Place): boolean;
}

export type Matcher = (place: Place) => boolean;

export type Key = "path" | "type" | "op" | "status" | "dtype" | "shape" | "source";

/** A query taken apart. */
export interface Query {
  readonly words: readonly string[]; // in lower case; a condition leaves none
  readonly fields: readonly (readonly [Key, string])[];
  readonly condition: string;
}

/** Take a query apart: `type:Linear attn absmax > 100` has a field, and a condition that starts at `absmax`. */
export function parsed(text: string): Query {
  const fields: [Key, string][] = [];
  const rest = text.replace(/(^|\s)(path|type|op|status|dtype|shape|source):(\S+)/g, (_, space: string, key: Key, value: string) => {
    fields.push([key, value]);
    return space;
  });
  if (/[<>=!]|^\s*where\b/.test(rest)) return { words: [], fields, condition: rest.replace(/^\s*where\b/, "").trim() };
  return { words: rest.toLowerCase().split(/\s+/).filter(Boolean), fields, condition: "" };
}

const cache = new WeakMap<Run, { query: string; hits: Hits }>();

/** What a query finds; the last answer is kept, for all who ask. */
export function hitsOf(run: Run, query: string): Hits {
  const last = cache.get(run);
  if (last?.query === query) return last.hits;
  const hits = find(run, query);
  cache.set(run, { query, hits });
  return hits;
}

/** Tells whether a condition holds for a place; null for a line that is no condition. */
export function matcher(condition: string, run: Run): Matcher | null {
  const hits = find(run, condition);
  return hits.error ? null : hits.has;
}

function find(run: Run, text: string): Hits {
  const query = parsed(text);
  const nothing = !query.words.length && !query.fields.length && !query.condition;
  if (nothing) return answer(run, text, null, null, "", false);
  const index = indexOf(run);
  let error = "";
  let calls: Uint8Array | null = index.calls(query);
  let steps: Uint8Array | null = index.steps(query);
  if (query.condition) {
    try {
      calls = keep(run, query.condition, "call", calls);
      steps = keep(run, query.condition, "operation", steps);
      if (!calls && !steps) throw new NotACondition("no call and no operation has all of these measures");
    } catch (problem) {
      if (!(problem instanceof NotACondition)) throw problem;
      error = problem.message;
      calls = steps = null;
    }
  }
  return answer(run, text, calls, steps, error, Boolean(query.condition));
}

function answer(run: Run, query: string, calls: Uint8Array | null, steps: Uint8Array | null, error: string, isCondition: boolean): Hits {
  const found = { calls: positions(calls), steps: positions(steps) };
  return {
    query, ...found, error, isCondition, count: found.calls.length + found.steps.length,
    has(place) {
      const normal = run.normal(place);
      if (normal.item < 0) return calls?.[normal.call] === 1;
      const step = run.stepOf(normal);
      return step >= 0 && steps?.[step] === 1;
    },
  };
}

function positions(marks: Uint8Array | null): number[] {
  const found: number[] = [];
  if (marks) for (let i = marks.indexOf(1); i >= 0; i = marks.indexOf(1, i + 1)) found.push(i);
  return found;
}

// Conditions ---------------------------------------------------------------------------------------------

/** Keep the calls (or steps) that a condition holds for; null if it is not about calls (or steps). */
function keep(run: Run, line: string, subject: Subject, among: Uint8Array): Uint8Array | null {
  const names = namesOf(run, subject);
  const condition = compileCondition(line, names);
  const own = condition.names.map((name) => placeOf(name, names)[1]);
  if (!own.every((name) => isMeasureOf(run, name, subject))) return null;
  const holds = holdsFor(run, condition, subject);
  const kept = new Uint8Array(among.length);
  if (subject === "call") {
    for (let call = 0; call < among.length; call++) if (among[call] && holds(call, call)) kept[call] = 1;
    return kept;
  }
  const { firstStep } = run.data.calls;
  for (let call = 0; call < run.callCount; call++) {
    for (let step = firstStep[call]!; step < firstStep[call + 1]!; step++) if (among[step] && holds(step, call)) kept[step] = 1;
  }
  return kept;
}

type Tensors = Record<"input" | "output" | "parameter", (item: number, call: number) => readonly number[]>;

const NOT_THERE: readonly number[] = [-1];

/** Does the condition hold for some input, output and parameter of an item, in all their combinations? */
function holdsFor(run: Run, condition: Condition, subject: Subject): (item: number, call: number) => boolean {
  const names = namesOf(run, subject);
  const about = new Set(condition.names.map((name) => placeOf(name, names)[0]));
  const read = subject === "call" ? tensorsOfCall(run) : tensorsOfStep(run);
  const scope: Scope = { item: -1, input: -1, output: -1, parameter: -1 };
  const list = (kind: keyof Tensors, item: number, call: number): readonly number[] => {
    if (!about.has(kind)) return NOT_THERE;
    const found = read[kind](item, call);
    return found.length ? found : NOT_THERE;
  };
  if (!about.has("input") && !about.has("parameter")) {
    return (item, call) => {
      scope.item = item;
      for (scope.output of list("output", item, call)) if (condition.evaluate(scope)) return true;
      return false;
    };
  }
  return (item, call) => {
    scope.item = item;
    for (scope.input of list("input", item, call))
      for (scope.output of list("output", item, call))
        for (scope.parameter of list("parameter", item, call)) if (condition.evaluate(scope)) return true;
    return false;
  };
}

function tensorsOfCall(run: Run): Tensors {
  const { kind, value } = run.data.ports;
  const first = run.data.calls.firstPort;
  const ports = (wanted: number) => (call: number): number[] => {
    const found: number[] = [];
    for (let i = first[call]!; i < first[call + 1]!; i++) if (kind[i] === wanted && value[i]! >= 0) found.push(value[i]!);
    return found;
  };
  return { input: ports(0), output: ports(1), parameter: (call) => run.parametersOf(call) };
}

// Nearly all steps return one tensor: those are read from their column, without a list for each.
function tensorsOfStep(run: Run): Tensors {
  const { value, moreStep } = run.data.steps;
  const several = new Set(moreStep);
  const one = [-1];
  const isParameter = (tensor: number): boolean => run.data.values.name[tensor]! >= 0;
  const found = { input: [] as number[], parameter: [] as number[] }; // filled anew for each step
  const note = (tensor: number): unknown => found[isParameter(tensor) ? "parameter" : "input"].push(tensor);
  const operands = (step: number, call: number, kind: "input" | "parameter"): number[] => {
    found.input.length = found.parameter.length = 0;
    run.eachOperand(step, call, note);
    return kind === "input" ? [...found.input] : [...found.parameter];
  };
  return {
    input: (step, call) => operands(step, call, "input"),
    output: (step) => {
      if (several.has(step)) return run.valuesOfStep(step);
      one[0] = value[step]!;
      return one;
    },
    parameter: (step, call) => operands(step, call, "parameter"),
  };
}
