/** The window on the drawing: what part is seen, how large, and how it moves. */

export interface Camera { x: number; y: number; scale: number }
export interface Rect { x: number; y: number; w: number; h: number }

export const MIN_SCALE = 1e-4;
export const MAX_SCALE = 4;
const MARGIN = 28;
const LEGIBLE = 0.75;

/** The part of the drawing that a window of this size shows. */
export function visibleRect(camera: Camera, width: number, height: number): Rect {
  return { x: -camera.x / camera.scale, y: -camera.y / camera.scale, w: width / camera.scale, h: height / camera.scale };
}

export function toWorld(camera: Camera, x: number, y: number): [number, number] {
  return [(x - camera.x) / camera.scale, (y - camera.y) / camera.scale];
}

/** Zoom by a factor; the point of the drawing under (x, y) stays there. */
export function zoomAt(camera: Camera, factor: number, x: number, y: number): Camera {
  const scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, camera.scale * factor)), q = scale / camera.scale;
  return { scale, x: x - (x - camera.x) * q, y: y - (y - camera.y) * q };
}

/** A camera that does not lose the drawing: some of it stays in sight, and it is not made smaller than is of use. */
export function kept(camera: Camera, box: Rect, width: number, height: number): Camera {
  const least = Math.min(0.3, 0.6 * fitAll(box, width, height).scale);
  const { x, y, scale } = camera.scale < least ? zoomAt(camera, least / camera.scale, width / 2, height / 2) : camera;
  const limit = (offset: number, start: number, length: number, window: number): number => {
    const room = Math.min(80, length * scale);
    return Math.min(window - room - start * scale, Math.max(room - (start + length) * scale, offset));
  };
  return { scale, x: limit(x, box.x, box.w, width), y: limit(y, box.y, box.h, height) };
}

/** All of it in the window. */
export function fitAll(box: Rect, width: number, height: number): Camera {
  const scale = clampScale(Math.min(1.25, (width - 2 * MARGIN) / box.w, (height - 2 * MARGIN) / box.h));
  return { scale, x: width / 2 - scale * (box.x + box.w / 2), y: height / 2 - scale * (box.y + box.h / 2) };
}

/** Readable from the top: all of it, or its width, in the window where names are then 9 px high or more; a short one is centred. */
export function fitStart(box: Rect, width: number, height: number): Camera {
  const whole = fitAll(box, width, height);
  if (whole.scale >= LEGIBLE) return whole;
  const scale = clampScale(Math.min(1, Math.max(LEGIBLE, (width - 2 * MARGIN) / box.w)));
  const wide = box.w * scale > width - MARGIN;
  // The axis (x = 0 of the drawing) stays in sight where the drawing is wider than the window.
  const left = wide ? Math.min(MARGIN, width / 2) - scale * box.x : width / 2 - scale * (box.x + box.w / 2);
  const x = wide ? Math.min(left, Math.max(0.7 * width, width - MARGIN - scale * (box.x + box.w))) : left;
  return { scale, x, y: MARGIN - scale * box.y };
}

/** The camera that brings a place into the window: moved only as far as needed, enlarged only where it could not be read. */
export function bringIn(camera: Camera, box: Rect, width: number, height: number): Camera {
  let { scale } = camera;
  const readable = Math.min(1, (width - 2 * MARGIN) / box.w, (height - 2 * MARGIN) / box.h);
  if (scale < Math.min(0.7, readable) || box.w * scale > width) scale = clampScale(Math.max(Math.min(0.85, readable), 0.1));
  const same = scale === camera.scale;
  const x = same ? nudge(camera.x, box.x, box.w, scale, width) : width / 2 - scale * (box.x + box.w / 2);
  const tall = box.h * scale > height - 2 * MARGIN;
  const y = same && !tall ? nudge(camera.y, box.y, box.h, scale, height) : tall ? MARGIN - scale * box.y : height / 2 - scale * (box.y + box.h / 2);
  return { scale, x, y };
}

function nudge(offset: number, start: number, length: number, scale: number, window: number): number {
  const a = offset + start * scale, b = a + length * scale;
  if (a >= MARGIN && b <= window - MARGIN) return offset;
  // What was out of sight comes to the middle, what was cut off only in.
  if (b < 0 || a > window) return offset + window / 2 - (a + b) / 2;
  return a < MARGIN ? offset + MARGIN - a : offset + Math.max(window - MARGIN - b, MARGIN - a);
}

function clampScale(scale: number): number {
  return Math.min(MAX_SCALE, Math.max(MIN_SCALE, scale));
}

/** Between two cameras; zoom runs geometrically, so that it feels even. */
export function between(a: Camera, b: Camera, t: number): Camera {
  const scale = a.scale * (b.scale / a.scale) ** t;
  // Interpolating the offset along the scale keeps the fixed point of a zoom fixed.
  const f = Math.abs(b.scale - a.scale) < 1e-9 ? t : (scale - a.scale) / (b.scale - a.scale);
  return { scale, x: a.x + (b.x - a.x) * f, y: a.y + (b.y - a.y) * f };
}

export function ease(t: number): number {
  return 1 - (1 - t) ** 3;
}
