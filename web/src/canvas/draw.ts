/** Paints the drawing: open boxes, their lines, closed items; each only as finely as it can be seen. */

import type { DrawnItem } from "../fold";
import { EDGE, type Geometry, loopOf } from "../layout/geometry";
import { FONT, SIZE, timesOf } from "../layout/sizes";
import { Brush } from "./brush";
import { toWorld, type Camera, type Rect } from "./camera";
import type { Palette } from "./palette";
import type { Look, Looks } from "./look";
import { frontOf, hasStrip, meets, spotOf, STACK, stripRect, type Spot } from "./scene";
import type { Box, Member } from "./tree";

/** What is drawn, besides the layout itself. */
export interface Picture {
  root: Box;
  title: string;
  type: string;
  looks: Looks;
  palette: Palette;
  overlaid: boolean;
  selected: Member | null;
  rootSelected: boolean;
  hover: Member | null;
  /** What stands for the chosen one together with it, where one operation does what several did. */
  partners: readonly Member[];
  /** Without the names that stand on boxes too small for their titles. */
  isMap?: boolean;
  /** Lines that are lit: by the box that they are in, the numbers of its edges. */
  lit: ReadonlyMap<Box, ReadonlySet<number>> | null;
  /** Lines that carry the error of a comparison. */
  carries: ((box: Box, from: number, to: number) => boolean) | null;
}

export interface Counts { boxes: number; items: number; edges: number; texts: number; labels: number }

const THIN = 0.07; // scale below which lines between closed items are no longer told apart
const RADIUS = 9;
const GUILTY = "first difference";

export class Painter {
  readonly brush: Brush;
  counts: Counts = { boxes: 0, items: 0, edges: 0, texts: 0, labels: 0 };
  private picture!: Picture;
  private window!: Rect;
  private scale = 1;
  private labels: Rect[] = []; // names on the map, in pixels from the origin of the drawing

  constructor(readonly context: CanvasRenderingContext2D, palette: Palette) {
    this.brush = new Brush(context, palette);
  }

  /** Paint a part of a canvas; `part` is in pixels of the page, `ratio` device pixels are one of them. */
  paint(picture: Picture, camera: Camera, part: Rect, ratio: number): void {
    const { context, brush } = this;
    this.picture = picture;
    this.scale = camera.scale;
    const [x, y] = toWorld(camera, part.x, part.y);
    this.window = { x, y, w: part.w / camera.scale, h: part.h / camera.scale };
    this.counts = { boxes: 0, items: 0, edges: 0, texts: 0, labels: 0 };
    brush.palette = picture.palette;
    context.save();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.beginPath();
    context.rect(part.x, part.y, part.w, part.h);
    context.clip();
    context.fillStyle = picture.palette.paper;
    context.fillRect(part.x, part.y, part.w, part.h);
    context.setTransform(ratio * camera.scale, 0, 0, ratio * camera.scale, ratio * camera.x, ratio * camera.y);
    brush.begin(camera.scale);
    this.labels = [];
    this.root();
    context.restore();
    this.counts.texts = brush.texts;
  }

  private get hairline(): number {
    return 1 / Math.max(this.scale, 0.35);
  }

  private root(): void {
    const { root, title, type, palette, rootSelected } = this.picture, { boxLeft, boxRight, boxHeight } = root.geometry;
    if (!meets(this.window, -boxLeft, 0, boxLeft + boxRight, boxHeight)) return;
    this.counts.boxes++;
    this.brush.box(-boxLeft, 0, boxLeft + boxRight, boxHeight, RADIUS, palette.box[0], rootSelected ? palette.accent : palette.boxLine, rootSelected ? 2 : this.hairline);
    this.inside(root, 0, 0, 0);
    this.title(title, type, -boxLeft, 0, boxLeft + boxRight, 0, palette.box[0], palette.text, 0);
  }

  /** Lines and items of an open box whose axis and upper border are at (ax, ay). */
  private inside(box: Box, ax: number, ay: number, depth: number): void {
    const { geometry } = box, { window } = this, count = geometry.x.length;
    if (this.scale > THIN) this.edges(box, ax, ay);
    if (this.brush.legible(FONT.note)) this.notes(geometry, ax, ay);
    const bottom = window.y + window.h, right = window.x + window.w;
    for (let i = 0; i < count; i++) {
      const x = ax + geometry.x[i]!, y = ay + geometry.y[i]!;
      if (y > bottom || y + geometry.height[i]! + STACK < window.y || x - geometry.left[i]! > right || x + geometry.right[i]! + 2 * STACK < window.x) continue;
      const spot = spotOf(box, i, ax, ay, depth + 1);
      if (spot.inner) this.open(spot, depth + 1);
      else this.closed(spot);
    }
  }

  // Open boxes ---------------------------------------------------------------------------------------

  private open(spot: Spot, depth: number): void {
    const { palette, looks, overlaid } = this.picture, { box, index, x, y, w, h, inner } = spot;
    if (!inner) return;
    this.counts.boxes++;
    const item = box.item(index), look = looks.of(box, index), paper = palette.box[depth & 1]!, line = this.lineOf(look, palette.boxLine);
    const { context } = this, faded = look.faded;
    if (faded) context.globalAlpha = 0.35;
    if (item.times > 1 && this.scale > 0.1)
      for (let sheet = 2; sheet > 0; sheet--) this.brush.box(x + STACK * sheet, y + STACK * sheet, w, h, RADIUS, paper, palette.boxLine, this.hairline);
    this.brush.box(x, y, w, h, RADIUS, paper, line, look.mark || look.onward ? 1.6 * this.hairline : this.hairline);
    if (faded) context.globalAlpha = 1;
    const label = this.reserved(look.label, x, y, w, h);
    if (h * this.scale >= 8) this.inside(inner, spot.axis, y, depth);
    if (label) this.label(look.label, label, paper, look.faded ? palette.dim : palette.text);
    if (item.carried) this.loop(x + w, y, h);
    let right = 0;
    if (item.times > 1) right = this.brush.badge(timesOf(item), x + w - 10, y + 13) + 8;
    if (overlaid) right += this.titleReading(spot, look, right);
    if (look.strip && look.strip.length > 1) this.strip(spot, look, 3);
    this.title(look.label, item.type, x, y, w, spot.axis, paper, look.faded ? palette.dim : palette.text, right, hasInside(item));
    this.rings(spot, { x, y, w, h }, RADIUS);
    this.marks(spot, look, { x, y, w, h });
  }

  private title(name: string, type: string, x: number, y: number, w: number, axis: number, paper: string, ink: string, taken: number, toggles = false): void {
    const { brush, context } = this;
    if (!brush.legible(FONT.title)) return;
    const left = x + (toggles ? 22 : 12), room = w - (left - x) - taken - 10, nameWidth = Math.min(brush.width(name, FONT.title, "600"), room);
    if (toggles) this.chevron(x + 12, y + 13, true, this.picture.palette.dim);
    const typeWidth = brush.width(type, FONT.titleType);
    let typeAt = left + nameWidth + 7;
    // The class moves past the axis, where the line of the main value runs down.
    if (typeAt < axis + 5 && typeAt + typeWidth > axis - 5 && axis + 8 + typeWidth < x + w - taken - 8) typeAt = axis + 8;
    const typeRoom = x + w - taken - 8 - typeAt, hasType = type !== "" && type !== name && typeRoom > 0.6 * typeWidth;
    context.fillStyle = paper;
    context.fillRect(left - 3, y + 5, nameWidth + 6, 16); // lines run behind the words
    if (hasType) context.fillRect(typeAt - 3, y + 5, Math.min(typeWidth, typeRoom) + 6, 16);
    brush.text(name, left, y + 13, { size: FONT.title, colour: ink, weight: "600", align: "left", room });
    if (hasType) brush.text(type, typeAt, y + 13.4, { size: FONT.titleType, colour: this.picture.palette.dim, align: "left", room: typeRoom });
  }

  /**
   * The place of the name of an open box whose title is too small to be read, as on a map: in the size of the screen, and
   * left out where the name of a box around it stands already.
   */
  private reserved(name: string, x: number, y: number, w: number, h: number): Rect | null {
    const { brush, scale } = this;
    if (!name || this.picture.isMap || brush.legible(FONT.title) || w * scale < 44 || h * scale < 34) return null;
    const width = Math.min(brush.width(name, 10.5, "600"), w * scale - 10), at = { x: x * scale + 4, y: y * scale + 3, w: width + 6, h: 15 };
    if (this.labels.some((one) => meets(one, at.x, at.y, at.w, at.h))) return null;
    this.labels.push(at);
    return at;
  }

  private label(name: string, at: Rect, paper: string, ink: string): void {
    const { context, brush, scale } = this;
    this.counts.labels++;
    context.save();
    context.scale(1 / scale, 1 / scale);
    brush.scale = 1;
    context.globalAlpha = 0.88;
    context.fillStyle = paper;
    context.fillRect(at.x, at.y, at.w, at.h);
    context.globalAlpha = 1;
    brush.text(name, at.x + 3, at.y + 8, { size: 10.5, colour: ink, weight: "600", align: "left", room: at.w - 4 });
    brush.scale = scale;
    context.restore();
    brush.forget();
  }

  /** The reading of an open box, on the right of its title; returns the width that it takes. */
  private titleReading(spot: Spot, look: Look, taken: number): number {
    const { brush } = this, { palette } = this.picture, width = brush.width(look.short, 10, "600") + 12;
    if (!look.short || !brush.legible(FONT.titleType) || spot.w < taken + width + 50 + brush.width(look.label, FONT.title, "600")) return 0;
    const x = spot.x + spot.w - taken - (taken ? 7 : 10) - width;
    brush.box(x, spot.y + 5, width, 16, 8, look.fill, null);
    brush.text(look.short, x + width / 2, spot.y + 13.5, { size: 10, colour: look.ink === palette.dim ? palette.text : look.ink, weight: "600" });
    return width + 8;
  }

  // Closed items -------------------------------------------------------------------------------------

  private closed(spot: Spot): void {
    const { looks, palette } = this.picture, { box, index } = spot, item = box.item(index), look = looks.of(box, index);
    this.counts.items++;
    const { context, brush } = this, card = frontOf(spot);
    if (card.h * this.scale < 3) {
      // Too small for anything but its colour.
      context.globalAlpha = look.faded ? 0.2 : 1;
      context.fillStyle = item.kind === "views" ? palette.pill : this.picture.overlaid ? look.fill : look.stripe;
      context.fillRect(card.x, card.y, card.w, card.h);
      context.globalAlpha = 1;
      return;
    }
    if (look.faded) context.globalAlpha = 0.28;
    const isCall = item.kind === "call" || item.type !== "", radius = item.kind === "views" ? card.h / 2 : isCall ? 6 : Math.min(11, card.h / 2);
    const line = item.kind === "views" && !this.picture.overlaid ? null : this.lineOf(look, look.line);
    if (item.times > 1 && this.scale > 0.15)
      for (let sheet = 2; sheet > 0; sheet--) brush.box(card.x + 2 * sheet, card.y + 2 * sheet, card.w, card.h, radius, look.fill, line ?? palette.boxLine, this.hairline);
    if (look.mark === "opaque" || look.mark === "unfinished") context.setLineDash([4, 3]);
    brush.box(card.x, card.y, card.w, card.h, radius, look.fill, line, look.mark === "failed" || look.onward === "guilty" ? 2 : this.hairline);
    context.setLineDash([]);
    if (look.notFinite) this.hatch(card, radius);
    if (item.carried) this.loop(card.x + card.w, card.y, card.h);
    if (isCall && this.scale > 0.12) brush.stripe(card.x, card.y, 4, card.h, 6, look.mark === "failed" ? palette.bad : look.stripe);
    if (look.strip && look.strip.length > 1) hasStrip(spot) ? this.strip(spot, look, radius) : this.oddMark(look, card.x + card.w - 9, card.y + 5);
    this.words(spot, look, card, isCall);
    const alpha = context.globalAlpha;
    context.globalAlpha = 1;
    this.rings(spot, card, radius);
    context.globalAlpha = alpha;
    this.marks(spot, look, card);
    context.globalAlpha = 1;
  }

  private words(spot: Spot, look: Look, card: Rect, isCall: boolean): void {
    const { brush } = this, { box, index } = spot, item = box.item(index);
    if (!brush.legible(FONT.name)) return;
    const repeated = item.times > 1 ? brush.width(timesOf(item), FONT.times, "600") + 20 : 0, middle = card.x + (card.w - repeated) / 2 + (isCall ? 1 : 0);
    const room = card.w - repeated - 12, value = this.picture.overlaid ? (brush.width(look.value, FONT.type) <= room ? look.value : look.short) : "";
    const lift = look.strip && hasStrip(spot) ? -2.5 : 0;
    if (repeated) brush.badge(timesOf(item), card.x + card.w - 7, card.y + card.h / 2 + lift);
    if (!isCall) {
      const size = item.kind === "views" ? FONT.views : FONT.operation, colour = item.kind === "views" && !this.picture.overlaid ? look.dimInk : look.ink;
      if (!value || card.h < 20) return brush.text(look.label, middle, card.y + card.h / 2 + 0.5, { size, colour, room: card.w - repeated - 6 });
      brush.text(look.label, middle, card.y + card.h / 2 - 4.5 + lift, { size: 10.5, colour, room: card.w - repeated - 6 });
      return brush.text(value, middle, card.y + card.h / 2 + 6 + lift, { size: 8.5, colour: look.ink, room: card.w - repeated - 6 });
    }
    const second = value || item.type, shift = second && brush.legible(FONT.type) ? 7 : 0;
    brush.text(look.label, middle, card.y + card.h / 2 - shift + lift, { size: FONT.name, colour: look.ink, weight: "600", room: card.w - repeated - 10 });
    brush.text(second, middle, card.y + card.h / 2 + 8 + lift, { size: FONT.type, colour: look.dimInk, room: card.w - repeated - 10 });
    const { hover } = this.picture;
    if (hover && hover.box === box && hover.index === index && hasInside(item)) this.chevron(card.x + 11, card.y + card.h / 2, false, look.dimInk);
  }

  /** An arrow from the end of a turn back to its beginning: a loop passes a value on. */
  private loop(x: number, y: number, height: number): void {
    const { context } = this;
    context.strokeStyle = this.picture.palette.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    for (const points of loopOf(x, y, height)) this.brush.path(points, 0, 0, 0);
    context.stroke();
  }

  private chevron(x: number, y: number, down: boolean, colour: string): void {
    const { context } = this;
    if (this.scale < 0.45) return;
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.beginPath();
    if (down) { context.moveTo(x - 3.5, y - 2); context.lineTo(x, y + 2); context.lineTo(x + 3.5, y - 2); }
    else { context.moveTo(x - 2, y - 3.5); context.lineTo(x + 2, y); context.lineTo(x - 2, y + 3.5); }
    context.stroke();
  }

  /** A row of cells along the lower edge, one for each place that the item stands for; the chosen and the odd one are marked. */
  private strip(spot: Spot, look: Look, radius: number): void {
    const { context } = this, { palette } = this.picture, strip = look.strip!, rect = stripRect(spot), width = rect.w / strip.length;
    if (rect.h * this.scale < 2) return;
    context.save();
    context.beginPath();
    context.roundRect(rect.x, rect.y, rect.w, rect.h, spot.inner ? radius : [0, 0, radius, 0]);
    context.clip();
    context.fillStyle = spot.inner ? palette.boxLine : look.ink;
    context.fillRect(rect.x, rect.y, rect.w, rect.h);
    const top = spot.inner ? 0 : 0.8, between = width * this.scale > 4 ? 0.6 : 0;
    strip.forEach((colour, cell) => {
      context.fillStyle = colour ?? palette.missing;
      context.fillRect(rect.x + cell * width, rect.y + top, width - between, rect.h);
    });
    context.restore();
    const count = look.pool!.count, at = (position: number): number => rect.x + (Math.floor((position / count) * strip.length) + 0.5) * width;
    // The chosen one has a tick above it, the odd one a triangle.
    context.fillStyle = spot.inner ? palette.text : look.ink;
    if (look.shown >= 0) context.fillRect(at(look.shown) - 1.5, rect.y - 3, 3, 3.5);
    this.oddMark(look, at(look.odd), rect.y);
  }

  private oddMark(look: Look, x: number, y: number): void {
    if (look.odd < 0) return;
    const { context } = this, { palette } = this.picture;
    context.fillStyle = palette.bad;
    context.strokeStyle = palette.paper;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, y + 1); context.lineTo(x - 4, y - 5.5); context.lineTo(x + 4, y - 5.5); context.closePath();
    context.stroke();
    context.fill();
  }

  /** Lines across what is not finite, so that it shows without its colour, too. */
  private hatch(card: Rect, radius: number): void {
    const { context } = this;
    if (card.h * this.scale < 8) return;
    context.save();
    context.beginPath();
    context.roundRect(card.x, card.y, card.w, card.h, radius);
    context.clip();
    context.strokeStyle = this.picture.palette.nan;
    context.globalAlpha *= 0.55;
    context.lineWidth = 1.5;
    context.beginPath();
    for (let x = card.x - card.h; x < card.x + card.w; x += 7) { context.moveTo(x, card.y + card.h); context.lineTo(x + card.h, card.y); }
    context.stroke();
    context.restore();
  }

  // Marks --------------------------------------------------------------------------------------------

  private lineOf(look: Look, usual: string): string {
    const { palette } = this.picture;
    if (look.mark === "failed" || look.mark === "passed on" || look.onward === "guilty") return palette.bad;
    if (look.mark === "unfinished") return palette.bad;
    return look.onward === "onward" ? palette.residual : usual;
  }

  private marks(spot: Spot, look: Look, card: Rect): void {
    const { brush, context } = this, { palette } = this.picture;
    if (this.scale < 0.06) return;
    // Signs stay legible where the text around them no longer is.
    const grown = Math.max(1, 0.8 / this.scale);
    const sign = (text: string, fill: string, x: number, y: number): number => {
      context.save();
      context.translate(x, y);
      context.scale(grown, grown);
      const width = brush.badge(text, 0, 0, fill, palette.paper, true) * grown;
      context.restore();
      brush.forget();
      return width;
    };
    let right = card.x + card.w + 5;
    // Beside the box: above it stands the name of the one around it.
    if (look.onward === "guilty") sign(GUILTY, palette.bad, right + 3 + (brush.width(GUILTY, 10, "600") + 12) * grown, card.y + card.h / 2);
    if (look.mark === "failed") right -= sign("raised", palette.bad, right, card.y - 5 * grown) + 3 * grown;
    if (look.hits && !spot.inner) right -= sign(String(look.hits), palette.accent, right, card.y) + 3 * grown;
    if (look.finding) {
      context.fillStyle = look.finding === "error" ? palette.bad : look.finding === "warning" ? palette.warn : palette.accent;
      context.beginPath();
      context.arc(right - 8, card.y, 4 * Math.min(2, grown), 0, 7);
      context.fill();
      context.strokeStyle = palette.paper;
      context.lineWidth = 1.5;
      context.stroke();
    }
    if (look.hit) brush.box(card.x - 2.5, card.y - 2.5, card.w + 5, card.h + 5, 8, null, palette.accent, 1.6);
  }

  private rings(spot: Spot, card: Rect, radius: number): void {
    const { palette, selected, hover, partners } = this.picture, { box, index } = spot;
    const line = 2 / Math.max(0.5, this.scale), off = 3 / Math.max(0.5, this.scale);
    if ((selected && selected.box === box && selected.index === index) || partners.some((one) => one.box === box && one.index === index)) {
      this.brush.box(card.x - off, card.y - off, card.w + 2 * off, card.h + 2 * off, radius + off, null, palette.accentSoft, 3 * line);
      this.brush.box(card.x - off, card.y - off, card.w + 2 * off, card.h + 2 * off, radius + off, null, palette.accent, line);
    } else if (hover && hover.box === box && hover.index === index)
      this.brush.box(card.x - 1, card.y - 1, card.w + 2, card.h + 2, radius + 1, null, palette.accent, line / 2);
  }

  // Lines --------------------------------------------------------------------------------------------

  private edges(box: Box, ax: number, ay: number): void {
    const { context, window, picture } = this, { palette } = picture, { edges } = box.geometry, lit = picture.lit?.get(box);
    const groups = new Map<string, number[]>();
    for (let e = 0; e < edges.count; e++) {
      if (!this.edgeMeets(edges, e, ax, ay, window)) continue;
      this.counts.edges++;
      const flags = edges.flags[e]!;
      const style = lit?.has(e) ? "lit" : picture.carries?.(box, edges.from[e]!, edges.to[e]!) ? "carries" : flags & EDGE.BUNDLE ? "bundle" : flags & EDGE.SKIPS ? "skip" : "plain";
      const group = groups.get(style);
      if (group) group.push(e);
      else groups.set(style, [e]);
    }
    const dim = picture.lit !== null;
    for (const style of ["plain", "skip", "bundle", "carries", "lit"] as const) {
      const group = groups.get(style);
      if (!group) continue;
      context.strokeStyle = context.fillStyle = { plain: palette.edge, skip: palette.residual, bundle: palette.edge, carries: palette.bad, lit: palette.accent }[style];
      context.lineWidth = Math.max({ plain: 1.3, skip: 1.4, bundle: 2.6, carries: 2.4, lit: 2.2 }[style], 0.6 / this.scale);
      context.globalAlpha = style === "lit" || style === "carries" ? 1 : dim ? 0.5 : 0.9;
      context.beginPath();
      for (const e of group) this.brush.path(edges.points.subarray(edges.start[e]!, edges.start[e + 1]!), ax, ay, SIZE.radius);
      context.stroke();
      if (this.scale > 0.22) this.arrows(edges, group, ax, ay, style === "lit" || style === "carries" ? 7 : 6);
      context.globalAlpha = 1;
    }
  }

  private edgeMeets(edges: Geometry["edges"], e: number, ax: number, ay: number, window: Rect): boolean {
    const { points } = edges, from = edges.start[e]!, to = edges.start[e + 1]!;
    const top = ay + points[from + 1]!, bottom = ay + points[to - 1]!;
    if (top > window.y + window.h || bottom < window.y) return false;
    if (to - from <= 4) {
      const x = ax + points[from]!;
      return x >= window.x - 8 && x <= window.x + window.w + 8;
    }
    let low = Infinity, high = -Infinity;
    for (let k = from; k < to; k += 2) { const x = points[k]!; if (x < low) low = x; if (x > high) high = x; }
    return ax + high >= window.x && ax + low <= window.x + window.w;
  }

  private arrows(edges: Geometry["edges"], group: readonly number[], ax: number, ay: number, size: number): void {
    const { context } = this;
    context.beginPath();
    for (const e of group) {
      if (edges.flags[e]! & (EDGE.INTO_OPEN | EDGE.OUT)) continue;
      const end = edges.start[e + 1]!;
      this.brush.arrow(ax + edges.points[end - 2]!, ay + edges.points[end - 1]!, size);
    }
    context.fill();
  }

  private notes(geometry: Geometry, ax: number, ay: number): void {
    const { window, brush } = this, { palette } = this.picture;
    for (const note of geometry.notes) {
      const x = ax + note.x, y = ay + note.y;
      if (y < window.y - 10 || y > window.y + window.h + 10 || x < window.x - 300 || x > window.x + window.w + 300) continue;
      brush.text(note.text, x, y, { size: FONT.note, colour: palette.dim, align: note.align });
    }
  }
}

/** Can an item be opened? */
export function hasInside(item: DrawnItem): boolean {
  return item.body >= 0 && item.group === null;
}

