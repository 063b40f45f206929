/** The layout of a run: which boxes are open, and where everything in them stands. */

import type { Bodies } from "../bodies";
import { type Drawn, type DrawnItem, Folder } from "../fold";
import { arrange, standOf } from "./arrange";
import type { Geometry } from "./geometry";
import { type Plan, planOf, type PortOrder } from "./plan";
import { FONT, SIZE, timesOf } from "./sizes";
import { fitted, widthOf } from "./text";

/** A path: the drawn items from the root inward. Its key is its numbers joined by dots; that of the root is empty. */
export type Path = readonly number[];

/** An open box: a call, calls that are drawn once, or a group of items that repeats. */
export class Frame {
  readonly kids = new Map<number, Frame>();
  geometry: Geometry = NOTHING;

  constructor(
    readonly drawn: Drawn,
    readonly parent: Frame | null,
    /** The item of the parent that it is. */
    readonly slot: number,
  ) {}

  /** Return the open inside of an item; null for what is closed. */
  inner(item: number): Frame | null {
    return this.kids.get(item) ?? null;
  }

  /** The item of the parent that it is; null for the root. */
  get self(): DrawnItem | null {
    return this.parent === null ? null : this.parent.drawn.items[this.slot]!;
  }

  get path(): number[] {
    return this.parent === null ? [] : [...this.parent.path, this.slot];
  }
}

/** A box in coordinates of the whole picture: x from the axis of the root, y from its upper border. */
export interface Area {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

const CLOSED: ReadonlyMap<number, Geometry> = new Map();
const NOTHING = Object.freeze({}) as Geometry; // until a frame is arranged

/** Lays out a run. `root` is up to date after each change; equal boxes share one geometry. */
export class Layout {
  root: Frame;
  private readonly plans = new Map<Drawn, Plan>();
  private readonly opened = new Map<string, Set<number>>(); // key of a box → items that are open in it, also while it is closed
  private readonly unfolded = new Set<string>();

  /** `name` stands in the title of the root, before its class. */
  constructor(
    readonly bodies: Bodies,
    readonly name: string,
    readonly folder: Folder = new Folder(bodies),
    open: Iterable<Path> = [],
    /** Lines of text for which closed items have room below their names. */
    readonly lines = 0,
    /**
     * For pictures, in which nothing is opened: makes the last changes to each box. Lines are straight beside open boxes
     * then, too.
     */
    readonly finish: ((geometry: Geometry, title: Title) => Geometry) | null = null,
  ) {
    for (const path of open) this.note(path, true);
    this.root = this.grown();
  }

  /** Return the open box at a path; null where it is closed. */
  frame(path: Path): Frame | null {
    let frame: Frame | null = this.root;
    for (const slot of path) {
      frame = frame.inner(slot);
      if (frame === null) return null;
    }
    return frame;
  }

  /** Open items; each is drawn open as soon as everything around it is open. */
  open(...paths: Path[]): void {
    this.change(paths, true);
  }

  /** Close items. What was open inside is so again when they are opened. */
  close(...paths: Path[]): void {
    this.change(paths, false);
  }

  /** Open exactly the items with these keys. */
  setOpen(keys: Iterable<string>): void {
    const wanted = new Set(keys);
    const closing: Path[] = [];
    for (const [key, slots] of this.opened)
      for (const slot of slots) {
        const one = key === "" ? `${slot}` : `${key}.${slot}`;
        if (!wanted.delete(one)) closing.push(pathOf(one));
      }
    const opening = [...wanted].filter((key) => key !== "").map(pathOf);
    const changed = new Set<Frame>();
    for (const path of closing) this.toggle(path, false, changed);
    for (const path of opening) this.toggle(path, true, changed);
    if (changed.size > 0) this.arrangeChanged(this.root, changed);
  }

  /** Draw each repetition in a box by itself, or all once again; what is open inside is closed, as its items are others. */
  unfold(path: Path, apart = true): void {
    const key = path.join(".");
    if (this.unfolded.has(key) === apart) return;
    if (apart) this.unfolded.add(key);
    else this.unfolded.delete(key);
    for (const known of [...this.opened.keys()]) if (known === key || key === "" || known.startsWith(`${key}.`)) this.opened.delete(known);
    this.root = this.grown();
  }

  /** Return the origin of a frame in the whole picture: its axis and its upper border. */
  origin(frame: Frame): { x: number; y: number } {
    let [x, y] = [0, 0];
    for (let one = frame; one.parent !== null; one = one.parent) {
      x += one.parent.geometry.x[one.slot]!;
      y += one.parent.geometry.y[one.slot]!;
    }
    return { x, y };
  }

  /** Return the area of an item of a frame in the whole picture; with item -1 that of the frame. */
  area(frame: Frame, item = -1): Area {
    const { x, y } = this.origin(frame);
    const g = frame.geometry;
    if (item < 0) return { left: x - g.boxLeft, top: y, right: x + g.boxRight, bottom: y + g.boxHeight };
    const [axis, top] = [x + g.x[item]!, y + g.y[item]!];
    return { left: axis - g.left[item]!, top, right: axis + g.right[item]!, bottom: top + g.height[item]! };
  }

  // Opening and closing --------------------------------------------------------------------------------------------------

  private note(path: Path, open: boolean): void {
    const key = path.slice(0, -1).join(".");
    const slot = path.at(-1)!;
    const known = this.opened.get(key);
    if (!open) known?.delete(slot);
    else if (known === undefined) this.opened.set(key, new Set([slot]));
    else known.add(slot);
  }

  private change(paths: readonly Path[], open: boolean): void {
    const changed = new Set<Frame>();
    for (const path of paths) if (path.length > 0) this.toggle(path, open, changed);
    if (changed.size > 0) this.arrangeChanged(this.root, changed);
  }

  private toggle(path: Path, open: boolean, changed: Set<Frame>): void {
    this.note(path, open);
    const around = this.frame(path.slice(0, -1));
    const slot = path.at(-1)!;
    if (around === null || around.drawn.items[slot] === undefined || around.kids.has(slot) === open) return;
    if (open) this.grow(around, slot, path);
    else if (around.drawn.items[slot].group === null) around.kids.delete(slot);
    for (let frame: Frame | null = around; frame !== null && !changed.has(frame); frame = frame.parent) changed.add(frame);
  }

  private arrangeChanged(frame: Frame, changed: Set<Frame>): void {
    for (const kid of frame.kids.values()) if (changed.has(kid)) this.arrangeChanged(kid, changed);
    frame.geometry = this.arranged(frame);
  }

  private grown(): Frame {
    const root = new Frame(this.folder.drawn(this.bodies.root, !this.unfolded.has("")), null, -1);
    this.fill(root, []);
    return root;
  }

  /** Open one item of a frame, and in it what was open. Groups are always open. */
  private grow(frame: Frame, slot: number, path: Path): void {
    const item = frame.drawn.items[slot]!;
    if (item.group === null && item.body < 0) return;
    const drawn = item.group ?? this.folder.drawn(item.body, !this.unfolded.has(path.join(".")));
    const kid = new Frame(drawn, frame, slot);
    frame.kids.set(slot, kid);
    this.fill(kid, path);
  }

  private fill(frame: Frame, path: Path): void {
    const open = this.opened.get(path.join("."));
    frame.drawn.items.forEach((item, slot) => {
      if (item.group !== null || open?.has(slot)) this.grow(frame, slot, [...path, slot]);
    });
    frame.geometry = this.arranged(frame);
  }

  // Geometry -------------------------------------------------------------------------------------------------------------

  private arranged(frame: Frame): Geometry {
    const open = new Map<number, Geometry>();
    for (const slot of [...frame.kids.keys()].sort((a, b) => a - b)) open.set(slot, frame.kids.get(slot)!.geometry);
    const parent = frame.parent === null ? null : this.plan(frame.parent.drawn);
    const side = parent === null ? 0 : parent.chains[parent.chainOf[frame.slot]!]!.side;
    const title = titleOf(this.name, frame), { finish } = this;
    const geometry = arrange({ plan: this.plan(frame.drawn), open, title: Math.ceil(title.width / 12) * 12, side, straight: finish !== null, isRoot: parent === null });
    return finish === null ? geometry : finish(geometry, title);
  }

  private plan(drawn: Drawn): Plan {
    let plan = this.plans.get(drawn);
    if (plan === undefined) {
      plan = planOf(drawn, (item) => this.ports(drawn.items[item]!), this.lines);
      this.plans.set(drawn, plan);
    }
    return plan;
  }

  /** Return the order of the inputs inside of an item that reads several values. */
  private ports(item: DrawnItem): PortOrder | null {
    if (item.edges.length < 2) return null;
    const drawn = item.group ?? (item.body >= 0 ? this.folder.drawn(item.body, true) : null);
    if (drawn === null || drawn.items.length === 0) return null;
    const plan = this.plan(drawn);
    return { x: (plan.closedInputs ??= standOf(plan, CLOSED, plan.column, false).inX), main: plan.mainInput };
  }
}

function pathOf(key: string): Path {
  return key.split(".").map(Number);
}

/** The title of an open box, and how wide it is. */
export interface Title {
  name: string;
  type: string;
  times: string;
  width: number;
}

const MOST_TITLE = 220;

/** Return the title of a frame; the root is called `rootName`. */
export function titleOf(rootName: string, frame: Frame): Title {
  const item = frame.self;
  const name = fitted(item === null ? rootName : item.label, FONT.title, MOST_TITLE, "bold");
  const type = fitted(item === null ? frame.drawn.title : item.type, FONT.titleType, MOST_TITLE);
  const times = item !== null && item.times > 1 ? timesOf(item) : "";
  const timesWidth = times === "" ? 0 : widthOf(times, FONT.times, "bold") + 24;
  const width = widthOf(name, FONT.title, "bold") + widthOf(type, FONT.titleType) + timesWidth + (type === "" ? 0 : 8);
  return { name, type, times, width };
}

/** Return where the type in a title begins, from the axis: behind the name, and beyond the axis if it would lie on it. */
export function typePlace(geometry: Geometry, title: Title): number {
  const begin = -geometry.boxLeft + SIZE.side + (title.name === "" ? 0 : widthOf(title.name, FONT.title, "bold") + 8);
  const width = widthOf(title.type, FONT.titleType);
  const room = geometry.boxRight - (title.times === "" ? 8 : widthOf(title.times, FONT.times, "bold") + 30);
  return begin < 5 && begin + width > -5 && 8 + width < room ? 8 : begin;
}
