import assert from "node:assert/strict";
import { test } from "node:test";
import { farFrom, heatRows, ZERO, type HeatRow } from "../src/shell/views/heat_rows";

/** Rows of lines that have one number each. */
function rows(numbers: Record<string, number>, usual: number | null = 1e-3): HeatRow[] {
  const lines = Object.values(numbers).map((number) => [number]);
  return heatRows(Object.keys(numbers), lines, 1, farFrom(usual, lines, 1));
}
const shown = (some: readonly HeatRow[]): unknown => some.map(({ name, count, parts }) => (parts.length ? [name, count, shown(parts)] : name));

test("blocks that repeat are one row, with the worst block first", () => {
  const found = rows({ "wte.weight": 1e-3, "h.0.attn.weight": 1e-3, "h.0.mlp.weight": 2e-3, "h.1.attn.weight": 1e-3, "h.1.mlp.weight": 1e-7, "h.2.attn.weight": 1e-3, "h.2.mlp.weight": 1e-3, "head.weight": 2e-2 });
  assert.deepEqual(shown(found), [
    ["h.0 … 2", 3, [["h.1", 1, ["h.1.mlp.weight", "h.1.attn.weight"]], ["h.0", 1, ["h.0.mlp.weight", "h.0.attn.weight"]], ["h.2", 1, ["h.2.attn.weight", "h.2.mlp.weight"]]]],
    "head.weight", "wte.weight",
  ]);
  assert.deepEqual([...found[0]!.numbers], [1e-7]);
});

test("layers of a plain list stay rows, unless they are many", () => {
  const some = (count: number): Record<string, number> => Object.fromEntries(Array.from({ length: count }, (_, i) => [`${i}.weight`, 1e-3]));
  assert.deepEqual(shown(rows(some(4))), ["0.weight", "1.weight", "2.weight", "3.weight"]);
  assert.deepEqual(rows(some(13)).map(({ name, count }) => [name, count]), [["0 … 12", 13]]);
});

test("a module with several parameters can be opened, and one without a module stands by itself", () => {
  assert.deepEqual(shown(rows({ "rnn.weight_ih_l0": 1e-3, "rnn.weight_hh_l0": 1e-2, table: 1e-3 })), [["rnn", 1, ["rnn.weight_hh_l0", "rnn.weight_ih_l0"]], "table"]);
});

test("zero is far below, what is not finite is the worst, and no number is none", () => {
  const found = rows({ "a.weight": 0, "b.weight": Infinity, "c.weight": 1, "d.weight": NaN });
  assert.deepEqual(found.map(({ name, worst }) => [name, worst]), [["b.weight", Infinity], ["a.weight", -ZERO], ["c.weight", 3], ["d.weight", -1]]);
});

test("without a usual number, the median layer of each step is usual", () => {
  const lines = [[1, 10], [1, 10], [1, 1]], far = farFrom(null, lines, 2);
  assert.deepEqual(lines.map((line) => line.map((number, step) => far(number, step))), [[0, 0], [0, 0], [0, -1]]);
});

test("the rows are in the order of the last quarter", () => {
  const lines = [[1e-9, 1e-3, 1e-3, 1e-3], [1e-3, 1e-3, 1e-3, 1e-4]];
  assert.deepEqual(heatRows(["a.weight", "b.weight"], lines, 4, farFrom(1e-3, lines, 4)).map(({ name }) => name), ["b.weight", "a.weight"]);
});
