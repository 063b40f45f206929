import assert from "node:assert/strict";
import { test } from "node:test";
import { poolOf } from "../src/canvas/pool";

test("a pool has the least, the middle and the largest", () => {
  const { min, median, max, count, odd } = poolOf([3, 1, 2, 4]);
  assert.deepEqual({ min, median, max, count, odd }, { min: 1, median: 2.5, max: 4, count: 4, odd: -1 });
});

test("the one that lies away from all others is odd", () => {
  assert.equal(poolOf([1, 1.1, 0.9, 9, 1.05]).odd, 3);
  assert.equal(poolOf([1, 1, 1, 1, 1.5]).odd, 4);
});

test("numbers that spread, or hardly differ, have no odd one", () => {
  assert.equal(poolOf([1, 2, 3, 4, 5, 6]).odd, -1);
  assert.equal(poolOf([1, 1, 1, 1.001]).odd, -1);
  assert.equal(poolOf([1, 5]).odd, -1);
});

test("the first that is not finite is odd, unless half of them are", () => {
  assert.equal(poolOf([1, 2, NaN, NaN, 3, 4, 5]).odd, 2);
  assert.equal(poolOf([NaN, NaN, 1]).odd, -1);
  assert.equal(poolOf([1, Infinity, 2]).odd, 1);
});

test("what was not measured is counted, and no number", () => {
  const { missing, nan, median } = poolOf([undefined, 2, undefined]);
  assert.deepEqual({ missing, nan, median }, { missing: 2, nan: 0, median: 2 });
  assert.ok(Number.isNaN(poolOf([undefined]).median));
});
