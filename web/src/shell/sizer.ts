// A line between two columns that can be moved, with the mouse or the arrow keys.

import { el } from "./dom";

const LEAST = 160;
const MOST = 720;
const STEP = 16;

export function sizer(column: HTMLElement, side: "left" | "right", label: string): HTMLElement {
  const sign = side === "left" ? 1 : -1;
  const handle = el("div", { class: "sizer", role: "separator", tabindex: 0, "aria-orientation": "vertical", "aria-label": label });
  const set = (width: number): void => {
    const kept = Math.round(Math.min(MOST, Math.max(LEAST, width)));
    column.style.width = `${kept}px`;
    handle.setAttribute("aria-valuenow", String(kept));
  };
  handle.addEventListener("pointerdown", (event) => {
    const from = event.clientX;
    const width = column.getBoundingClientRect().width;
    handle.setPointerCapture(event.pointerId);
    const move = (to: PointerEvent): void => set(width + sign * (to.clientX - from));
    handle.addEventListener("pointermove", move);
    handle.addEventListener("lostpointercapture", () => handle.removeEventListener("pointermove", move), { once: true });
    event.preventDefault();
  });
  handle.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    if (!step) return;
    set(column.getBoundingClientRect().width + sign * step);
    event.preventDefault();
    event.stopPropagation();
  });
  return handle;
}
