import assert from "node:assert/strict";
import { test } from "node:test";
import type { Bodies, Body, Item, Output } from "../src/bodies";
import { condensed, Folder, foldedBody } from "../src/fold";
import { EDGE } from "../src/layout/geometry";
import { Layout } from "../src/layout/layout";
import { fitted, widthOf } from "../src/layout/text";
import { assignTracks, type Crossing } from "../src/layout/tracks";
import { broken } from "./invariants";

type Read = number | [from: number, argument: number, output: number];

function item(label: string, reads: Read[], more: Partial<Item> = {}): Item {
  const edges = reads.map((read, place) => (typeof read === "number" ? { from: read, argument: place, output: 0 } : { from: read[0], argument: read[1], output: read[2] }));
  return { kind: more.body === undefined ? "operation" : "call", label, type: more.body === undefined ? "" : "Module", edges, shape: "2×8", body: -1, times: 1, health: 0, ...more };
}

function body(items: Item[], outputs: number[] = [items.length - 1], inputs = 1): Body {
  const returned = outputs.map((from): Output => ({ from, output: 0, name: "" }));
  return { title: "Body", inputs: Array.from({ length: inputs }, (_, input) => ({ name: `input${input}`, shape: "2×8" })), items, outputs: returned, whole: true };
}

function bodies(...all: Body[]): Bodies {
  return { root: 0, count: all.length, body: (index) => all[index]! };
}

const LINEAR = body([item("linear", [-1])]);

/** Random bodies that call one another, always the same for a seed. */
function randomBodies(seed: number): Bodies {
  let state = seed * 2654435761;
  const random = (below: number) => ((state = (state * 1103515245 + 12345) % 2147483648) / 2147483648) * below;
  const all = Array.from({ length: 4 }, (_, depth): Body => {
    const inputs = 1 + Math.floor(random(3));
    const items = Array.from({ length: 3 + Math.floor(random(12)) }, (_, place): Item => {
      const reads = Array.from({ length: Math.floor(random(4)) }, (_, argument): Read => [Math.floor(random(place + inputs)) - inputs, argument, Math.floor(random(1.3))]);
      return item(random(3) < 1 ? "view" : `op${Math.floor(random(5))}`, reads, random(2) < 1 && depth < 3 ? { body: depth + 1 } : {});
    });
    return body(items, [items.length - 1, ...(random(2) < 1 ? [Math.floor(random(items.length))] : [])], inputs);
  });
  return bodies(...all);
}

test("whatever is drawn, no line passes through a box, no boxes overlap, and opening moves nothing above", () => {
  for (let seed = 1; seed <= 150; seed++) assert.deepEqual(broken(randomBodies(seed)), [], `seed ${seed}`);
});

test("a chain is straight, and a residual connection runs beside it on the left", () => {
  const root = body([item("norm", [-1]), item("linear", [0]), item("add", [-1, 1])]);
  const { edges, x } = new Layout(bodies(root), "run").root.geometry;
  assert.deepEqual([...x], [0, 0, 0]);
  const skip = [...edges.flags.keys()].filter((edge) => edges.flags[edge]! & EDGE.SKIPS);
  assert.deepEqual(skip.map((edge) => [edges.from[edge], edges.to[edge]]), [[-1, 2]]);
  const points = edges.points.subarray(edges.start[skip[0]!]!, edges.start[skip[0]! + 1]!);
  assert.ok(Math.min(...points.filter((_, at) => at % 2 === 0)) < -40);
});

test("of three equal branches the middle one stands on the axis; of query, key, value that is key", () => {
  const root = body([item("qu", [-1]), item("ke", [-1]), item("va", [-1]), item("attend", [0, 1, 2])]);
  const { x } = new Layout(bodies(root), "run").root.geometry;
  assert.equal(x[1], 0);
  assert.ok(x[0]! < 0 && x[2]! > 0);
  assert.equal(-x[0]!, x[2]!);
});

test("repeated layers are drawn once, and every one of them is found in the item that shows them", () => {
  const layers = Array.from({ length: 12 }, (_, layer) => item(`layers.${layer}`, [layer - 1], { body: 1 }));
  const drawn = new Folder(bodies(body([...layers, item("norm", [11])]), LINEAR)).drawn(0, true);
  assert.deepEqual(drawn.items.map((one) => [one.kind, one.label, one.times]), [["repeat", "layers.0…11", 12], ["operation", "norm", 1]]);
  assert.deepEqual(drawn.items[0]!.members, layers.map((_, layer) => [layer]));
  assert.deepEqual([...drawn.shownBy], [...layers.map(() => 0), 1]);
});

test("items that repeat in turn are drawn as one group, with the values that enter and leave it", () => {
  const items = Array.from({ length: 10 }, (_, at) => item(at % 2 ? "relu" : `${at}`, [at - 1], at % 2 ? {} : { body: 1, type: "Linear" }));
  const drawn = new Folder(bodies(body([...items, item("sum", [9])]), LINEAR)).drawn(0, true);
  const [group, sum] = drawn.items;
  assert.deepEqual([group!.times, group!.type, group!.label, group!.group!.items.length], [5, "Linear · relu", "0…8", 2]);
  assert.deepEqual(group!.group!.items[1]!.members, [[1], [3], [5], [7], [9]]);
  assert.deepEqual(sum!.edges, [{ from: 0, argument: 0, output: 0 }]);
  assert.deepEqual(group!.group!.outputs, [{ from: 1, output: 0, name: "" }]);
});

test("a loop carries what the next turn of the same calls reads; a stack of layers does not", () => {
  const reads = (label: (turn: number) => string) => [0, 1, 2, 3].map((turn) => item(label(turn), [-1, turn - 1], { body: 1 }));
  const loop = new Folder(bodies(body(reads(() => "cell")), LINEAR)).drawn(0, true);
  const stack = new Folder(bodies(body(reads((turn) => `layers.${turn}`)), LINEAR)).drawn(0, true);
  const apart = new Folder(bodies(body([0, 1, 2, 3].map(() => item("cell", [-1], { body: 1 }))), LINEAR)).drawn(0, true);
  assert.deepEqual([loop, stack, apart].map((drawn) => drawn.items.map((one) => [one.times, one.carried])), [[[4, true]], [[4, false]], [[4, false]]]);
  const turns = Array.from({ length: 4 }, (_, turn) => [item("cell", [-1, 2 * turn - 1], { body: 1 }), item("tanh", [2 * turn])]).flat();
  const group = new Folder(bodies(body(turns), LINEAR)).drawn(0, true);
  assert.deepEqual(group.items.map((one) => [one.times, one.carried]), [[4, true]]);
});

test("query, key and value stay apart, and so do layers that are wired otherwise", () => {
  const apart = body([item("q_proj", [-1], { body: 1 }), item("k_proj", [-1], { body: 1 }), item("v_proj", [-1], { body: 1 }), item("attend", [0, 1, 2])]);
  assert.equal(new Folder(bodies(apart, LINEAR)).drawn(0, true).items.length, 4);
  const wired = foldedBody(condensed(body([0, 1, 2, 3].map((layer) => item(`layers.${layer}`, [layer === 3 ? -1 : layer - 1], { body: 1 })))));
  assert.deepEqual(wired.items.map((one) => one.times), [3, 1]);
});

test("a row of views is one pill, views that nobody reads are left out, structure is passed through", () => {
  const root = body([item("view", [-1], { kind: "views" }), item("transpose", [0], { kind: "views" }), item("size", [-1], { kind: "structure" }), item("matmul", [1]), item("t", [3], { kind: "views" })], [3]);
  const drawn = condensed(root);
  assert.deepEqual(drawn.items.map((one) => [one.label, one.members]), [["view · transpose", [[0, 1]]], ["matmul", [[3]]]]);
  assert.deepEqual([...drawn.shownBy], [0, 0, -1, 1, -1]);
});

test("an argument that nothing inside reads has no line", () => {
  const inner = body([item("linear", [-1])], [0], 2);
  const root = body([item("layer", [-1, -2], { body: 1 })], [0], 2);
  assert.deepEqual(new Folder(bodies(root, inner)).drawn(0, true).items[0]!.edges.map((edge) => edge.from), [-1]);
  const unseen = new Folder(bodies(root, { ...inner, whole: false })).drawn(0, true);
  assert.deepEqual(unseen.items[0]!.edges.map((edge) => edge.from), [-1, -2]);
});

test("where every operation reads all before it, their values run in one bundle", () => {
  const dense = body(Array.from({ length: 60 }, (_, at) => item(`cat${at}`, Array.from({ length: at + 1 }, (_, from) => from - 1))));
  const { plan, boxLeft, boxRight, edges } = new Layout(bodies(dense), "run").root.geometry;
  assert.ok(boxLeft + boxRight < 500, `${boxLeft + boxRight} wide`);
  assert.ok(plan.chains.filter((chain) => chain.lane && chain.values > 5).length <= 2);
  assert.ok([...edges.flags].some((flags) => flags & EDGE.BUNDLE));
});

test("an open branch beside the axis does not pull the items of the axis apart", () => {
  const branch = body(Array.from({ length: 5 }, (_, at) => item(`step${at}`, [at - 1])));
  const root = body([...Array.from({ length: 9 }, (_, at) => item(`op${at}`, [at - 1])), item("side", [-1], { body: 1 }), item("add", [8, 9])]);
  const layout = new Layout(bodies(root, branch), "run");
  const before = Array.from(layout.root.geometry.y);
  layout.open([9]);
  assert.deepEqual(Array.from(layout.root.geometry.y).slice(0, 9), before.slice(0, 9));
});

test("equal boxes share one geometry, and a box that is opened again is as it was", () => {
  const layers = [item("a", [-1], { body: 1 }), item("b", [0], { body: 1, shape: "1" }), item("c", [1])];
  const layout = new Layout(bodies(body(layers), LINEAR), "run");
  layout.open([0], [1]);
  assert.equal(layout.root.inner(0)!.geometry, layout.root.inner(1)!.geometry);
  const open = layout.root.geometry;
  layout.close([0]);
  assert.notEqual(layout.root.geometry, open);
  layout.setOpen(["0", "1"]);
  assert.equal(layout.root.geometry, open);
});

test("a repetition can be drawn by itself", () => {
  const layers = Array.from({ length: 4 }, (_, layer) => item(`layers.${layer}`, [layer - 1], { body: 1 }));
  const layout = new Layout(bodies(body(layers), LINEAR), "run");
  assert.equal(layout.root.drawn.items.length, 1);
  layout.unfold([]);
  assert.equal(layout.root.drawn.items.length, 4);
  layout.unfold([], false);
  assert.equal(layout.root.drawn.items.length, 1);
});

test("a long name is cut in the middle until it fits", () => {
  const name = "encoder".repeat(2000);
  const cut = fitted(name, 12, 100);
  assert.ok(widthOf(cut, 12) <= 100);
  assert.match(cut, /^enc.*….*der$/);
  assert.equal(fitted("short", 12, 100), "short");
  assert.equal(fitted("x".repeat(50), 12, 1), "…");
});

test("lines across a gap are ordered so that they do not cross where they need not", () => {
  const inner: Crossing = { key: 1, low: 0, high: 10, above: [0], below: [10], track: 0 };
  const outer: Crossing = { key: 2, low: -10, high: 5, above: [-10], below: [5], track: 0 };
  assert.equal(assignTracks([outer, inner]), 2);
  assert.ok(inner.track < outer.track);
});
