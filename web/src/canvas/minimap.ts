/** The whole drawing, small, with a frame around what is in the window; a click or drag in it goes there. */

import { el } from "../shell/dom";
import type { Camera } from "./camera";
import { Painter, type Picture } from "./draw";
import { rootRect } from "./scene";
import type { Box } from "./tree";

const [WIDEST, HIGHEST] = [104, 128]; // pixels
const MOST = 3000; // items; to draw more takes longer than a frame

export class Minimap {
  private readonly canvas = el("canvas");
  private readonly frame = el("i");
  readonly element = el("div", { class: "minimap", "aria-hidden": "true", hidden: true, pointerdown: (event: PointerEvent) => this.go(event), pointermove: (event: PointerEvent) => event.buttons && this.go(event) }, this.canvas, this.frame);
  private painter: Painter | null = null;
  private scale = 0; // 0: nothing is drawn
  private left = 0;

  /** `center` moves the window so that a point of the drawing is in its middle. */
  constructor(private readonly center: (x: number, y: number) => void) {}

  /** Draw what has changed: the picture, or only which part of it is in the window. */
  show(picture: Picture, camera: Camera, width: number, height: number, hasChanged: boolean): void {
    if (hasChanged) this.paint(picture);
    const all = rootRect(picture.root), isWhole = all.w * camera.scale <= width && all.h * camera.scale <= height;
    this.element.hidden = !this.scale || isWhole || width < 480;
    if (this.element.hidden) return;
    const ratio = this.scale / camera.scale, { style } = this.frame;
    style.transform = `translate(${(-camera.x / camera.scale - this.left) * this.scale}px,${(-camera.y / camera.scale) * this.scale}px)`;
    style.width = `${width * ratio}px`;
    style.height = `${height * ratio}px`;
  }

  private paint(picture: Picture): void {
    const { x, w, h } = rootRect(picture.root), ratio = devicePixelRatio || 1;
    this.scale = itemsIn(picture.root, MOST) < MOST ? Math.min(WIDEST / w, HIGHEST / h) : 0;
    if (!this.scale) return;
    this.left = x;
    const width = w * this.scale, height = h * this.scale;
    [this.canvas.width, this.canvas.height] = [Math.ceil(width * ratio), Math.ceil(height * ratio)];
    this.element.style.width = `${width}px`;
    this.element.style.height = `${height}px`;
    this.painter ??= new Painter(this.canvas.getContext("2d", { alpha: false })!, picture.palette);
    this.painter.paint({ ...picture, hover: null, isMap: true }, { x: -x * this.scale, y: 0, scale: this.scale }, { x: 0, y: 0, w: width, h: height }, ratio);
  }

  private go(event: PointerEvent): void {
    this.element.setPointerCapture(event.pointerId);
    const bounds = this.element.getBoundingClientRect();
    this.center((event.clientX - bounds.left) / this.scale + this.left, (event.clientY - bounds.top) / this.scale);
  }
}

/** How many items are drawn in a box and in all that is open in it; not counted on above a limit. */
function itemsIn(box: Box, limit: number): number {
  let count = box.drawn.items.length;
  for (let i = 0; i < box.drawn.items.length && count < limit; i++) {
    const inner = box.child(i);
    if (inner) count += itemsIn(inner, limit);
  }
  return count;
}
