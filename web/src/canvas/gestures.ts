/** Mouse, touch and wheel on the graph, as few plain events: pan, zoom, click, hover. */

export interface GestureTarget {
  pan(dx: number, dy: number): void;
  zoom(factor: number, x: number, y: number): void;
  click(x: number, y: number, event: { double: boolean; shift: boolean }): void;
  hover(x: number, y: number): void;
  leave(): void;
}

const SLOP = 4; // pixels a finger may tremble in a click
const DOUBLE = 350; // milliseconds
const LINE = 16; // pixels of a wheel that counts in lines

interface Finger { x: number; y: number }

/** Listens to `element` until the returned function is called. Positions are relative to the element. */
export function listenForGestures(element: HTMLElement, target: GestureTarget): () => void {
  const fingers = new Map<number, Finger>();
  let moved = false, lastClick = { time: -DOUBLE, x: 0, y: 0 };
  const at = (event: MouseEvent): Finger => {
    const r = element.getBoundingClientRect();
    return { x: event.clientX - r.left, y: event.clientY - r.top };
  };

  const down = (event: PointerEvent): void => {
    if (event.button > 1) return;
    if (!fingers.size) moved = event.button === 1;
    fingers.set(event.pointerId, at(event));
    element.setPointerCapture?.(event.pointerId);
  };
  const move = (event: PointerEvent): void => {
    const before = fingers.get(event.pointerId), now = at(event);
    if (!before) return target.hover(now.x, now.y);
    if (!moved && Math.hypot(now.x - before.x, now.y - before.y) < SLOP) return;
    moved = true;
    element.classList.add("panning");
    if (fingers.size === 1) target.pan(now.x - before.x, now.y - before.y);
    else {
      const other = [...fingers].find(([id]) => id !== event.pointerId)![1];
      const was = Math.hypot(before.x - other.x, before.y - other.y), is = Math.hypot(now.x - other.x, now.y - other.y);
      target.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
      if (was > 0) target.zoom(is / was, (now.x + other.x) / 2, (now.y + other.y) / 2);
    }
    fingers.set(event.pointerId, now);
  };
  const up = (event: PointerEvent): void => {
    if (!fingers.delete(event.pointerId) || fingers.size) return;
    element.classList.remove("panning");
    if (moved || event.type === "pointercancel") return;
    const { x, y } = at(event), time = event.timeStamp;
    const double = time - lastClick.time < DOUBLE && Math.hypot(x - lastClick.x, y - lastClick.y) < 2 * SLOP;
    lastClick = { time: double ? -DOUBLE : time, x, y };
    target.click(x, y, { double, shift: event.shiftKey });
  };
  // As in a document the wheel scrolls; with Ctrl (which a pinch on a trackpad sends) or Meta it zooms.
  const wheel = (event: WheelEvent): void => {
    event.preventDefault();
    const { x, y } = at(event), unit = event.deltaMode === 1 ? LINE : event.deltaMode === 2 ? element.clientHeight : 1;
    const dx = event.deltaX * unit, dy = event.deltaY * unit;
    if (event.ctrlKey || event.metaKey) target.zoom(Math.exp(-Math.max(-60, Math.min(60, dy)) * 0.008), x, y);
    else if (event.shiftKey && !dx) target.pan(-dy, 0);
    else target.pan(-dx, -dy);
  };
  const leave = (): void => target.leave();

  const listeners = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up, pointerleave: leave } as const;
  for (const [name, listener] of Object.entries(listeners)) element.addEventListener(name, listener as EventListener);
  element.addEventListener("wheel", wheel, { passive: false });
  return () => {
    for (const [name, listener] of Object.entries(listeners)) element.removeEventListener(name, listener as EventListener);
    element.removeEventListener("wheel", wheel);
  };
}
