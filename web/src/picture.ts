/**
 * The picture of a run without a browser: Python calls `begin` with the bodies, says how the drawn items look, and gets
 * the SVG text from `draw`. Both take and return JSON text, since they are called from an embedded engine.
 */

import type { Bodies, Body, Edge, Item } from "./bodies";
import { type ThemeName, paletteOf } from "./canvas/palette";
import { Folder } from "./fold";
import type { Geometry } from "./layout/geometry";
import { type Frame, Layout, type Path, type Title } from "./layout/layout";
import { bodiesOf, type BodyLists } from "./picture/bodies";
import { inColumns } from "./picture/columns";
import { opened, type Opening, READABLE } from "./picture/opening";
import type { LegendEntry } from "./picture/legend";
import { type Decoration, svgOf } from "./picture/svg";
import { widened } from "./picture/titles";

interface Request extends Opening {
  bodies: BodyLists;
  /** The name and the class of the root. */
  name: string;
  type: string;
  /** Lines of text for which items have room below their names. */
  lines: number;
  /** Items that a picture may have. */
  most: number;
}

/** A drawn box as Python sees it: the items of the body that each drawn item stands for, and what is open in it. */
interface Shown {
  /** `closed`: the run is one closed item. */
  kind: "call" | "group" | "closed";
  members: (readonly (readonly number[])[])[];
  times: number[];
  inside: Record<number, Shown>;
}

interface Begun {
  count: number;
  /** The largest depth with which there are not too many items, where there are; -1: not even with 1. */
  depth: number;
  /** Null where there are too many items. */
  root: Shown | null;
}

const DEEPEST = 12; // levels that are tried where a picture would have too many items

let begun: Layout | null = null;

/** Fold a run and choose what is open: from a `Request` to a `Begun`. */
export function begin(text: string): string {
  return JSON.stringify(beginning(JSON.parse(text) as Request));
}

function beginning(request: Request): Begun {
  const bodies = bodiesOf(request.bodies);
  if (request.depth === 0 || bodies.root < 0) {
    begun = new Layout(around(bodies, request), "", undefined, [], request.lines, finish);
    return { count: 1, depth: 0, root: { kind: "closed", members: [], times: [], inside: {} } };
  }
  const folder = new Folder(bodies);
  if (!request.fold) folder.keepApart();
  const { paths, count } = opened(folder, bodies.root, request);
  if (count > request.most) return { count, depth: fittingDepth(folder, bodies.root, request), root: null };
  const made = (open: Path[]) => new Layout(bodies, request.name, folder, open, request.lines, finish);
  begun = made(paths);
  // Where the choice is ours the picture fits a page: of what is readable less is open, until it does.
  for (let items = READABLE - LESS; request.depth === null && request.opened === null && items >= 0 && !fitsPage(begun); items -= LESS) {
    const fewer = opened(folder, bodies.root, request, items).paths;
    const next = made(fewer);
    if (ratioOf(next) < ratioOf(begun)) begun = next;
  }
  return { count, depth: -1, root: shown(begun.root) };
}

const LESS = 16; // items
const RATIO = 2; // of height to width
const SHORT = 900; // a picture that is no taller fits in any case

function finish(geometry: Geometry, title: Title): Geometry {
  return widened(inColumns(geometry), title);
}

/** The width counts as that of a legend at least. */
function ratioOf({ root }: Layout): number {
  return root.geometry.boxHeight / Math.max(root.geometry.boxLeft + root.geometry.boxRight, 400);
}

function fitsPage(layout: Layout): boolean {
  return layout.root.geometry.boxHeight <= SHORT || ratioOf(layout) <= RATIO;
}

/** Return bodies with one more as the root, in which the run is one call. */
function around(bodies: Bodies, request: Request): Bodies {
  const inner: Body = bodies.root < 0 ? { title: "", inputs: [], items: [], outputs: [] } : bodies.body(bodies.root);
  const edges = inner.inputs.map((_, input): Edge => ({ from: ~input, argument: input, output: 0 }));
  const item: Item = { kind: "call", label: request.name, type: request.type, edges, shape: "", body: -1, times: 1, health: 0 };
  const outputs = inner.outputs.map((output, place) => ({ ...output, from: 0, output: place }));
  const body: Body = { title: "", inputs: inner.inputs, items: [item], outputs };
  return { root: bodies.count, count: bodies.count + 1, body: (index) => (index === bodies.count ? body : bodies.body(index)) };
}

function fittingDepth(folder: Folder, root: number, request: Request): number {
  let fitting = -1;
  for (let depth = 1; depth <= DEEPEST; depth++) {
    if (opened(folder, root, { ...request, depth }).count > request.most) break;
    fitting = depth;
  }
  return fitting;
}

/** Return the SVG text of what was begun. */
export function draw(text: string): string {
  if (begun === null) throw new Error("draw needs begin");
  const { decorations, legend, theme, about } = JSON.parse(text) as {
    decorations: Record<string, Decoration>;
    legend: LegendEntry[];
    theme: ThemeName;
    about: string;
  };
  return svgOf({ layout: begun, palette: paletteOf(theme), decorations, legend, about });
}

function shown(frame: Frame): Shown {
  const inside: Record<number, Shown> = {};
  for (const [slot, kid] of frame.kids) inside[slot] = shown(kid);
  const { items } = frame.drawn;
  const kind = frame.self?.group ? "group" : "call";
  return { kind, members: items.map((item) => item.members), times: items.map((item) => item.times), inside };
}
