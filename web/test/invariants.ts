/** What holds for every layout; used by the tests here, and by those in Python on the models of the zoo. */

import type { Bodies } from "../src/bodies";
import { EDGE } from "../src/layout/geometry";
import { type Area, type Frame, Layout, type Path } from "../src/layout/layout";
import { widthOf } from "../src/layout/text";
import { FONT } from "../src/layout/sizes";

const MOST_OPENED = 60; // boxes that are opened one after the other

/** Return a sentence for everything in the layout of a run that does not hold. */
export function broken(bodies: Bodies): string[] {
  const layout = new Layout(bodies, "run");
  const found: string[] = [...brokenFrames(layout.root)];
  let opened = 0;
  const pending: Frame[] = [layout.root];
  while (pending.length > 0 && opened < MOST_OPENED) {
    const path = pending.shift()!.path;
    const frame = layout.frame(path)!;
    for (let slot = 0; slot < frame.drawn.items.length && opened < MOST_OPENED; slot++) {
      const item = frame.drawn.items[slot]!;
      if (item.group === null && item.body < 0) continue;
      if (item.group === null) {
        found.push(...brokenByOpening(layout, [...path, slot]));
        opened++;
      }
      pending.push(layout.frame([...path, slot])!);
    }
  }
  found.push(...brokenFrames(layout.root), ...brokenByClosing(layout));
  return [...new Set(found)];
}

// In one box -----------------------------------------------------------------------------------------------------------

function* brokenFrames(frame: Frame): Generator<string> {
  const where = `${frame.drawn.title} at [${frame.path.join(".")}]`;
  yield* brokenItems(frame, where);
  yield* brokenEdges(frame, where);
  for (const kid of frame.kids.values()) yield* brokenFrames(kid);
}

function* brokenItems(frame: Frame, where: string): Generator<string> {
  const g = frame.geometry;
  const boxes = frame.drawn.items.map((_, item) => boxOf(frame, item));
  for (const [item, box] of boxes.entries()) {
    if (box.left < -g.boxLeft || box.right > g.boxRight || box.top < 0 || box.bottom > g.boxHeight) yield `${where}: item ${item} is outside`;
    const face = g.plan.faces[item]!;
    if (widthOf(face.name, frame.drawn.items[item]!.kind === "views" ? FONT.views : FONT.name) > 2 * face.half) yield `${where}: the name of item ${item} does not fit`;
  }
  const byTop = [...boxes.keys()].sort((a, b) => boxes[a]!.top - boxes[b]!.top);
  for (const [place, one] of byTop.entries())
    for (let next = place + 1; next < byTop.length && boxes[byTop[next]!]!.top < boxes[one]!.bottom; next++) {
      const [a, b] = [boxes[one]!, boxes[byTop[next]!]!];
      if (a.left < b.right && b.left < a.right) yield `${where}: items ${one} and ${byTop[next]} overlap`;
    }
}

function* brokenEdges(frame: Frame, where: string): Generator<string> {
  const g = frame.geometry;
  const { edges } = g;
  const boxes = frame.drawn.items.map((_, item) => boxOf(frame, item));
  for (let edge = 0; edge < edges.count; edge++) {
    const [from, to] = [edges.from[edge]!, edges.to[edge]!];
    const last = edges.start[edge + 1]! - 2;
    for (let at = edges.start[edge]! + 2; at <= last; at += 2) {
      const [x0, y0, x1, y1] = [edges.points[at - 2]!, edges.points[at - 1]!, edges.points[at]!, edges.points[at + 1]!];
      if (Math.abs(x0 - x1) > 0.01 && Math.abs(y0 - y1) > 0.01) yield `${where}: edge ${from} → ${to} is oblique`;
      if (y1 < y0 - 0.01) yield `${where}: edge ${from} → ${to} runs upwards`;
      const area = { left: Math.min(x0, x1), right: Math.max(x0, x1), top: Math.min(y0, y1), bottom: Math.max(y0, y1) };
      for (const [item, box] of boxes.entries()) {
        if (item === from || item === to) continue;
        if (area.right > box.left + 1 && area.left < box.right - 1 && area.bottom > box.top + 1 && area.top < box.bottom - 1)
          yield `${where}: edge ${from} → ${to} passes through item ${item}`;
      }
    }
    const [x, y] = [edges.points[last]!, edges.points[last + 1]!];
    if (to >= 0 && (Math.abs(y - boxes[to]!.top) > 0.01 || x < boxes[to]!.left || x > boxes[to]!.right)) yield `${where}: edge ${from} → ${to} ends beside its item`;
    if (to < 0 && Math.abs(y - g.boxHeight) > 0.01) yield `${where}: output ${~to} does not leave the box`;
    const [x0, y0] = [edges.points[edges.start[edge]!]!, edges.points[edges.start[edge]! + 1]!];
    if (edges.flags[edge]! & EDGE.TAP) continue;
    if (from < 0 ? y0 !== 0 : Math.abs(y0 - boxes[from]!.bottom) > 0.01 || x0 < boxes[from]!.left || x0 > boxes[from]!.right)
      yield `${where}: edge ${from} → ${to} begins beside its item`;
  }
}

function boxOf(frame: Frame, item: number): Area {
  const g = frame.geometry;
  const inside = frame.inner(item)?.geometry;
  const [left, right] = inside ? [inside.boxLeft, inside.boxRight] : [g.left[item]!, g.right[item]!];
  const [x, y] = [g.x[item]!, g.y[item]!];
  return { left: x - left, right: x + right, top: y, bottom: y + g.height[item]! };
}

// Opening and closing --------------------------------------------------------------------------------------------------

function brokenByOpening(layout: Layout, path: Path): string[] {
  const before = places(layout);
  const key = path.join(".");
  const opened = before.get(key)!;
  layout.open(path);
  const after = places(layout);
  const broken: string[] = [];
  for (const [other, place] of before) {
    const now = after.get(other)!;
    if (place.y > opened.y - 0.01 || other === key) continue;
    if (Math.abs(now.y - place.y) > 0.01) broken.push(`opening ${key} moves ${other}, which is above it`);
    else if (Math.abs(now.x - place.x) > 0.01 && !isBeside(layout, path, other)) broken.push(`opening ${key} moves ${other} sideways`);
  }
  const now = after.get(key)!;
  if (Math.abs(now.y - opened.y) > 12) broken.push(`opening ${key} moves it`);
  return broken;
}

/**
 * Is another item beside the opened one, or inside of a box that stands beside its axis and has the opened one in it?
 * Both may move outward to make room.
 */
function isBeside(layout: Layout, path: Path, other: string): boolean {
  const around = other.split(".").map(Number);
  for (let length = 0; length < path.length && length < around.length; length++) {
    const { plan, y, height } = layout.frame(path.slice(0, length))!.geometry;
    const [own, its] = [path[length]!, around[length]!];
    if (own !== its) return y[its]! + height[its]! > y[own]!;
    if (plan.chains[plan.chainOf[own]!]!.side !== 0) return true;
  }
  return false;
}

function brokenByClosing(layout: Layout): string[] {
  const fresh = new Layout(layout.bodies, layout.name);
  layout.setOpen([]);
  const [now, first] = [places(layout), places(fresh)];
  return [...first].filter(([key, at]) => now.get(key)?.x !== at.x || now.get(key)?.y !== at.y).map(([key]) => `${key} is elsewhere after all is closed`);
}

/** Return the axis and the upper border of every item, by the key of its path. */
export function places(layout: Layout): Map<string, { x: number; y: number }> {
  const all = new Map<string, { x: number; y: number }>();
  const add = (frame: Frame, key: string, x: number, y: number) => {
    const g = frame.geometry;
    for (let item = 0; item < g.plan.count; item++) {
      const own = key === "" ? `${item}` : `${key}.${item}`;
      const at = { x: x + g.x[item]!, y: y + g.y[item]! };
      all.set(own, at);
      const kid = frame.inner(item);
      if (kid !== null) add(kid, own, at.x, at.y);
    }
  };
  add(layout.root, "", 0, 0);
  return all;
}
