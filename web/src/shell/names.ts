// The names that conditions may use about a run, read from its columns: the measures of tensors, of calls, of operations.

import type { Numbers, Run, StatisticsData } from "../payload";
import { sizesOf } from "../payload";
import type { Fact, Names } from "./where";

type Reader = (at: number) => Fact;

const STATISTICS = ["count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros"] as const;
const SIZES = ["inf", "finite", "numel", "ndim", "requires_grad", "bytes"] as const;
const OF_TENSORS: readonly string[] = [...STATISTICS, ...SIZES];

export type Subject = "call" | "operation";

/** The names for conditions on the calls, or on the operations (by their steps), of a run. */
export function namesOf(run: Run, subject: Subject): Names {
  return {
    ofTensor(name, kind) {
      if (!OF_TENSORS.includes(name)) return null;
      return ofTensor(run, name, kind === "parameter" && subject === "call" ? parametersOf(run) : valuesOf(run));
    },
    ofItem: (name) => ofItem(run, name, subject),
    unit: (name) => (name === "bytes" ? "B" : run.measure(name)?.unit ?? ""),
    all: () => [...new Set([...OF_TENSORS, ...run.data.measures.map((measure) => measure.name)])],
  };
}

/** Has a run numbers of this measure for calls, or for operations? */
export function isMeasureOf(run: Run, name: string, subject: Subject): boolean {
  return OF_TENSORS.includes(name) || (run.measure(name)?.of.includes(subject) ?? false);
}

/** The tensors of one kind, as columns. */
interface Columns {
  readonly statistics: StatisticsData;
  readonly shape: Numbers;
  readonly requiresGrad: Numbers;
  bytes(at: number): number;
}

function ofTensor(run: Run, name: string, all: Columns): Reader {
  const { statistics } = all;
  const size = (at: number): number => sizesOf(run.text(all.shape[at]!)).reduce((product, one) => product * one, 1);
  if ((STATISTICS as readonly string[]).includes(name)) return ofColumn(statistics[name as keyof StatisticsData]);
  switch (name) {
    case "bytes":
      return all.bytes;
    case "requires_grad":
      return ofColumn(all.requiresGrad);
    case "inf":
      return (at) => known(statistics.posinf[at]! + statistics.neginf[at]!);
    case "finite":
      return (at) => known(statistics.count[at]! - statistics.nan[at]! - statistics.posinf[at]! - statistics.neginf[at]!);
    case "ndim":
      return (at) => sizesOf(run.text(all.shape[at]!)).length;
    default:
      return size;
  }
}

/** The parameters and buffers of a run as columns, as the run left them. */
function parametersOf(run: Run): Columns {
  const { statistics, shape, requiresGrad, dtype } = run.data.parameters;
  const bytes = (at: number): number => {
    const bits = /\d+/.exec(run.text(dtype[at]!))?.[0] ?? "8"; // bool
    return (sizesOf(run.text(shape[at]!)).reduce((product, one) => product * one, 1) * Number(bits)) / 8;
  };
  return { statistics, shape, requiresGrad, bytes };
}

function valuesOf(run: Run): Columns {
  const { statistics, shape, requiresGrad, bytes } = run.data.values;
  return { statistics, shape, requiresGrad, bytes: (at) => bytes[at]! };
}

function ofItem(run: Run, name: string, subject: Subject): Reader | null {
  const measure = run.measure(name);
  if (!measure || OF_TENSORS.includes(name)) return null;
  if (!measure.of.includes(subject)) return () => null;
  if (subject === "operation") return (step) => run.numberOfStep(name, step);
  return measure.calls ? ofColumn(measure.calls) : () => null;
}

function ofColumn(column: Numbers): Reader {
  return (at) => known(column[at]);
}

function known(number: number | undefined): number | null {
  return number === undefined || Number.isNaN(number) ? null : number;
}
