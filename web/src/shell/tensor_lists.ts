// The tensors that calls and operations take and return, as lists in columns: a condition is asked of 100,000 of them.

import type { Run } from "../payload";
import type { Subject } from "./names";

export type Kind = "input" | "output" | "parameter";

/** Of each item the tensors from `begin` to `end`. */
export class Lists {
  constructor(private readonly first: Int32Array, private readonly tensors: Int32Array) {}
  begin(item: number): number { return this.first[item]!; }
  end(item: number): number { return this.first[item + 1]!; }
  at(position: number, item: number): number { return position < this.end(item) ? this.tensors[position]! : -1; }
}

class None extends Lists {
  override begin(): number { return 0; }
  override end(): number { return 0; }
  override at(): number { return -1; }
}

/** No tensor for any item. */
export const NOTHING: Lists = new None(new Int32Array(0), new Int32Array(0));

const known = new WeakMap<Run, Map<string, Lists>>();

/** The tensors of one kind of all calls, or of all operations by their steps; listed once. */
export function tensorsOf(run: Run, subject: Subject, kind: Kind): Lists {
  let lists = known.get(run);
  if (!lists) known.set(run, (lists = new Map()));
  const key = subject + kind;
  if (!lists.has(key)) for (const [own, made] of subject === "call" ? ofCalls(run, kind) : ofSteps(run, kind)) lists.set(subject + own, made);
  return lists.get(key)!;
}

/** Collects lists, item after item. */
class Collector {
  private readonly first: Int32Array;
  private tensors = new Int32Array(1024);
  private count = 0;
  constructor(items: number) { this.first = new Int32Array(items + 1); }
  add(tensor: number): void {
    if (this.count === this.tensors.length) {
      const larger = new Int32Array(2 * this.count);
      larger.set(this.tensors);
      this.tensors = larger;
    }
    this.tensors[this.count++] = tensor;
  }
  close(item: number): void { this.first[item + 1] = this.count; }
  lists(): Lists { return new Lists(this.first, this.tensors); }
}

function ofCalls(run: Run, kind: Kind): [Kind, Lists][] {
  const { kind: kinds, value } = run.data.ports, first = run.data.calls.firstPort, wanted = kind === "input" ? 0 : 1;
  const all = new Collector(run.callCount);
  for (let call = 0; call < run.callCount; call++) {
    if (kind === "parameter") for (const one of run.parametersOf(call)) all.add(one);
    else for (let i = first[call]!; i < first[call + 1]!; i++) if (kinds[i] === wanted && value[i]! >= 0) all.add(value[i]!);
    all.close(call);
  }
  return [[kind, all.lists()]];
}

function ofSteps(run: Run, kind: Kind): [Kind, Lists][] {
  const { value } = run.data.steps, { firstStep } = run.data.calls, { name } = run.data.values;
  if (kind === "output") {
    const outputs = new Collector(value.length);
    for (let step = 0; step < value.length; step++) {
      if (value[step]! >= 0) outputs.add(value[step]!);
      if (run.moreOf.size) for (const one of run.moreOf.get(step) ?? []) outputs.add(one);
      outputs.close(step);
    }
    return [["output", outputs.lists()]];
  }
  const inputs = new Collector(value.length), parameters = new Collector(value.length);
  const add = (tensor: number): void => (name[tensor]! >= 0 ? parameters : inputs).add(tensor);
  for (let call = 0; call < run.callCount; call++)
    for (let step = firstStep[call]!; step < firstStep[call + 1]!; step++) {
      run.eachOperand(step, call, add);
      inputs.close(step);
      parameters.close(step);
    }
  return [["input", inputs.lists()], ["parameter", parameters.lists()]];
}
