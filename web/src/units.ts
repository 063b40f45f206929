// Units of measures, and numbers as people read them, in the same units as data/measures.py does in Python.

type Step = readonly [name: string, factor: number];

function steps(unit: string): Step[] {
  const bytes = unit.startsWith("B");
  const prefixes = bytes ? ["", "Ki", "Mi", "Gi", "Ti", "Pi"] : ["", "k", "M", "G", "T", "P", "E"];
  return prefixes.map((prefix, power) => [prefix + unit, (bytes ? 1024 : 1000) ** power] as const);
}

const SECONDS: Step[] = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
const STEPS: Readonly<Record<string, readonly Step[]>> = {
  s: SECONDS,
  ...Object.fromEntries(["B", "FLOP", "MAC", "FLOP/s", "B/s", "FLOP/B", "1/s"].map((unit) => [unit, steps(unit)])),
};

/** Every unit that may be written after a number: how many plain units it is, and which. */
export const UNITS: ReadonlyMap<string, readonly [factor: number, unit: string]> = new Map([
  ...Object.entries(STEPS).flatMap(([unit, all]) => all.map(([name, factor]) => [name, [factor, unit]] as const)),
  ...["B", "B/s"].flatMap((unit) =>
    ["k", "M", "G", "T", "P"].map((prefix, power) => [prefix + unit, [1000 ** (power + 1), unit]] as const),
  ),
  ["us", [1e-6, "s"]] as const,
  ["%", [1, "%"]] as const,
]);

/** The unit that a number is shown in, with its prefix, and how many plain units that is. */
export function scaleOfUnit(number: number, unit: string): Step {
  const all = STEPS[unit] ?? [[unit, 1] as const];
  const fits = ([, factor]: Step): boolean => Math.abs(number) >= factor * 0.9995;
  if (unit === "s") return all.find(fits) ?? (number === 0 ? all[0]! : all[all.length - 1]!);
  return [...all].reverse().find(fits) ?? all[0]!;
}

/** A number with its unit, in three digits: `15.2 ms`, `3 MiB`, `n/a`. */
export function quantity(number: number | null, unit = ""): string {
  if (number === null || Number.isNaN(number)) return "n/a";
  const [name, factor] = scaleOfUnit(number, unit);
  return `${digits(number / factor, 3)} ${name}`.trim();
}

/** A number in so many significant digits, without zeros at the end: `0.0123`, `1.2e-7`, `4,096` for whole ones. */
export function digits(number: number, count = 4): string {
  if (!Number.isFinite(number)) return Number.isNaN(number) ? "NaN" : number > 0 ? "+Inf" : "−Inf";
  const size = Math.abs(number);
  if (size === 0) return "0";
  if (size < 1e-4 || size >= 10 ** Math.max(count, 4)) {
    const [mantissa, exponent] = number.toExponential(count - 1).split("e") as [string, string];
    return signed(`${trimmed(mantissa)}e${exponent.replace("+", "")}`);
  }
  return signed(size >= 10 ** (count - 1) ? number.toFixed(0) : trimmed(number.toPrecision(count)));
}

/** A whole number with its thousands apart. */
export function whole(number: number): string {
  return signed(Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, ","));
}

function trimmed(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function signed(text: string): string {
  return text.replace(/^-/, "−").replace("e-", "e−");
}

/** A shape with × between its sizes, `?` for one that is not known, `·` for a single number. */
export function shapeText(shape: ArrayLike<number>): string {
  return shape.length ? Array.from(shape, (size) => (size < 0 ? "?" : String(size))).join("×") : "·";
}
