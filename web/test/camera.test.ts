import assert from "node:assert/strict";
import { test } from "node:test";
import { between, bringIn, fitAll, fitStart, kept, toWorld, visibleRect, zoomAt } from "../src/canvas/camera";

const START = { x: 40, y: -20, scale: 0.5 };

test("the point under the mouse stays there while one zooms", () => {
  const before = toWorld(START, 300, 200);
  const after = toWorld(zoomAt(START, 1.7, 300, 200), 300, 200);
  assert.ok(Math.hypot(before[0] - after[0], before[1] - after[1]) < 1e-9);
});

test("all of a drawing fits", () => {
  const box = { x: -500, y: 0, w: 1000, h: 9000 };
  const seen = visibleRect(fitAll(box, 800, 600), 800, 600);
  assert.ok(seen.x <= box.x && seen.y <= box.y && seen.x + seen.w >= 500 && seen.y + seen.h >= 9000);
});

test("a tall drawing begins at its top, at a size that can be read, with its axis in sight", () => {
  const camera = fitStart({ x: -900, y: 0, w: 2000, h: 90_000 }, 390, 600);
  assert.ok(camera.scale >= 0.5);
  assert.ok(camera.y >= 0 && camera.y < 60);
  assert.ok(camera.x > 0 && camera.x < 390);
});

test("what is in sight already moves nothing", () => {
  const camera = { x: 0, y: 0, scale: 1 };
  assert.deepEqual(bringIn(camera, { x: 100, y: 100, w: 120, h: 40 }, 800, 600), camera);
});

test("what is out of sight comes to the middle", () => {
  const camera = bringIn({ x: 0, y: 0, scale: 1 }, { x: 100, y: 5000, w: 120, h: 40 }, 800, 600);
  assert.equal(camera.y + 5020, 300);
});

test("a drawing cannot be pushed out of sight", () => {
  const box = { x: -100, y: 0, w: 200, h: 400 };
  const camera = kept({ x: 1e6, y: -1e6, scale: 1 }, box, 800, 600);
  const seen = visibleRect(camera, 800, 600);
  assert.ok(seen.x < 100 && seen.x + seen.w > -100 && seen.y < 400 && seen.y + seen.h > 0);
});

test("a flight ends where it should, and never leaves the straight way of a zoom", () => {
  const to = zoomAt(START, 3, 100, 100);
  assert.deepEqual(between(START, to, 1), to);
  const [x, y] = toWorld(between(START, to, 0.4), 100, 100);
  const [fx, fy] = toWorld(START, 100, 100);
  assert.ok(Math.hypot(x - fx, y - fy) < 1e-6);
});
