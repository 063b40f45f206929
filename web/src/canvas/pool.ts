/** One number for many calls: the least, the middle and the largest of a repeat, and the member that stands out. */

export interface Pool {
  count: number;
  /** Members without a finite number. */
  nan: number;
  missing: number;
  min: number;
  median: number;
  max: number;
  /** Index of the member that lies away from all others, -1 where none does. */
  odd: number;
}

/** NaN and infinities are told apart from "not measured", which is `undefined`. */
export function poolOf(values: readonly (number | undefined)[]): Pool {
  const finite: number[] = [];
  let nan = 0, missing = 0;
  for (const v of values) {
    if (v === undefined) missing++;
    else if (Number.isFinite(v)) finite.push(v);
    else nan++;
  }
  finite.sort((a, b) => a - b);
  const n = finite.length, median = n ? (finite[(n - 1) >> 1]! + finite[n >> 1]!) / 2 : NaN;
  return { count: values.length, nan, missing, min: n ? finite[0]! : NaN, median, max: n ? finite[n - 1]! : NaN, odd: oddOne(values, finite, median, nan) };
}

const FAR = 6; // in medians of absolute deviation: about four standard deviations of a normal distribution

/** The only one that is NaN, or the one farthest from the middle if it lies six deviations and a tenth of the middle away. */
function oddOne(values: readonly (number | undefined)[], finite: readonly number[], median: number, nan: number): number {
  if (nan > 0) return nan < Math.max(2, values.length / 2) ? values.findIndex((v) => v !== undefined && !Number.isFinite(v)) : -1;
  if (finite.length < 3) return -1;
  const deviations = finite.map((v) => Math.abs(v - median)).sort((a, b) => a - b);
  const spread = deviations[deviations.length >> 1]!, far = deviations[deviations.length - 1]!;
  if (far <= Math.max(FAR * spread, Math.abs(median) * 0.1, 0)) return -1;
  // Where half of them are equal the spread is zero, and any other number would stand out: it must then differ by more than a tenth.
  return values.findIndex((v) => v !== undefined && Math.abs(v - median) === far);
}
