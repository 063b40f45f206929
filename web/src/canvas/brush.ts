/** Drawing primitives on a canvas: rounded boxes, text that fits, polylines with round corners, badges. */

import { fitted, widthOf } from "../layout/text";
import type { Palette } from "./palette";

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif";
export type Weight = "" | "600";
export interface TextStyle { size: number; colour: string; weight?: Weight; align?: CanvasTextAlign; room?: number }

const MANY = 20_000; // remembered texts before the table is emptied

/** Draws in the drawing's units; knows how many pixels a unit has, so that what cannot be seen is left out. */
export class Brush {
  private readonly shortened = new Map<string, string>();
  scale = 1;
  texts = 0;
  private font = "";

  constructor(readonly context: CanvasRenderingContext2D, public palette: Palette) {}

  /** Before each picture: its scale in pixels per unit (without the device's pixel ratio). */
  begin(scale: number): void {
    this.scale = scale;
    this.texts = 0;
    this.font = "";
    this.context.textBaseline = "middle";
    this.context.lineJoin = "round";
  }

  /** The context was restored: its font may be another. */
  forget(): void {
    this.font = "";
  }

  /** Is text of this size legible now? */
  legible(size: number): boolean {
    return size * this.scale >= 4.5;
  }

  text(text: string, x: number, y: number, style: TextStyle): void {
    if (!text || !this.legible(style.size)) return;
    const weight = style.weight ?? "", shown = style.room === undefined ? text : this.fit(text, style.size, weight, style.room);
    if (!shown) return;
    const font = `${weight || "400"} ${style.size}px ${FONT}`, { context } = this;
    if (font !== this.font) context.font = this.font = font;
    context.fillStyle = style.colour;
    context.textAlign = style.align ?? "center";
    context.fillText(shown, x, y);
    this.texts++;
  }

  /** How wide a text is at most; the same for every font, as in the layout. */
  width(text: string, size: number, weight: Weight = ""): number {
    return widthOf(text, size, weight ? "bold" : "regular");
  }

  private fit(text: string, size: number, weight: Weight, room: number): string {
    if (text.length < 300 && this.width(text, size, weight) <= room) return text;
    const key = `${weight}${Math.round(room / size)} ${text}`;
    let short = this.shortened.get(key);
    if (short === undefined) {
      if (this.shortened.size > MANY) this.shortened.clear();
      short = room < size ? "" : fitted(text, size, room, weight ? "bold" : "regular");
      this.shortened.set(key, short);
    }
    return short;
  }

  /** A rounded box; corners below one pixel are drawn square, which is several times faster. */
  box(x: number, y: number, w: number, h: number, radius: number, fill: string | null, line: string | null, width = 1): void {
    const { context } = this;
    if (radius * this.scale < 1.5) {
      if (fill) { context.fillStyle = fill; context.fillRect(x, y, w, h); }
      if (line) { context.strokeStyle = line; context.lineWidth = width; context.strokeRect(x, y, w, h); }
      return;
    }
    context.beginPath();
    context.roundRect(x, y, w, h, Math.min(radius, w / 2, h / 2));
    if (fill) { context.fillStyle = fill; context.fill(); }
    if (line) { context.strokeStyle = line; context.lineWidth = width; context.stroke(); }
  }

  /** The left edge of a card, in its family's colour. */
  stripe(x: number, y: number, w: number, h: number, radius: number, colour: string): void {
    const { context } = this;
    context.fillStyle = colour;
    if (radius * this.scale < 1.5) return context.fillRect(x, y, w, h);
    context.beginPath();
    context.roundRect(x, y, w, h, [radius, 0, 0, radius]);
    context.fill();
  }

  /** A line with right angles whose corners are round; `points` are x, y, x, y … */
  path(points: ArrayLike<number>, dx: number, dy: number, radius: number): void {
    const { context } = this, n = points.length / 2;
    context.moveTo(points[0]! + dx, points[1]! + dy);
    for (let i = 1; i < n; i++) {
      const x = points[2 * i]!, y = points[2 * i + 1]!;
      if (i === n - 1 || radius * this.scale < 1) { context.lineTo(x + dx, y + dy); continue; }
      const before = Math.abs(x - points[2 * i - 2]!) + Math.abs(y - points[2 * i - 1]!);
      const after = Math.abs(points[2 * i + 2]! - x) + Math.abs(points[2 * i + 3]! - y);
      context.arcTo(x + dx, y + dy, points[2 * i + 2]! + dx, points[2 * i + 3]! + dy, Math.min(radius, before / 2, after / 2));
    }
  }

  arrow(x: number, y: number, size: number): void {
    const { context } = this;
    context.moveTo(x, y);
    context.lineTo(x - size * 0.56, y - size);
    context.lineTo(x + size * 0.56, y - size);
    context.closePath();
  }

  /** A small label on a dark pill whose right end is at `right`. Returns its width. */
  badge(text: string, right: number, y: number, fill = this.palette.badge, ink = this.palette.badgeText, always = false): number {
    const width = this.width(text, 10, "600") + 12, { scale } = this;
    if (!always && !this.legible(7)) return width;
    if (always) this.scale = 1; // the caller has enlarged it
    this.box(right - width, y - 8, width, 16, 8, fill, null);
    this.text(text, right - width / 2, y + 0.5, { size: 10, colour: ink, weight: "600" });
    this.scale = scale;
    return width;
  }
}
