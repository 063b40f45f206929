// What words and fields of a query are looked up in: the texts of calls and operations, in lower case, each once.

import { STATUSES, type Run } from "../payload";
import { isOperation } from "./page";
import type { Key, Query } from "./search";

/** Marks the calls and the steps (of operations) that the words and fields of a query fit. */
export interface Index {
  calls(query: Query): Uint8Array;
  steps(query: Query): Uint8Array;
}

const indices = new WeakMap<Run, Index>();

export function indexOf(run: Run): Index {
  let index = indices.get(run);
  if (!index) indices.set(run, (index = new RunIndex(run)));
  return index;
}

// A call fits a word directly if its own name or class has it, and otherwise only through the modules around it.
const INDIRECT = 1;
const DIRECT = 2;

class RunIndex implements Index {
  private readonly lower: string[] = []; // by text
  private readonly ownName: Int32Array; // by call: where its own name begins in its path

  constructor(private readonly run: Run) {
    const { path, parent } = run.data.calls;
    this.ownName = new Int32Array(run.callCount);
    for (let call = 0; call < run.callCount; call++) {
      const around = parent[call]! < 0 ? "" : run.text(path[parent[call]!]!);
      if (around && run.text(path[call]!).startsWith(`${around}.`)) this.ownName[call] = around.length + 1;
    }
  }

  calls(query: Query): Uint8Array {
    const found = new Uint8Array(this.run.callCount).fill(1);
    const words = query.words.map((word) => this.callsWith(word));
    const anyFit = !words.length || query.fields.length > 0; // a field narrows down what lies inside
    for (let call = 0; call < found.length; call++) {
      if (!words.every((fits) => fits[call]!) || !(anyFit || words.some((fits) => fits[call] === DIRECT))) found[call] = 0;
    }
    for (const [key, value] of query.fields) this.keepCalls(found, key, value);
    return found;
  }

  steps(query: Query): Uint8Array {
    const found = query.words.length ? this.stepsWith(query) : this.everyOperation().slice();
    for (const [key, value] of query.fields) this.keepSteps(found, key, value);
    return found;
  }

  private every: Uint8Array | null = null;
  private everyOperation(): Uint8Array {
    return (this.every ??= this.stepsWith({ words: [], fields: [], condition: "" }));
  }

  private stepsWith(query: Query): Uint8Array {
    const { calls, steps } = this.run.data;
    const found = new Uint8Array(steps.value.length);
    const around = query.words.map((word) => this.callsWith(word));
    const named = query.words.map((word) => this.graphSteps((name, op) => fitsWord(word, op) || fitsWord(word, name)));
    const isOperation = this.operations();
    for (let call = 0; call < this.run.callCount; call++) {
      const shift = calls.graph[call]! < 0 ? 0 : steps.first[calls.graph[call]!]! - calls.firstStep[call]!;
      for (let step = calls.firstStep[call]!; step < calls.firstStep[call + 1]!; step++) {
        const at = step + shift;
        if (!isOperation[at]) continue;
        let direct = !query.words.length || query.fields.length > 0;
        let every = true;
        for (let word = 0; word < named.length && every; word++) {
          if (named[word]![at]) direct = true;
          else if (!around[word]![call]) every = false;
        }
        if (every && direct) found[step] = 1;
      }
    }
    return found;
  }

  /** How each call fits a word: directly, through a module around it, or not. */
  private callsWith(word: string): Uint8Array {
    const { path, type } = this.run.data.calls;
    const found = new Uint8Array(this.run.callCount);
    const glob = globOf(word);
    const types = new Map<number, boolean>();
    for (let call = 0; call < found.length; call++) {
      const text = this.low(path[call]!);
      if (glob) {
        if (glob.test(text) || glob.test(this.low(type[call]!))) found[call] = DIRECT;
        continue;
      }
      let ofType = types.get(type[call]!);
      if (ofType === undefined) types.set(type[call]!, (ofType = this.low(type[call]!).includes(word)));
      const at = text.lastIndexOf(word);
      if (ofType || (at >= 0 && at + word.length > this.ownName[call]!)) found[call] = DIRECT;
      else if (at >= 0) found[call] = INDIRECT;
    }
    return found;
  }

  private operations(): Uint8Array {
    const { kind } = this.run.data.steps;
    return Uint8Array.from(kind, (one) => Number(isOperation(one)));
  }

  /** Marks the steps of all graphs whose name and operation fit. */
  private graphSteps(fits: (name: string, op: string) => boolean): Uint8Array {
    const { name, op } = this.run.data.steps;
    return Uint8Array.from(name, (text, i) => Number(fits(this.low(text), this.low(op[i]!))));
  }

  private keepCalls(found: Uint8Array, key: Key, value: string): void {
    const { run } = this;
    const { path, type, status, source } = run.data.calls;
    if (key === "op") found.fill(0);
    else if (key === "path") this.keepTexts(found, (call) => path[call]!, value);
    else if (key === "type") this.keepTexts(found, (call) => type[call]!, value);
    else if (key === "source") this.keepTexts(found, (call) => source[call]!, value, true);
    else if (key === "status") keepIf(found, (call) => STATUSES[status[call]!]!.startsWith(value));
    else keepIf(found, this.tensorsFit(key, value, (call) => outputs(run, call)));
  }

  private keepSteps(found: Uint8Array, key: Key, value: string): void {
    const { run } = this;
    const { calls, steps } = run.data;
    if (key === "dtype" || key === "shape") return keepIf(found, this.tensorsFit(key, value, (step) => run.valuesOfStep(step)));
    if (key === "source") return this.keepTexts(found, (step) => steps.source[step]!, value, true);
    const ofCalls = new Uint8Array(run.callCount).fill(1);
    if (key !== "op") this.keepCalls(ofCalls, key, value);
    const named = key === "op" ? this.graphSteps((_, op) => fitsText(value, op)) : null;
    for (let call = 0; call < run.callCount; call++) {
      const shift = calls.graph[call]! < 0 ? 0 : steps.first[calls.graph[call]!]! - calls.firstStep[call]!;
      for (let step = calls.firstStep[call]!; step < calls.firstStep[call + 1]!; step++) {
        if (named ? !named[step + shift] : !ofCalls[call]) found[step] = 0;
      }
    }
  }

  private keepTexts(found: Uint8Array, textOf: (at: number) => number, value: string, withEnd = false): void {
    const known = new Map<number, boolean>();
    keepIf(found, (at) => {
      const text = textOf(at);
      let fits = known.get(text);
      if (fits === undefined) known.set(text, (fits = withEnd ? fitsSource(value, this.low(text)) : fitsText(value, this.low(text))));
      return fits;
    });
  }

  private tensorsFit(key: "dtype" | "shape", value: string, tensors: (at: number) => readonly number[]): (at: number) => boolean {
    const column = this.run.data.values[key];
    const wanted = key === "shape" ? shapeGlob(value) : null;
    const known = new Map<number, boolean>(); // by text
    const fits = (tensor: number): boolean => {
      const text = column[tensor]!;
      let does = known.get(text);
      if (does === undefined) known.set(text, (does = wanted ? wanted.test(this.run.text(text)) : fitsText(value, this.low(text))));
      return does;
    };
    return (at) => tensors(at).some(fits);
  }

  private low(text: number): string {
    return (this.lower[text] ??= this.run.text(text).toLowerCase());
  }
}

function outputs(run: Run, call: number): number[] {
  const { kind, value } = run.data.ports;
  const found: number[] = [];
  for (let i = run.data.calls.firstPort[call]!; i < run.data.calls.firstPort[call + 1]!; i++) {
    if (kind[i] === 1 && value[i]! >= 0) found.push(value[i]!);
  }
  return found;
}

function keepIf(found: Uint8Array, fits: (at: number) => boolean): void {
  for (let i = found.indexOf(1); i >= 0; i = found.indexOf(1, i + 1)) if (!fits(i)) found[i] = 0;
}

const globs = new Map<string, RegExp | null>();

/** The pattern of a word with `*`, `?` or `[…]`, for the whole text; null for a word without. */
export function globOf(word: string): RegExp | null {
  let glob = globs.get(word);
  if (glob === undefined) {
    if (globs.size > 200) globs.clear();
    globs.set(word, (glob = /[*?[]/.test(word) ? new RegExp(`^${globSource(word)}$`, "su") : null));
  }
  return glob;
}

function globSource(word: string): string {
  return word.replace(/\[(!?)([^\]]+)\]|([*?])|([^])/gu, (_, not: string, set: string | undefined, wild: string | undefined, plain: string) => {
    if (set !== undefined) return `[${not ? "^" : ""}${set.replace(/[\\\]^[&~|]/g, "\\$&")}]`;
    if (wild) return wild === "*" ? ".*" : ".";
    return plain.replace(/[\\^$.|?*+()[\]{}/]/, "\\$&");
  });
}

function fitsWord(word: string, text: string): boolean {
  const glob = globOf(word);
  return glob ? glob.test(text) : text.includes(word);
}

function fitsText(value: string, text: string): boolean {
  return fitsWord(value.toLowerCase(), text);
}

/** `model.py`, `model.py:12` and globs, with or without folders, as `source=` in Python. */
function fitsSource(value: string, text: string): boolean {
  const wanted = value.toLowerCase();
  const file = text.slice(0, text.lastIndexOf(":"));
  const glob = globOf(wanted);
  if (glob) return glob.test(text) || glob.test(file) || glob.test(text.replace(/^.*[/\\]/, ""));
  return [text, file].some((one) => one === wanted || one.endsWith(`/${wanted}`) || one.endsWith(`\\${wanted}`));
}

/** `2,*,384` and `2×8` as a pattern of the shapes as they are written. */
function shapeGlob(value: string): RegExp {
  const sizes = value.replace(/[[\]()\s]/g, "").split(/[,x×]/).filter(Boolean);
  return new RegExp(`^${sizes.map((size) => (/^\d+$/.test(size) ? size : "(\\d+|\\?)")).join("×")}$`);
}
