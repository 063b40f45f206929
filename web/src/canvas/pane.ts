/** One run's graph on one canvas: its layout, its camera, what is chosen and lit in it. `graph.ts` tells it what to show. */

import { Layout } from "../layout/layout";
import { FONT } from "../layout/sizes";
import { EDGE } from "../layout/geometry";
import type { Run } from "../payload";
import { el } from "../shell/dom";
import type { Place } from "../state";
import { between, bringIn, ease, fitAll, fitStart, kept, toWorld, visibleRect, zoomAt, type Camera, type Rect } from "./camera";
import { hasInside, Painter, type Counts, type Picture } from "./draw";
import { listenForGestures } from "./gestures";
import { linesOf } from "./lit";
import { Looks, type Scenery } from "./look";
import { Minimap } from "./minimap";
import { paletteOf } from "./palette";
import { locate, rootRect, under, walk, type Hit, type Spot } from "./scene";
import { DrawnTree, keyOfMember, type Box, type Member } from "./tree";

export interface PaneListener {
  chosen(pane: Pane, place: Place): void;
  toggled(pane: Pane, at: Member): void;
  hovered(pane: Pane, hit: Hit | null, x: number, y: number): void;
  moved(pane: Pane, before: Camera, now: Camera): void;
  /** The pane has a size, for the first time. */
  placed(): void;
}

interface Flight { from: Camera; to: Camera; start: number }
/** A box that grows or shrinks: the part of the drawing below it slides, the part inside is uncovered. */
interface Growth { top: number; from: number; to: number; start: number; before: HTMLCanvasElement | null }

const DURATION = 190;
const CALM_ABOVE = 1500; // boxes in sight above which nothing slides

export class Pane {
  readonly canvas = el("canvas", { tabindex: 0, role: "application", "aria-roledescription": "graph" });
  private readonly map = new Minimap((x, y) => this.move({ ...this.camera, x: this.width / 2 - x * this.camera.scale, y: this.height / 2 - y * this.camera.scale }));
  readonly element = el("div", { class: "graph-pane" }, this.canvas, this.map.element);
  readonly tree: DrawnTree;
  readonly looks: Looks;
  camera: Camera = { x: 0, y: 0, scale: 1 };
  width = 0;
  height = 0;
  selected: Member | null = null;
  hover: Member | null = null;
  partners: Member[] = [];
  counts: Counts = { boxes: 0, items: 0, edges: 0, texts: 0, labels: 0 };
  frames = 0;
  drawTime = 0;
  layoutTime = 0;
  private readonly painter: Painter;
  private lit: Picture["lit"] = null;
  private rootSelected = false;
  private keys = "";
  private dirty = false;
  private drawn: Camera | null = null; // of what is on the canvas; null where more than the camera has changed
  private flight: Flight | null = null;
  private growth: Growth | null = null;
  private placed = false;

  constructor(readonly run: Run, private scenery: Scenery, private readonly listener: PaneListener) {
    const started = performance.now();
    this.tree = new DrawnTree(run, new Layout(run.bodies, run.data.model));
    this.layoutTime = performance.now() - started;
    this.looks = new Looks(scenery);
    this.painter = new Painter(this.canvas.getContext("2d", { alpha: false })!, paletteOf(scenery.theme));
    this.canvas.setAttribute("aria-label", `Graph of ${run.data.model}. Arrow keys go from box to box, Enter opens and closes.`);
    listenForGestures(this.canvas, this.gestures());
    new ResizeObserver(() => this.resize()).observe(this.canvas);
  }

  // What is shown ------------------------------------------------------------------------------------

  renew(scenery: Scenery): void {
    this.scenery = scenery;
    this.looks.renew(scenery);
    this.redraw();
  }

  /** Open exactly these calls; the anchor stays where it is on the screen. */
  setOpen(open: ReadonlySet<number>, anchor: Member | null): void {
    const keys = this.tree.openKeys(open), text = [...keys].sort().join(" ");
    if (text === this.keys) return;
    this.keys = text;
    const before = anchor && this.placed ? locate(this.tree.visible(anchor)) : null, snapshot = before && this.animates() ? this.snapshot() : null;
    const started = performance.now();
    this.tree.layout.setOpen(keys);
    this.layoutTime = performance.now() - started;
    this.afterLayout(anchor, before, snapshot);
  }

  /** Draw each repetition in a box by itself, or once again. */
  unfold(box: Box): void {
    const started = performance.now();
    this.tree.unfold(box);
    this.layoutTime = performance.now() - started;
    this.keys = "?";
    this.afterLayout(null, null, null);
  }

  private afterLayout(anchor: Member | null, before: Spot | null, snapshot: HTMLCanvasElement | null): void {
    this.looks.forget();
    this.hover = null;
    const after = anchor && before ? locate(this.tree.visible(anchor)) : null;
    if (after && before) {
      const { scale } = this.camera;
      this.flight = null;
      this.camera = { scale, x: this.camera.x + (before.axis - after.axis) * scale, y: this.camera.y + (before.y - after.y) * scale };
      if (this.animates() && after.h !== before.h) this.growth = { top: after.y, from: before.h, to: after.h, start: performance.now(), before: snapshot };
    }
    if (this.selected) this.choose(this.selected, false, this.partners);
    this.redraw();
  }

  /** Choose an item, or with null the root or nothing; `partners` are marked with it. */
  choose(at: Member | null, root = false, partners: readonly Member[] = []): void {
    this.selected = at && this.tree.visible(at);
    this.partners = partners.map((one) => this.tree.visible(one));
    this.rootSelected = root;
    this.lit = this.selected ? linesOf(this.selected) : null;
    this.redraw();
  }

  /** Bring an item into the window, at a height on the screen if one is given. */
  bring(at: Member, screenY?: number): void {
    const spot = locate(this.tree.visible(at));
    if (!this.width) return;
    const to = bringIn(this.goal, spot, this.width, this.height);
    if (screenY !== undefined) to.y = screenY - spot.y * to.scale;
    this.fly(to);
  }

  fit(whole: boolean): void {
    const rect = rootRect(this.tree.root);
    this.fly((whole ? fitAll : fitStart)(rect, this.width, this.height));
  }

  fitTo(at: Member): void {
    this.fly(fitAll(locate(this.tree.visible(at)), this.width, this.height));
  }

  // Camera -------------------------------------------------------------------------------------------

  /** Where the camera is going. */
  get goal(): Camera {
    return this.flight?.to ?? this.camera;
  }

  fly(to: Camera): void {
    const goal = kept(to, rootRect(this.tree.root), this.width, this.height);
    if (!this.placed || !this.animates()) this.camera = goal;
    else this.flight = { from: this.camera, to: goal, start: performance.now() };
    this.redraw();
  }

  /** Move at once, without telling the listener. */
  setCamera(camera: Camera): void {
    this.flight = null;
    this.camera = camera;
    this.redraw(true);
  }

  zoom(factor: number): void {
    this.fly(zoomAt(this.goal, factor, this.width / 2, this.height / 2));
  }

  private move(to: Camera): void {
    const before = this.camera;
    this.setCamera(kept(to, rootRect(this.tree.root), this.width, this.height));
    this.listener.moved(this, before, this.camera);
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height || (width === this.width && height === this.height)) return;
    const first = !this.placed, dx = (width - this.width) / 2;
    [this.width, this.height] = [width, height];
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    if (first) {
      this.camera = fitStart(rootRect(this.tree.root), width, height);
      this.placed = true;
      this.listener.placed();
    } else this.camera = { ...this.camera, x: this.camera.x + dx };
    this.drawn = null;
    this.draw();
  }

  private animates(): boolean {
    return this.placed && this.counts.boxes + this.counts.items < CALM_ABOVE && !matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  // Drawing ------------------------------------------------------------------------------------------

  /** Paint everything at the next frame; while only the camera moved, what is there is moved instead. */
  redraw(moved = false): void {
    if (!moved) this.drawn = null;
    if (this.dirty) return;
    this.dirty = true;
    requestAnimationFrame(() => {
      this.dirty = false;
      this.draw();
    });
  }

  get moving(): boolean {
    return this.flight !== null || this.growth !== null || this.dirty;
  }

  draw(): void {
    if (!this.width) return;
    const started = performance.now();
    if (this.flight) {
      const t = Math.min(1, (started - this.flight.start) / DURATION);
      this.camera = between(this.flight.from, this.flight.to, ease(t));
      if (t >= 1) this.flight = null;
    }
    const t = this.growth ? ease(Math.min(1, (started - this.growth.start) / DURATION)) : 1;
    if (this.growth && t >= 1) this.growth = null;
    const picture = this.picture(), ratio = this.canvas.width / this.width, { painter, width, height } = this;
    if (this.growth) this.drawGrowth(picture, this.growth, t, ratio);
    else if (!this.slide(picture, ratio)) {
      painter.paint(picture, this.camera, { x: 0, y: 0, w: width, h: height }, ratio);
      this.counts = painter.counts;
    }
    if (!this.growth) this.map.show(picture, this.camera, width, height, this.drawn === null);
    this.drawn = this.growth ? null : this.camera;
    this.frames++;
    this.drawTime = performance.now() - started;
    if (this.flight || this.growth) this.redraw();
  }

  /** Where the picture has only been moved, move what is there and paint what comes into sight. */
  private slide(picture: Picture, ratio: number): boolean {
    const { drawn, camera, width, height, painter } = this;
    // Which names have room depends on all that is in sight.
    if (!drawn || drawn.scale !== camera.scale || this.counts.labels) return false;
    const dx = Math.round((camera.x - drawn.x) * ratio) / ratio, dy = Math.round((camera.y - drawn.y) * ratio) / ratio;
    if (Math.abs(dx) > width / 2 || Math.abs(dy) > height / 2) return false;
    // On whole device pixels, or the copy would blur.
    this.camera = { scale: camera.scale, x: drawn.x + dx, y: drawn.y + dy };
    const { context } = painter;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.globalCompositeOperation = "copy";
    context.drawImage(this.canvas, dx * ratio, dy * ratio);
    context.globalCompositeOperation = "source-over";
    const seam = 1 / ratio;
    if (dx) painter.paint(picture, this.camera, { x: dx > 0 ? 0 : width + dx - seam, y: 0, w: Math.abs(dx) + seam, h: height }, ratio);
    if (dy) painter.paint(picture, this.camera, { x: 0, y: dy > 0 ? 0 : height + dy - seam, w: width, h: Math.abs(dy) + seam }, ratio);
    return true;
  }

  private picture(): Picture {
    const { theme, overlay } = this.scenery, { run } = this;
    return {
      root: this.tree.root, title: run.data.model || run.type(0), type: run.type(0), looks: this.looks, palette: paletteOf(theme), overlaid: overlay !== null,
      selected: this.selected, rootSelected: this.rootSelected, hover: this.hover, partners: this.partners, lit: this.lit,
      carries: this.scenery.onward ? (box, from, to) => this.carries(box, from, to) : null,
    };
  }

  /** Does a line carry the error of a comparison? */
  private carries(box: Box, from: number, to: number): boolean {
    return (to < 0 || this.looks.of(box, to).onward !== "") && this.isOnward(box, from);
  }

  private isOnward(box: Box, from: number): boolean {
    if (from >= 0) return this.looks.of(box, from).onward !== "";
    if (!box.parent) return false;
    const { wires, count } = box.parent.geometry.plan;
    for (let k = wires.start[box.index]!; k < wires.start[box.index + 1]!; k++)
      if (wires.argument[k] === ~from && this.isOnward(box.parent, wires.from[k]! < count ? wires.from[k]! : ~(wires.from[k]! - count))) return true;
    return false;
  }

  /** One picture of a box that opens or closes: what is above it, what is uncovered of it, what slides below it. */
  private drawGrowth(picture: Picture, growth: Growth, t: number, ratio: number): void {
    const { context } = this.painter, { camera, width, height } = this, now = growth.from + (growth.to - growth.from) * t;
    const top = camera.y + growth.top * camera.scale, split = camera.y + (growth.top + now) * camera.scale;
    const part = (from: number, to: number, shift: number): void => {
      const start = Math.max(0, from);
      if (to > start) this.painter.paint(picture, { ...camera, y: camera.y + shift }, { x: 0, y: start, w: width, h: to - start }, ratio);
    };
    const below = (now - growth.to) * camera.scale, closes = growth.to < growth.from && growth.before;
    part(split, height, below);
    part(0, closes ? Math.min(top, height) : Math.min(split, height), 0);
    if (!closes) return;
    context.setTransform(1, 0, 0, 1, 0, 0);
    const from = Math.max(0, top * ratio), to = Math.min(height * ratio, split * ratio);
    if (to > from) context.drawImage(growth.before!, 0, from, width * ratio, to - from, 0, from, width * ratio, to - from);
  }

  private snapshot(): HTMLCanvasElement {
    const copy = document.createElement("canvas");
    copy.width = this.canvas.width;
    copy.height = this.canvas.height;
    copy.getContext("2d")!.drawImage(this.canvas, 0, 0);
    return copy;
  }

  // Mouse and keyboard -------------------------------------------------------------------------------

  hitAt(x: number, y: number): Hit {
    const [wx, wy] = toWorld(this.camera, x, y);
    return under(this.tree.root, wx, wy, (spot) => hasInside(spot.box.item(spot.index)) && this.camera.scale > 0.3, (spot) => this.looks.of(spot.box, spot.index).strip?.length ?? 0);
  }

  private gestures(): Parameters<typeof listenForGestures>[1] {
    return {
      pan: (dx, dy) => this.move({ ...this.camera, x: this.camera.x + dx, y: this.camera.y + dy }),
      zoom: (factor, x, y) => this.move(zoomAt(this.camera, factor, x, y)),
      hover: (x, y) => this.hovered(this.hitAt(x, y), x, y),
      leave: () => this.hovered(null, 0, 0),
      click: (x, y, { double }) => this.clicked(this.hitAt(x, y), double),
    };
  }

  private hovered(hit: Hit | null, x: number, y: number): void {
    const spot = hit?.spot ?? null, isTitle = !spot?.inner || hit?.part !== "body";
    const now = spot && isTitle ? { box: spot.box, index: spot.index } : null;
    if (now?.box !== this.hover?.box || now?.index !== this.hover?.index) {
      this.hover = now;
      this.redraw();
    }
    this.canvas.style.cursor = now ? "pointer" : "";
    this.listener.hovered(this, now ? hit : null, x, y);
  }

  private clicked(hit: Hit, double: boolean): void {
    const { spot } = hit;
    this.listener.hovered(this, null, 0, 0);
    if (!spot || (spot.inner && hit.part === "body")) {
      if (spot && double) this.listener.toggled(this, spot);
      return;
    }
    const { box, index } = spot;
    if (hit.part === "toggle" || (double && hit.part !== "strip")) {
      if (hasInside(box.item(index))) this.listener.toggled(this, { box, index });
      return;
    }
    if (hit.part === "strip") {
      const count = box.count(index), cells = this.looks.of(box, index).strip!.length;
      return this.listener.chosen(this, box.placeAt(index, Math.floor((hit.cell * count) / cells)));
    }
    this.listener.chosen(this, box.shownPlace(index));
  }

  /** The place next to the chosen one, in a direction; null where there is none. */
  neighbour(direction: "up" | "down" | "left" | "right"): Place | null {
    const at = this.selected;
    if (!at) return this.tree.root.drawn.items.length ? this.firstOf(this.tree.root) : null;
    const next = direction === "up" || direction === "down" ? this.along(at, direction) : this.beside(at, direction === "left" ? -1 : 1);
    return next && next.box.shownPlace(next.index);
  }

  private firstOf(box: Box): Place {
    return box.shownPlace(extreme(box, -1));
  }

  /** The main reader or producer of an item; into an open box, and out of the one around where it ends. */
  private along(at: Member, direction: "up" | "down"): Member | null {
    const { box, index } = at, inner = box.child(index);
    if (direction === "down" && inner?.drawn.items.length) return { box: inner, index: extreme(inner, -1) };
    const { edges, x } = box.geometry;
    let best = -1, distance = Infinity;
    for (let e = 0; e < edges.count; e++) {
      const [own, other] = direction === "down" ? [edges.from[e]!, edges.to[e]!] : [edges.to[e]!, edges.from[e]!];
      if (own !== index || other < 0) continue;
      const far = Math.abs(x[other]! - x[index]!) + 0.01 * Math.abs(other - index) + (edges.flags[e]! & EDGE.SKIPS ? 1e4 : 0);
      if (far < distance) { distance = far; best = other; }
    }
    if (best < 0) return !box.parent ? null : direction === "up" ? { box: box.parent, index: box.index } : this.after({ box: box.parent, index: box.index });
    const target = box.child(best);
    return direction === "up" && target?.drawn.items.length ? { box: target, index: extreme(target, 1) } : { box, index: best };
  }

  /** What follows an open box, without going into it again. */
  private after({ box, index }: Member): Member | null {
    const { edges } = box.geometry;
    for (let e = 0; e < edges.count; e++) if (edges.from[e] === index && edges.to[e]! >= 0) return { box, index: edges.to[e]! };
    return box.parent && this.after({ box: box.parent, index: box.index });
  }

  private beside({ box, index }: Member, side: number): Member | null {
    const { x, plan } = box.geometry;
    let best = -1;
    for (let i = 0; i < plan.count; i++)
      if (plan.row[i] === plan.row[index] && (x[i]! - x[index]!) * side > 0 && (best < 0 || Math.abs(x[i]! - x[index]!) < Math.abs(x[best]! - x[index]!))) best = i;
    return best < 0 ? null : { box, index: best };
  }

  // For tests ----------------------------------------------------------------------------------------

  /** Every item in the window: where it stands, in pixels of the canvas, and how it looks. */
  visible(): Visible[] {
    const found: Visible[] = [], { camera } = this;
    walk(this.tree.root, visibleRect(camera, this.width, this.height), (spot) => void found.push(this.described(spot)));
    return found;
  }

  described(spot: Spot): Visible {
    const { camera, run } = this, { box, index } = spot, item = box.item(index), place = box.shownPlace(index), look = this.looks.of(box, index);
    const at: Rect = { x: camera.x + spot.x * camera.scale, y: camera.y + spot.y * camera.scale, w: spot.w * camera.scale, h: spot.h * camera.scale };
    return {
      key: keyOfMember(spot), path: run.path(place.call), ...place, kind: item.kind, label: look.label, type: item.type, times: item.times, open: spot.inner !== null, ...at,
      axis: camera.x + spot.axis * camera.scale, depth: spot.depth, readable: FONT.name * camera.scale >= 7, fill: look.fill, value: look.value, pool: look.pool,
      odd: look.odd < 0 ? null : box.placeAt(index, look.odd), faded: look.faded, hit: look.hit, hits: look.hits, mark: look.mark, finding: look.finding, onward: look.onward,
      notFinite: look.notFinite, selected: [this.selected, ...this.partners].some((one) => one?.box === box && one.index === index),
    };
  }
}

export interface Visible extends Rect {
  key: string; path: string; call: number; item: number; kind: string; label: string; type: string; times: number; open: boolean; axis: number; depth: number;
  readable: boolean; fill: string; value: string; pool: { count: number; nan: number; missing: number; min: number; median: number; max: number } | null; odd: Place | null;
  faded: boolean; hit: boolean; hits: number; mark: string; finding: string; onward: string; notFinite: boolean; selected: boolean;
}

/** The first or the last item of a box on its axis. */
function extreme(box: Box, side: -1 | 1): number {
  const { y, x } = box.geometry;
  let best = 0;
  for (let i = 1; i < y.length; i++)
    if ((y[i]! - y[best]!) * side > 0.5 || (Math.abs(y[i]! - y[best]!) <= 0.5 && Math.abs(x[i]!) < Math.abs(x[best]!))) best = i;
  return best;
}
