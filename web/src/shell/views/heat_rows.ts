// The rows of a map of layers × steps: blocks that repeat are one row that can be opened, the worst rows stand first.

export interface HeatRow {
  name: string;
  count: number; // of the blocks that it stands for, 1 for a layer or parameter
  lines: readonly number[]; // of the chart
  parts: readonly HeatRow[];
  numbers: Float64Array; // by step: of its lines that which is farthest from the usual
  worst: number; // how far, in decades, in the last quarter of the steps
}

/** How far numbers are from the usual, in decades; below it is negative, NaN without a number. */
export type Far = (number: number, step: number) => number;

const FEWEST_BLOCKS = 3;
const MANY_LAYERS = 12; // of one list, that fold although each is one layer
export const ZERO = -20; // decades of a number that is exactly 0
const DIGITS = /^\d+$/;

interface Layer { path: string[]; lines: number[] }

/** The distance from one number, or, without one, from the median of the lines at each step. */
export function farFrom(usual: number | null, lines: readonly ArrayLike<number>[], steps: number): Far {
  const centres = Array.from({ length: usual === null ? steps : 0 }, (_, i) => {
    const sizes = lines.map((line) => Math.log10(line[i]!)).filter(Number.isFinite).sort((a, b) => a - b);
    return sizes[sizes.length >> 1] ?? 0;
  });
  return (number, step) => {
    if (Number.isNaN(number)) return NaN;
    return number > 0 ? Math.log10(number) - (usual === null ? centres[step]! : Math.log10(usual)) : ZERO;
  };
}

/** The rows of parameters by their names, each of which has a line. */
export function heatRows(names: readonly string[], lines: readonly ArrayLike<number>[], steps: number, far: Far): HeatRow[] {
  const layers = new Map<string, Layer>();
  names.forEach((name, line) => {
    const path = name.split(".").slice(0, -1), known = layers.get(path.join("."));
    if (known) known.lines.push(line);
    else layers.set(path.join("."), { path, lines: [line] });
  });

  const row = (name: string, mine: readonly number[], parts: readonly HeatRow[] = [], count = 1): HeatRow => {
    const numbers = Float64Array.from({ length: steps }, (_, i) => farthest(mine.map((line) => lines[line]![i]!), i));
    const last = Array.from(numbers.subarray(Math.floor((3 * steps) / 4)), (number, i) => Math.abs(far(number, i + Math.floor((3 * steps) / 4))));
    return { name, count, lines: mine, parts, numbers, worst: Math.max(-1, ...last.filter((distance) => !Number.isNaN(distance))) };
  };
  const farthest = (numbers: readonly number[], step: number): number => {
    let best = NaN, distance = -1;
    for (const number of numbers) {
      const its = Math.abs(far(number, step));
      if (its > distance) [best, distance] = [number, its];
    }
    return best;
  };
  const rowOfLayer = ({ path, lines: mine }: Layer): HeatRow =>
    row(mine.length > 1 && path.length ? path.join(".") : names[mine[0]!]!, mine, mine.length > 1 ? sorted(mine.map((line) => row(names[line]!, [line]))) : []);
  const rowsOf = (some: readonly Layer[], depth: number): HeatRow[] => {
    const own = some.filter(({ path }) => path.length === depth), groups = new Map<string, Layer[]>();
    for (const layer of some) if (layer.path.length > depth) groups.set(layer.path[depth]!, [...(groups.get(layer.path[depth]!) ?? []), layer]);
    const numbered = [...groups].filter(([key]) => DIGITS.test(key));
    const blocks = numbered.filter(([, inside]) => inside.some(({ path }) => path.length > depth + 1));
    const folded = blocks.length >= FEWEST_BLOCKS ? blocks : numbered.length > MANY_LAYERS ? numbered : [];
    const rows = own.map(rowOfLayer);
    if (folded.length) {
      const prefix = some[0]!.path.slice(0, depth), keys = folded.map(([key]) => key);
      const parts = folded.map(([key, inside]) => {
        const inner = rowsOf(inside, depth + 1);
        return inner.length === 1 ? inner[0]! : row([...prefix, key].join("."), inside.flatMap((layer) => layer.lines), inner);
      });
      rows.push(row(`${[...prefix, keys[0]].join(".")} … ${keys[keys.length - 1]}`, folded.flatMap(([, inside]) => inside.flatMap((layer) => layer.lines)), sorted(parts), folded.length));
    }
    const isFolded = new Set(folded.map(([key]) => key));
    for (const [key, inside] of groups) if (!isFolded.has(key)) rows.push(...rowsOf(inside, depth + 1));
    return sorted(rows);
  };
  return rowsOf([...layers.values()], 0);
}

function sorted(rows: readonly HeatRow[]): HeatRow[] {
  return [...rows].sort((a, b) => b.worst - a.worst);
}
