// Search over a run as one types: paths, classes and operations by words or globs, `key:value` as in trace.find, and
// conditions on numbers. Each query is one pass over columns; texts that many calls share are looked at once.

import type { Run } from "../payload";
import type { Place } from "../state";
import { indexOf } from "./search_index";
import { isMeasureOf, namesOf, type Subject } from "./names";
import { NOTHING, tensorsOf, type Kind, type Lists } from "./tensor_lists";
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

/** Make what conditions are looked up in, before the first letter is typed. */
export function prepare(run: Run): void {
  find(run, "input.absmax < 0");
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
  for (let item = 0; item < among.length; item++) if (among[item] && holds(item)) kept[item] = 1;
  return kept;
}

/** Does the condition hold for some input, output and parameter of an item, in all their combinations? */
function holdsFor(run: Run, condition: Condition, subject: Subject): (item: number) => boolean {
  const names = namesOf(run, subject);
  const about = new Set(condition.names.map((name) => placeOf(name, names)[0]));
  const of = (kind: Kind): Lists => (about.has(kind) ? tensorsOf(run, subject, kind) : NOTHING);
  const inputs = of("input"), outputs = of("output"), parameters = of("parameter");
  const scope: Scope = { item: -1, input: -1, output: -1, parameter: -1 };
  return (item) => {
    scope.item = item;
    // Where there is none of a kind, -1 stands for it once.
    let i = inputs.begin(item);
    do {
      scope.input = inputs.at(i, item);
      let o = outputs.begin(item);
      do {
        scope.output = outputs.at(o, item);
        let p = parameters.begin(item);
        do {
          scope.parameter = parameters.at(p, item);
          if (condition.evaluate(scope)) return true;
        } while (++p < parameters.end(item));
      } while (++o < outputs.end(item));
    } while (++i < inputs.end(item));
    return false;
  };
}
