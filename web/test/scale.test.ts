import assert from "node:assert/strict";
import { test } from "node:test";
import { colourAt, inkOn, rampColours, scaleOf } from "../src/canvas/scale";

test("numbers of one magnitude stand evenly on the ramp", () => {
  const scale = scaleOf([1, 2, 3, 4, 5])!;
  assert.equal(scale.kind, "linear");
  assert.deepEqual([scale.low, scale.high, scale.at(3), scale.value(0.25)], [1, 5, 0.5, 2]);
});

test("numbers of many magnitudes stand by their logarithms", () => {
  const scale = scaleOf([1e-6, 1e-4, 1e-2, 1])!;
  assert.equal(scale.kind, "log");
  assert.ok(Math.abs(scale.at(1e-3) - 0.5) < 1e-9);
  assert.ok(Math.abs(scale.value(0.5) - 1e-3) < 1e-12);
});

test("a zero among logarithms is below all others", () => {
  const scale = scaleOf([0, 1e-3, 1, 1e3])!;
  assert.equal(scale.at(0), 0);
  assert.ok(scale.at(1e-3) > 0.04 && scale.at(1e3) === 1);
});

test("negative numbers of many magnitudes keep their order", () => {
  const scale = scaleOf([-1e6, -1e3, -1])!;
  assert.ok(scale.at(-1e6) < scale.at(-1e3) && scale.at(-1e3) < scale.at(-1));
  assert.ok(Math.abs(scale.value(scale.at(-1e3)) + 1e3) < 1e-6);
});

test("zero is the middle where both signs are", () => {
  const scale = scaleOf([-3, 1, 2])!;
  assert.deepEqual([scale.kind, scale.low, scale.high, scale.at(0), scale.at(3)], ["symmetric", -3, 3, 0.5, 1]);
});

test("an outlier does not squeeze all others into one colour", () => {
  const usual = Array.from({ length: 400 }, (_, i) => 1 + i / 400);
  const scale = scaleOf([...usual, 1e4])!;
  assert.deepEqual([scale.high < 3, scale.clipped], [true, { low: false, high: true }]);
  assert.equal(scale.at(1e4), 1);
});

test("equal numbers, one number and none have a scale or none at all", () => {
  assert.equal(scaleOf([7, 7])!.at(7), 0.5);
  assert.equal(scaleOf([NaN, Infinity, 2])!.at(2), 0.5);
  assert.equal(scaleOf([NaN]), null);
});

function luminance(colour: string): number {
  const n = parseInt(colour.slice(1), 16);
  const [r, g, b] = [n >> 16, (n >> 8) & 255, n & 255].map((c) => ((c / 255 + 0.055) / 1.055) ** 2.4) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

test("lightness alone tells the order of a ramp, in both themes", () => {
  for (const theme of ["light", "dark"] as const) {
    const along = rampColours("log", theme).map(luminance);
    for (let i = 8; i < along.length; i += 8) assert.ok(theme === "light" ? along[i]! < along[i - 8]! : along[i]! > along[i - 8]!, `${theme} ${i}`);
  }
});

test("text on every colour has a contrast of at least 4", () => {
  for (const theme of ["light", "dark"] as const)
    for (const kind of ["log", "symmetric"] as const)
      for (const colour of rampColours(kind, theme)) {
        const [a, b] = [luminance(colour), luminance(inkOn(colour))];
        assert.ok((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) >= 4, `${theme} ${kind} ${colour}`);
      }
});

test("a number beyond the ends has the colour of the end", () => {
  const scale = scaleOf([0, 1])!;
  assert.equal(colourAt(scale, 9, "light"), colourAt(scale, 1, "light"));
});
