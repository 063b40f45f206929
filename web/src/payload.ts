// The data of a page: what Python packed, unpacked into columns, and how to look things up in it.
//
// The packed form (src/fxdebug/exports/page/pack.py): base64 of zlib of a block. The block is the length of a JSON
// head (4 bytes, little-endian), the head, zeros up to a multiple of 8, and the columns. In the head an object
// {"column": type, "at": byte, "length": n} stands for a column; an object with "whole" is one whose numbers are
// differences ("delta") or whose bytes are apart ("planes").

import type { Bodies, Body, Calls, Edge, Item, Kind, Output, Place, Port } from "./bodies";

export type Numbers = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array | Float64Array;

export const NONE = -1;
export const STATUSES = ["", "verified", "recorded", "opaque"] as const;
export const PORT_KINDS = ["input", "output", "given", "returned"] as const;
export const NODE_KINDS = ["placeholder", "get_attr", "call_function", "call_method", "call_module", "output"] as const;
export const ITEM_KINDS: readonly Kind[] = ["operation", "views", "structure", "call"];

// Everything below a "Data" type is as Python wrote it, with columns decoded. Text columns hold positions in `texts`.

export interface BodiesData {
  root: number;
  title: Numbers; // by body
  graph: Numbers; // by body: the graph it was made from, -1 without one
  firstInput: Numbers; firstItem: Numbers; firstOutput: Numbers; // by body, and one more
  inputName: Numbers; inputShape: Numbers;
  kind: Numbers; label: Numbers; type: Numbers; shape: Numbers; body: Numbers; // by item
  step: Numbers; // by item: the position of the step in the graph of the body, -1 where there is no graph
  health: Numbers; // by item: 0 where all is well; items that differ in it are not drawn as one
  firstEdge: Numbers; // by item, and one more
  from: Numbers; argument: Numbers; output: Numbers; // by edge
  outputFrom: Numbers; outputOutput: Numbers; outputName: Numbers;
}

export interface CallsData {
  path: Numbers; type: Numbers; number: Numbers; parent: Numbers; depth: Numbers; body: Numbers; graph: Numbers;
  item: Numbers; // its item in the body of its parent, -1 for none
  status: Numbers; reason: Numbers; source: Numbers; method: Numbers; duration: Numbers;
  failure: Numbers; // position in failures, -1 for none
  guards: Numbers; // position in guards, -1 for none
  flags: Numbers; // CALL_TRAINING …
  firstStep: Numbers; firstPort: Numbers; // by call, and one more
  finished: Numbers; // order in which calls ended, -1 if it never did
}

export const CALL_TRAINING = 1;
export const CALL_GRAD = 2;
export const CALL_LATE = 4; // registered during the run
export const CALL_UNREGISTERED = 8;
export const CALL_HAS_SUBMODULES = 16;

export interface StepsData {
  // by graph
  first: Numbers; // and one more
  code: Numbers; // text of the graph as a Python function, -1 where it was left out
  // by graph and step
  name: Numbers; kind: Numbers; op: Numbers; target: Numbers; text: Numbers;
  firstOperand: Numbers; // and one more
  operand: Numbers; // position of the step in its graph whose result is read
  // by call and step
  value: Numbers; // first tensor of the result, -1 for none
  source: Numbers;
  // further tensors of results
  moreStep: Numbers; moreValue: Numbers;
}

export interface ValuesData {
  shape: Numbers; dtype: Numbers; device: Numbers; layout: Numbers; type: Numbers; name: Numbers; sharding: Numbers;
  detail: Numbers; storage: Numbers; requiresGrad: Numbers; bytes: Numbers;
  statistics: StatisticsData;
}

// NaN where a statistic was not taken, or where there is no finite element.
export interface StatisticsData {
  count: Numbers; mean: Numbers; std: Numbers; min: Numbers; max: Numbers; absmax: Numbers;
  nan: Numbers; posinf: Numbers; neginf: Numbers; zeros: Numbers;
}

export interface ParametersData {
  names: Numbers[] | string[][]; kind: Numbers; shape: Numbers; dtype: Numbers; device: Numbers; sharding: Numbers;
  requiresGrad: Numbers; changed: Numbers; before: StatisticsData; statistics: StatisticsData;
}

export interface PortsData { kind: Numbers; slot: Numbers; value: Numbers; text: Numbers }

export interface Failure { type: string; message: string; here: boolean; traceback: string; source: string }
export interface Note { what: string; where: string; call: number }
export interface Guard { what: string; answer: string; source: string }

export interface Finding {
  rule: string; severity: "error" | "warning" | "advice"; what: string; advice: string; source: string;
  analysis: string; call: number; step: number; // step: as in `steps` by call and step, -1 for the call itself
  measured: number | null; threshold: number | null; unit: string;
  reached: number; output: boolean; others: [call: number, step: number][];
}

export interface MeasureData {
  name: string; unit: string; about: string; of: string[]; adds: boolean; own: boolean; by: string;
  calls: Numbers | null; // by call, NaN where there is no number; null for a measure that is read from tensors
  steps: { at: Numbers; number: Numbers } | null;
}

export interface Spans { call: Numbers; name: Numbers; depth: Numbers; begin: Numbers; end: Numbers; by: string } // seconds
export interface Series { name: string; unit: string; numbers: Numbers }
// `marks` are at positions of the series; each of its points stands for `step` events or steps of a training.
export interface Timeline { title: string; by: string; series: Series[]; marks: [at: number, label: string][]; step: number }
// Lines over the steps of a training; `numbers` has one line after the other. Without a call a line is about the whole.
export interface ChartData {
  title: string; unit: string; about: string; steps: Numbers; names: string[]; calls: Numbers; numbers: Numbers;
  marks: [step: number, label: string][];
  layers: string[]; // the lines of a map of layers × steps, none where there is no such map
  usual: [low: number, high: number] | null; // where its numbers usually are
}
export interface HistogramsData { value: Numbers; first: Numbers; edges: Numbers; counts: Numbers; nan: Numbers; inf: Numbers }
export interface NamedHistogram { id: string; call: number; edges: number[]; counts: number[]; nan: number; inf: number }

export interface AttentionData {
  call: number; name: string; heads: number; shape: [rows: number, heads: number, queries: number, keys: number];
  queries: string[][]; keys: string[][]; weights: Numbers; steps: number; // weight = number / steps
  error: number | null;
}

export interface ReportColumn { field: string; heading: string; unit: string; about: string; adds: boolean }
export interface ReportPage {
  analysis: string; subject: string; columns: ReportColumn[]; rows: (string | number | boolean | null)[][];
  calls: number[]; // of each row, -1 for none
  totals: [heading: string, value: string | number | boolean | null, unit: string][];
  findings: Finding[]; notes: Note[]; histograms: NamedHistogram[];
}

export interface RunData {
  model: string; started: string; duration: number; folder: string;
  versions: [string, string][]; settings: [string, string][];
  hasGraphs: boolean; partial: string; // a sentence on why the run is not whole, "" if it is
  bodies: BodiesData; calls: CallsData; steps: StepsData; values: ValuesData; parameters: ParametersData;
  ports: PortsData; failures: Failure[]; notes: Note[]; guards: Guard[][]; findings: Finding[];
  neverCalled: [path: string, type: string, call: number][]; // the call it stands directly in; -1 inside of another one
  lines: [source: string, text: string][];
  measures: MeasureData[]; histograms: HistogramsData | null; spans: Spans | null; timelines: Timeline[]; charts: ChartData[];
  attention: AttentionData[]; reports: ReportPage[];
}

export const VERDICTS = ["equal", "inherited", "adds", "absorbed", "ignored", "unknown", "only_a", "only_b"] as const;

export interface ComparisonData {
  verdict: string; headline: string[]; tone: "good" | "warn" | "bad"; summary: string[]; // headline: the verdict in a sentence, and what goes with it
  notes: string[]; kinds: Record<string, string>;
  rows: {
    aCall: Numbers; aStep: Numbers; bCall: Numbers; bStep: Numbers; // -1 for none; a step of -1 is the call itself
    verdict: Numbers; kind: Numbers; error: Numbers; errorIn: Numbers; tolerance: Numbers; sure: Numbers;
    because: Numbers; how: Numbers; aValue: Numbers; bValue: Numbers;
    maxAbs: Numbers; basis: Numbers;
  };
  kindNames: string[]; // rows.kind is a position here, -1 for no finding
  findings: number[]; // rows, the first in execution order first
  first: number; // row, -1 for none
  onward: { call: Numbers; step: Numbers }; // of b: all that depends on the first finding and carries its error
  counts: { calls: number[]; operations: number[]; returned: number[]; share: number };
}

export interface PageData {
  version: string; title: string; made: string; texts: string[];
  runs: RunData[]; // one, or a and b
  comparison: ComparisonData | null;
  // Where fxdebug serve tells of changes, and the pages of runs that a training kept, by step.
  live: { revision: string; url: string; runs?: [step: number, url: string][] } | null;
}

// Decoding ----------------------------------------------------------------------------------------

const KINDS = {
  u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array, f32: Float32Array, f64: Float64Array,
} as const;

interface Packed { column: keyof typeof KINDS; at: number; length: number; delta?: boolean; planes?: boolean }

/** Return the bytes of base64 text. */
export function bytesOf(text: string): Uint8Array {
  const quick = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array }).fromBase64;
  if (quick) return quick.call(Uint8Array, text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function inflated(bytes: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Return the data of a page from its base64 text. */
export async function readPayload(text: string): Promise<Payload> {
  return new Payload(unpacked(await inflated(bytesOf(text.trim()))) as PageData);
}

/** Return the head of a block with its columns. */
export function unpacked(block: Uint8Array): unknown {
  const size = new DataView(block.buffer, block.byteOffset).getUint32(0, true);
  const head: unknown = JSON.parse(new TextDecoder().decode(block.subarray(4, 4 + size)));
  const start = Math.ceil((4 + size) / 8) * 8;
  return filled(head, block, start);
}

function filled(node: unknown, block: Uint8Array, start: number): unknown {
  if (Array.isArray(node)) {
    if (node.length && typeof node[0] === "object") for (let i = 0; i < node.length; i++) node[i] = filled(node[i], block, start);
    return node;
  }
  if (node === null || typeof node !== "object") return node;
  if ("column" in node && "at" in node) return column(node as Packed, block, start);
  const record = node as Record<string, unknown>;
  for (const key in record) {
    const inner = record[key];
    if (inner !== null && typeof inner === "object") record[key] = filled(inner, block, start);
  }
  return record;
}

function column(packed: Packed, block: Uint8Array, start: number): Numbers {
  const Kind = KINDS[packed.column], width = Kind.BYTES_PER_ELEMENT, n = packed.length;
  const begin = block.byteOffset + start + packed.at;
  let numbers: Numbers;
  if (packed.planes) {
    const apart = new Uint8Array(block.buffer, begin, n * width), together = new Uint8Array(n * width);
    for (let p = 0; p < width; p++) for (let i = 0, at = p, from = p * n; i < n; i++, at += width) together[at] = apart[from + i]!;
    numbers = new Kind(together.buffer);
  } else numbers = new Kind(block.buffer as ArrayBuffer, begin, n);
  if (packed.delta) for (let i = 1, sum = numbers[0] ?? 0; i < n; i++) numbers[i] = sum += numbers[i]!;
  return numbers;
}

// Looking things up -------------------------------------------------------------------------------

/** The data of a page: one run, or two runs and their comparison. */
export class Payload {
  readonly runs: Run[];
  constructor(readonly data: PageData) {
    this.runs = data.runs.map((run) => new Run(run, data.texts));
  }
  /** The run that is looked at: the only one, or b of a comparison. */
  get run(): Run { return this.runs[this.runs.length - 1]!; }
  get comparison(): ComparisonData | null { return this.data.comparison; }
}

class PackedBody implements Body {
  private known: Item[] | null = null;
  constructor(private readonly run: Run, readonly index: number) {}
  get title(): string { return this.run.text(this.run.data.bodies.title[this.index]!); }
  get whole(): boolean {
    const { firstItem, firstOutput, step } = this.run.data.bodies, first = firstItem[this.index]!;
    if (firstOutput[this.index] === firstOutput[this.index + 1]) return false; // it raised, or was cut off
    return first === firstItem[this.index + 1]! || step[first]! >= 0;
  }
  get inputs(): Port[] {
    const { firstInput, inputName, inputShape } = this.run.data.bodies, ports: Port[] = [];
    for (let i = firstInput[this.index]!; i < firstInput[this.index + 1]!; i++)
      ports.push({ name: this.run.text(inputName[i]!), shape: this.run.text(inputShape[i]!) });
    return ports;
  }
  get items(): Item[] {
    if (this.known) return this.known;
    const all = this.run.data.bodies, items: Item[] = [];
    for (let i = all.firstItem[this.index]!; i < all.firstItem[this.index + 1]!; i++) {
      const edges: Edge[] = [];
      for (let e = all.firstEdge[i]!; e < all.firstEdge[i + 1]!; e++)
        edges.push({ from: all.from[e]!, argument: all.argument[e]!, output: all.output[e]! });
      items.push({
        kind: ITEM_KINDS[all.kind[i]!]!, label: this.run.text(all.label[i]!), type: this.run.text(all.type[i]!), edges,
        shape: this.run.text(all.shape[i]!), body: all.body[i]!, times: 1, health: all.health[i]!,
      });
    }
    return (this.known = items);
  }
  get outputs(): Output[] {
    const { firstOutput, outputFrom, outputOutput, outputName } = this.run.data.bodies, outputs: Output[] = [];
    for (let i = firstOutput[this.index]!; i < firstOutput[this.index + 1]!; i++)
      outputs.push({ from: outputFrom[i]!, output: outputOutput[i]!, name: this.run.text(outputName[i]!) });
    return outputs;
  }
}

/** What a tensor of a call is: an argument, a result. `value` is -1 for one that is no tensor; then `text` is it. */
export interface CallPort { kind: (typeof PORT_KINDS)[number]; slot: string; value: number; text: string }

/** One tensor with everything that is known of it. */
export interface ValueFacts {
  value: number; shape: string; dtype: string; device: string; layout: string; type: string; name: string;
  sharding: string; detail: string; storage: number; requiresGrad: boolean; bytes: number;
  statistics: Statistics | null;
}

export interface Statistics {
  count: number; mean: number; std: number; min: number; max: number; absmax: number;
  nan: number; posinf: number; neginf: number; zeros: number;
}

/** A tensor that an operation takes, and the step that made it. */
export interface Operand { value: number; step: number; name: string }

export interface StepFacts {
  step: number; call: number; name: string; kind: (typeof NODE_KINDS)[number]; op: string; target: string; text: string;
  source: string; values: number[];
}

const OF_TENSORS = new Set([
  "count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "inf", "zeros", "finite", "numel", "ndim",
  "requires_grad", "bytes",
]);

/** One run: its columns, and functions that look things up. Calls, values, steps are numbers from 0. */
export class Run {
  readonly bodies: Bodies;
  readonly calls: Calls; // the tree, as the layout asks for it
  readonly callCount: number;
  private readonly firstChild: Int32Array; // by call: the first call in it
  private readonly nextSibling: Int32Array;
  private shownChildren: { start: Int32Array; list: Int32Array } | null = null; // by call: those that its body shows
  private readonly ofMeasure = new Map<string, MeasureData>();
  private readonly stepNumbers = new Map<string, Map<number, number>>();
  private more: Map<number, number[]> | null = null;
  private lineTexts: Map<string, string> | null = null;
  private histogramOf: Map<number, number> | null = null;
  private callsByPath: Map<number, number[]> | null = null;
  private parametersByOwner: Map<string, number[]> | null = null;

  constructor(readonly data: RunData, private readonly texts: string[]) {
    const calls = data.calls;
    this.callCount = calls.path.length;
    const count = data.bodies.title.length, decoded: Body[] = new Array<Body>(count);
    this.bodies = { root: data.bodies.root, count, body: (i) => (decoded[i] ??= new PackedBody(this, i)) };
    this.calls = {
      parent: (call) => calls.parent[call]!,
      item: (call) => calls.item[call]!,
      child: (call, item) => this.childAt(call, item),
    };
    this.firstChild = new Int32Array(this.callCount).fill(NONE);
    this.nextSibling = new Int32Array(this.callCount).fill(NONE);
    for (let call = this.callCount - 1; call > 0; call--) {
      const parent = calls.parent[call]!;
      if (parent < 0) continue;
      this.nextSibling[call] = this.firstChild[parent]!;
      this.firstChild[parent] = call;
    }
    for (const measure of data.measures) this.ofMeasure.set(measure.name, measure);
  }

  /** Return a text by its position; "" for -1. */
  text(position: number): string { return position < 0 ? "" : this.texts[position] ?? ""; }

  // Calls -----------------------------------------------------------------------------------------

  path(call: number): string { return this.text(this.data.calls.path[call]!); }
  type(call: number): string { return this.text(this.data.calls.type[call]!); }
  parent(call: number): number { return this.data.calls.parent[call]!; }
  /** Return what a call did; an empty body for one inside which nothing can be seen. */
  body(call: number): Body {
    const body = this.data.calls.body[call]!;
    return body < 0 ? { title: this.type(call), inputs: [], items: [], outputs: [] } : this.bodies.body(body);
  }
  status(call: number): (typeof STATUSES)[number] { return STATUSES[this.data.calls.status[call]!]!; }
  reason(call: number): string { return this.text(this.data.calls.reason[call]!); }
  source(call: number): string { return this.text(this.data.calls.source[call]!); }
  code(call: number): string {
    const graph = this.data.calls.graph[call]!;
    return graph < 0 ? "" : this.text(this.data.steps.code[graph]!);
  }
  failure(call: number): Failure | null { return this.data.failures[this.data.calls.failure[call]!] ?? null; }
  /** Return the innermost call that the exception came from, of those in a call; -1 where it raised none. */
  raisedIn(call: number): number {
    let inner = this.failure(call) ? call : NONE;
    for (let next: number | undefined = inner; next !== undefined && next >= 0; next = this.children(inner).findLast((child) => this.failure(child))) inner = next;
    return inner;
  }
  guards(call: number): Guard[] { return this.data.guards[this.data.calls.guards[call]!] ?? []; }
  /** The notes of a call; at the root also those of none. */
  notes(call: number): Note[] { return this.data.notes.filter((note) => note.call === call || (!call && note.call < 0)); }

  /** Return the last part of a call's path: its name in the call around it. */
  name(call: number): string {
    const path = this.path(call), parent = this.parent(call);
    if (!path) return this.type(call);
    const around = parent < 0 ? "" : this.path(parent);
    return around && path.startsWith(around + ".") ? path.slice(around.length + 1) : path;
  }

  /** Return path and number, such as "encoder.layer.0#0"; unique in the run. */
  id(call: number): string { return `${this.path(call)}#${this.data.calls.number[call]!}`; }

  /** Return the call of an id, or of a path that was called once; -1 if there is none. */
  callOf(id: string): number {
    if (!this.callsByPath) {
      this.callsByPath = new Map();
      this.data.calls.path.forEach((text, call) => {
        const known = this.callsByPath!.get(text);
        if (known) known.push(call);
        else this.callsByPath!.set(text, [call]);
      });
    }
    const cut = id.lastIndexOf("#"), path = cut < 0 ? id : id.slice(0, cut), number = cut < 0 ? 0 : Number(id.slice(cut + 1));
    for (const [text, calls] of this.callsByPath)
      if (this.text(text) === path) return calls.find((call) => this.data.calls.number[call] === number) ?? NONE;
    return NONE;
  }

  /** Return the calls made directly in a call, in execution order. */
  children(call: number): number[] {
    const found: number[] = [];
    for (let child = this.firstChild[call]!; child >= 0; child = this.nextSibling[child]!) found.push(child);
    return found;
  }

  hasChildren(call: number): boolean { return this.firstChild[call]! >= 0; }

  /** Return the call that an item of a call's body is; -1 for an operation. */
  childAt(call: number, item: number): number {
    // By halving: a flat model has one call with 50,000 in it.
    const { start, list } = (this.shownChildren ??= shownChildren(this.data.calls)), items = this.data.calls.item, end = start[call + 1]!;
    let low = start[call]!, high = end;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (items[list[middle]!]! < item) low = middle + 1;
      else high = middle;
    }
    return low < end && items[list[low]!] === item ? list[low]! : NONE;
  }

  /** Return a place in its one form: the call where it names one, else the operation. */
  normal(place: Place): Place {
    if (place.item < 0) return place;
    const child = this.childAt(place.call, place.item);
    return child < 0 ? place : { call: child, item: NONE };
  }

  /** Return the place as an item of the call around it; of the root and of calls that no graph shows: itself. */
  outside(place: Place): Place {
    if (place.item >= 0) return place;
    const parent = this.parent(place.call), item = this.data.calls.item[place.call]!;
    return parent < 0 || item < 0 ? place : { call: parent, item };
  }

  // Ports and values --------------------------------------------------------------------------------

  ports(call: number): CallPort[] {
    const { kind, slot, value, text } = this.data.ports, found: CallPort[] = [];
    for (let i = this.data.calls.firstPort[call]!; i < this.data.calls.firstPort[call + 1]!; i++)
      found.push({ kind: PORT_KINDS[kind[i]!]!, slot: this.text(slot[i]!), value: value[i]!, text: this.text(text[i]!) });
    return found;
  }

  /** Return the first tensor that a call returned; -1 for none. */
  outputOf(call: number): number {
    const { kind, value } = this.data.ports;
    for (let i = this.data.calls.firstPort[call]!; i < this.data.calls.firstPort[call + 1]!; i++)
      if (kind[i] === 1 && value[i]! >= 0) return value[i]!;
    return NONE;
  }

  facts(value: number): ValueFacts {
    const all = this.data.values;
    return {
      value, shape: this.text(all.shape[value]!), dtype: this.text(all.dtype[value]!), device: this.text(all.device[value]!),
      layout: this.text(all.layout[value]!), type: this.text(all.type[value]!), name: this.text(all.name[value]!),
      sharding: this.text(all.sharding[value]!), detail: this.text(all.detail[value]!), storage: all.storage[value]!,
      requiresGrad: all.requiresGrad[value] === 1, bytes: all.bytes[value]!, statistics: statisticsAt(all.statistics, value),
    };
  }

  histogram(value: number): { edges: Numbers; counts: Numbers; nan: number; inf: number } | null {
    const all = this.data.histograms;
    if (!all) return null;
    if (!this.histogramOf) this.histogramOf = new Map(Array.from(all.value, (v, i) => [v, i]));
    const i = this.histogramOf.get(value);
    if (i === undefined) return null;
    const begin = all.first[i]!, end = all.first[i + 1]!; // one edge more than counts for each histogram before it
    return { edges: all.edges.subarray(begin + i, end + i + 1), counts: all.counts.subarray(begin, end), nan: all.nan[i]!, inf: all.inf[i]! };
  }

  // Operations --------------------------------------------------------------------------------------

  /** Return the step of an operation; -1 for a call, and where there is no graph. */
  stepOf(place: Place): number {
    if (place.item < 0) return NONE;
    const bodies = this.data.bodies, item = bodies.firstItem[this.data.calls.body[place.call]!]! + place.item;
    const step = bodies.step[item]!;
    return step < 0 ? NONE : this.data.calls.firstStep[place.call]! + step;
  }

  /** Return the call that a step is in. */
  callOfStep(step: number): number {
    const first = this.data.calls.firstStep;
    let low = 0, high = this.callCount;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (first[middle]! <= step) low = middle;
      else high = middle;
    }
    return low;
  }

  /** Return the item that a step is, or the call that it makes; the call that it is in for what is no item: an input. */
  placeOfStep(step: number, call = this.callOfStep(step)): Place {
    const bodies = this.data.bodies, body = this.data.calls.body[call]!;
    const wanted = step - this.data.calls.firstStep[call]!, first = bodies.firstItem[body]!;
    let low = first, high = bodies.firstItem[body + 1]!; // items are in the order of steps
    while (low < high) {
      const middle = (low + high) >> 1;
      if (bodies.step[middle]! < wanted) low = middle + 1;
      else high = middle;
    }
    const isItem = low < bodies.firstItem[body + 1]! && bodies.step[low] === wanted;
    return this.normal({ call, item: isItem ? low - first : NONE });
  }

  step(step: number, call = this.callOfStep(step)): StepFacts {
    const all = this.data.steps, graph = this.data.calls.graph[call]!;
    const at = all.first[graph]! + step - this.data.calls.firstStep[call]!;
    return {
      step, call, name: this.text(all.name[at]!), kind: NODE_KINDS[all.kind[at]!]!, op: this.text(all.op[at]!),
      target: this.text(all.target[at]!), text: this.text(all.text[at]!), source: this.text(all.source[step]!),
      values: this.valuesOfStep(step),
    };
  }

  valuesOfStep(step: number): number[] {
    const first = this.data.steps.value[step]!;
    if (first < 0) return [];
    return [first, ...(this.moreOf.get(step) ?? [])];
  }

  /** By step of several tensors those after the first. */
  get moreOf(): ReadonlyMap<number, readonly number[]> {
    if (this.more) return this.more;
    const { moreStep, moreValue } = this.data.steps, more = new Map<number, number[]>();
    moreStep.forEach((step, i) => {
      const known = more.get(step);
      if (known) known.push(moreValue[i]!);
      else more.set(step, [moreValue[i]!]);
    });
    return (this.more = more);
  }

  /** Call a function with each tensor that a step reads, parameters and buffers too: the first of each result, of `getitem` the part. */
  eachOperand(step: number, call: number, tell: (value: number, at: number) => void): void {
    const all = this.data.steps, first = this.data.calls.firstStep[call]!, graph = all.first[this.data.calls.graph[call]!]!;
    const at = graph + step - first;
    for (let i = all.firstOperand[at]!; i < all.firstOperand[at + 1]!; i++) {
      const made = all.operand[i]!;
      let value = all.value[first + made]!;
      if (value >= 0 && this.moreOf.has(first + made) && this.takesPart(at)) value = all.value[step]!;
      if (value >= 0) tell(value, made);
    }
  }

  private readonly takers = new Map<number, boolean>(); // by the text of an operation
  private takesPart(at: number): boolean {
    const op = this.data.steps.op[at]!;
    let takes = this.takers.get(op);
    if (takes === undefined) this.takers.set(op, (takes = /^get(item|attr)$/.test(this.text(op))));
    return takes;
  }

  /** Return the tensors that a step reads, each with the step that made it. */
  operands(step: number, call = this.callOfStep(step)): Operand[] {
    const all = this.data.steps, found: Operand[] = [], graph = all.first[this.data.calls.graph[call]!]!, first = this.data.calls.firstStep[call]!;
    this.eachOperand(step, call, (value, made) => found.push({ value, step: first + made, name: this.text(all.name[graph + made]!) }));
    return found;
  }

  /** Return the tensor that numbers about a place are of: the first of its result; -1 for none. */
  valueOf(place: Place): number {
    const normal = this.normal(place);
    if (normal.item < 0) return this.outputOf(normal.call);
    const step = this.stepOf(normal);
    return step < 0 ? NONE : this.data.steps.value[step]!;
  }

  // Following the data ------------------------------------------------------------------------------

  /** Return the operations and calls whose results a place takes, each once, innermost as it is in the graph. */
  producers(place: Place): Place[] {
    const inner = this.outside(place), found = new Map<string, Place>();
    if (inner.item < 0) return [];
    for (const edge of this.body(inner.call).items[inner.item]?.edges ?? []) this.follow(inner.call, edge.from, found);
    return [...found.values()];
  }

  private follow(call: number, from: number, found: Map<string, Place>): void {
    while (from < 0) {
      const out = this.outside({ call, item: NONE });
      if (out.item < 0) {
        found.set(`input ${~from}`, { call, item: NONE });
        return;
      }
      const edge = this.body(out.call).items[out.item]?.edges.find((one) => one.argument === ~from);
      if (!edge) return;
      call = out.call;
      from = edge.from;
    }
    const place = this.normal({ call, item: from });
    found.set(`${place.call}/${place.item}`, place);
  }

  /** Return the operations and calls that take the result of a place, each once. */
  consumers(place: Place): Place[] {
    const inner = this.outside(place), found = new Map<string, Place>();
    if (inner.item < 0) return [];
    const seen = new Set<string>();
    const pending: [call: number, item: number][] = [[inner.call, inner.item]];
    while (pending.length) {
      const [call, item] = pending.pop()!, body = this.body(call);
      body.items.forEach((one, i) => {
        if (one.edges.some((edge) => edge.from === item)) {
          const reader = this.normal({ call, item: i });
          found.set(`${reader.call}/${reader.item}`, reader);
        }
      });
      if (body.outputs.some((output) => output.from === item)) {
        const out = this.outside({ call, item: NONE }), key = `${out.call}/${out.item}`;
        if (out.item >= 0 && !seen.has(key)) {
          seen.add(key);
          pending.push([out.call, out.item]);
        }
      }
    }
    return [...found.values()];
  }

  // Measures ----------------------------------------------------------------------------------------

  measure(name: string): MeasureData | undefined { return this.ofMeasure.get(name); }

  /** Return a number of a call or operation by the name of its measure; null where there is none. */
  number(name: string, place: Place): number | null {
    const normal = this.normal(place);
    if (OF_TENSORS.has(name)) return this.numberOfValue(name, this.valueOf(normal));
    const measure = this.ofMeasure.get(name);
    if (!measure) return null;
    if (normal.item < 0) return known(measure.calls?.[normal.call]);
    const step = this.stepOf(normal);
    return step < 0 ? null : this.numberOfStep(name, step);
  }

  numberOfStep(name: string, step: number): number | null {
    if (OF_TENSORS.has(name)) return this.numberOfValue(name, this.data.steps.value[step] ?? NONE);
    const steps = this.ofMeasure.get(name)?.steps;
    if (!steps) return null;
    let numbers = this.stepNumbers.get(name);
    if (!numbers) {
      numbers = new Map();
      for (let i = 0; i < steps.at.length; i++) numbers.set(steps.at[i]!, steps.number[i]!);
      this.stepNumbers.set(name, numbers);
    }
    return numbers.get(step) ?? null;
  }

  numberOfValue(name: string, value: number): number | null {
    if (value < 0) return null;
    const all = this.data.values;
    if (name === "bytes") return all.bytes[value]!;
    if (name === "requires_grad") return all.requiresGrad[value]!;
    const sizes = sizesOf(this.text(all.shape[value]!));
    if (name === "ndim") return sizes.length;
    if (name === "numel") return sizes.reduce((product, size) => product * size, 1);
    const s = all.statistics;
    if (name === "inf") return known(s.posinf[value]! + s.neginf[value]!);
    if (name === "finite") return known(s.count[value]! - s.nan[value]! - s.posinf[value]! - s.neginf[value]!);
    return known((s[name as keyof StatisticsData] as Numbers | undefined)?.[value]);
  }

  // Parameters, lines -------------------------------------------------------------------------------

  /** Return the parameters and buffers of the module of a call itself, not of the modules in it. */
  parametersOf(call: number): number[] {
    if (!this.parametersByOwner) {
      this.parametersByOwner = new Map();
      (this.data.parameters.names as string[][]).forEach((names, i) => {
        for (const name of names) {
          const cut = name.lastIndexOf("."), owner = cut < 0 ? "" : name.slice(0, cut);
          const listed = this.parametersByOwner!.get(owner);
          if (!listed) this.parametersByOwner!.set(owner, [i]);
          else if (!listed.includes(i)) listed.push(i);
        }
      });
    }
    return this.parametersByOwner.get(this.path(call)) ?? [];
  }

  /** Return the text of a source line, such as "model.py:12"; "" where it is not known. */
  line(source: string): string {
    if (!this.lineTexts) this.lineTexts = new Map(this.data.lines);
    return this.lineTexts.get(source) ?? "";
  }
}

/** Of each call the calls that its body shows, in the order of their items. */
function shownChildren({ parent, item }: CallsData): { start: Int32Array; list: Int32Array } {
  const count = parent.length, start = new Int32Array(count + 1);
  const isShown = (call: number): boolean => parent[call]! >= 0 && item[call]! >= 0;
  for (let call = 1; call < count; call++) if (isShown(call)) start[parent[call]! + 1]!++;
  for (let call = 0; call < count; call++) start[call + 1]! += start[call]!;
  const next = start.slice(), list = new Int32Array(start[count]!);
  for (let call = 1; call < count; call++) if (isShown(call)) list[next[parent[call]!]!++] = call;
  for (let call = 0; call < count; call++) {
    const part = list.subarray(start[call]!, start[call + 1]!);
    if (part.some((child, i) => i > 0 && item[part[i - 1]!]! > item[child]!)) part.sort((a, b) => item[a]! - item[b]!);
  }
  return { start, list };
}

/** Return the sizes of a shape as it is written: "2×8×384"; "·" is one of no dimensions. */
export function sizesOf(shape: string): number[] {
  return shape === "·" || shape === "" ? [] : shape.split("×").map((size) => (size === "?" ? NaN : Number(size)));
}

/** Return the statistics at a position; null where none were taken. */
export function statisticsAt(all: StatisticsData, i: number): Statistics | null {
  if (Number.isNaN(all.count[i]!)) return null;
  return {
    count: all.count[i]!, mean: all.mean[i]!, std: all.std[i]!, min: all.min[i]!, max: all.max[i]!, absmax: all.absmax[i]!,
    nan: all.nan[i]!, posinf: all.posinf[i]!, neginf: all.neginf[i]!, zeros: all.zeros[i]!,
  };
}

function known(number: number | undefined): number | null {
  return number === undefined || Number.isNaN(number) ? null : number;
}
