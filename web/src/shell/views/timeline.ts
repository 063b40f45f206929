// Calls in time: one row for each depth, wide as they took. Beside it the calls that took most time themselves.

import { familyOf, paletteOf } from "../../canvas/palette";
import type { Run, Spans } from "../../payload";
import { samePlace } from "../../state";
import { quantity } from "../../units";
import { el, fill } from "../dom";
import { callLink } from "../links";
import type { Page } from "../page";
import { onTheme, themeOf } from "../theme";

const ROW = 20;
const AXIS = 24;
const LEAST_TEXT = 30; // pixels of a bar with a label

export function buildTimeline(page: Page, host: HTMLElement): void {
  const run = page.payload.run;
  const spans = spansOf(run)!;
  const chart = new FlameChart(page, run, spans);
  fill(host, el("div", { class: "timeline" },
    el("div", { class: "chart-head" }, el("p", { class: "about" }, spans.by), chart.reading),
    chart.element, longest(page, run, spans)));
}

/** The calls in time, as a profile has them, else one after the other with their own durations; null without any. */
export function spansOf(run: Run): Spans | null {
  const { duration, parent, depth, path } = run.data.calls;
  if (run.data.spans?.call.length || !duration.some((seconds) => seconds > 0)) return run.data.spans;
  const begin = new Float64Array(run.callCount), end = new Float64Array(run.callCount), next = new Float64Array(run.callCount);
  let free = 0; // where the next call outside of all others begins
  duration.forEach((seconds, call) => {
    const around = parent[call]!, from = around < 0 ? free : next[around]!;
    begin[call] = next[call] = from;
    end[call] = Math.min(from + (seconds || 0), around < 0 ? Infinity : end[around]!);
    if (around < 0) free = end[call]!;
    else next[around] = end[call]!;
  });
  const by = "Durations in the recorded run, which recording makes slower, one call after the other: what lies between calls comes last";
  return { call: Int32Array.from(begin, (_, call) => call), name: path, depth, begin, end, by };
}

/** The time of each span without the spans in it. */
export function ownTimes(spans: Spans): Float64Array {
  const own = Float64Array.from(spans.begin, (begin, i) => spans.end[i]! - begin);
  const open: number[] = [];
  for (let i = 0; i < own.length; i++) {
    while (open.length && spans.depth[open[open.length - 1]!]! >= spans.depth[i]!) open.pop();
    const around = open[open.length - 1];
    if (around !== undefined) own[around]! -= spans.end[i]! - spans.begin[i]!;
    open.push(i);
  }
  return own;
}

function longest(page: Page, run: Run, spans: Spans): HTMLElement {
  const own = ownTimes(spans);
  const order = Array.from(own, (_, i) => i).sort((a, b) => own[b]! - own[a]!).slice(0, 15);
  const most = own[order[0]!] || 1;
  const rows = order.map((i) => {
    const bar = el("i", { class: "bar" });
    bar.style.width = `${(100 * own[i]!) / most}%`;
    const call = spans.call[i]!;
    const name = run.text(spans.name[i]!);
    return el("tr", null,
      el("th", { scope: "row" }, callLink(page, run, call, name || undefined)),
      el("td", { class: "number" }, quantity(own[i]!, "s")), el("td", { class: "bar-cell" }, bar));
  });
  return el("section", { class: "longest" }, el("h3", null, "Longest, without the calls inside"), el("table", null, el("tbody", null, ...rows)));
}

class FlameChart {
  readonly element: HTMLElement;
  readonly reading = el("p", { class: "chart-reading", role: "status" });
  private readonly canvas: HTMLCanvasElement;
  private readonly byDepth: number[][] = [];
  private readonly whole: readonly [number, number];
  private from: number;
  private to: number;
  private hovered = -1;
  private drag: { x: number; from: number; to: number; moved: boolean } | null = null;
  private scheduled = false;

  constructor(private readonly page: Page, private readonly run: Run, private readonly spans: Spans) {
    let first = Infinity;
    let last = 0;
    for (let i = 0; i < spans.begin.length; i++) {
      (this.byDepth[spans.depth[i]!] ??= []).push(i);
      first = Math.min(first, spans.begin[i]!);
      last = Math.max(last, spans.end[i]!);
    }
    this.whole = [first, last];
    [this.from, this.to] = this.whole;
    this.canvas = el("canvas", {
      tabindex: 0, role: "application", "aria-label": "Calls in time. Arrow keys move, plus and minus zoom, 0 shows all.",
      wheel: (event: WheelEvent) => this.wheel(event), keydown: (event: KeyboardEvent) => this.key(event),
      pointerdown: (event: PointerEvent) => this.down(event), pointermove: (event: PointerEvent) => this.move(event),
      pointerup: (event: PointerEvent) => this.up(event), pointerleave: () => this.hover(-1), dblclick: (event: MouseEvent) => this.zoomTo(this.at(event)),
    });
    this.canvas.style.height = `${AXIS + this.byDepth.length * ROW + 6}px`;
    this.element = el("div", { class: "flame" }, this.canvas);
    new ResizeObserver(() => this.later()).observe(this.canvas);
    page.follow(["selected"], () => this.later());
    onTheme(page.store, () => this.later());
  }

  private later(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  private x(time: number): number {
    return ((time - this.from) / (this.to - this.from || 1)) * this.canvas.clientWidth;
  }

  private time(x: number): number {
    return this.from + (x / (this.canvas.clientWidth || 1)) * (this.to - this.from);
  }

  private draw(): void {
    const { canvas } = this;
    const ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d")!;
    context.scale(ratio, ratio);
    const colours = paletteOf(themeOf(this.page.store));
    this.axis(context, width, height, colours.dim, colours.missing);
    context.font = "11.5px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.byDepth.forEach((list, depth) => this.row(context, list, AXIS + depth * ROW, width));
  }

  private axis(context: CanvasRenderingContext2D, width: number, height: number, ink: string, line: string): void {
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const tick of ticks(this.from, this.to, Math.max(2, Math.floor(width / 110)))) {
      const x = Math.round(this.x(tick)) + 0.5;
      context.fillStyle = line;
      context.fillRect(x, AXIS - 6, 1, height - AXIS + 6);
      context.fillStyle = ink;
      context.fillText(quantity(tick - this.whole[0], "s"), x + 4, AXIS / 2 - 1);
    }
  }

  private row(context: CanvasRenderingContext2D, list: readonly number[], y: number, width: number): void {
    const { spans, run } = this;
    const colours = paletteOf(themeOf(this.page.store));
    const { selected } = this.page;
    let drawn = -1; // the last pixel that has a bar: many short ones are drawn as one
    for (let k = firstEndingAfter(spans, list, this.from); k < list.length; k++) {
      const i = list[k]!;
      if (spans.begin[i]! > this.to) break;
      const left = Math.max(-2, this.x(spans.begin[i]!));
      const right = Math.min(width + 2, this.x(spans.end[i]!));
      if (right < drawn + 0.5 && i !== this.hovered) continue;
      drawn = right;
      const call = spans.call[i]!;
      const hue = colours.hues[familyOf(call < 0 ? "" : run.type(call), true)];
      const isSelected = call >= 0 && samePlace(selected, { call, item: -1 });
      context.fillStyle = hue.fill;
      context.strokeStyle = isSelected ? colours.accent : i === this.hovered ? colours.text : hue.line;
      context.lineWidth = isSelected ? 2 : 1;
      const w = Math.max(1, right - left - 1);
      context.fillRect(left + 0.5, y + 1, w, ROW - 3);
      if (w > 3) context.strokeRect(left + 0.5, y + 1, w - 0.5, ROW - 3);
      if (w > LEAST_TEXT) this.label(context, i, left, y, w, colours.text);
    }
  }

  private label(context: CanvasRenderingContext2D, i: number, left: number, y: number, width: number, ink: string): void {
    const call = this.spans.call[i]!;
    const name = call < 0 ? this.run.text(this.spans.name[i]!) : this.run.name(call);
    context.save();
    context.beginPath();
    context.rect(left, y, width - 3, ROW);
    context.clip();
    context.fillStyle = ink;
    context.fillText(name.slice(0, 200), Math.max(left, 0) + 6, y + ROW / 2);
    context.restore();
  }

  private at(event: MouseEvent): number {
    const bounds = this.canvas.getBoundingClientRect();
    const list = this.byDepth[Math.floor((event.clientY - bounds.top - AXIS) / ROW)];
    if (!list || event.clientY - bounds.top < AXIS) return -1;
    const time = this.time(event.clientX - bounds.left);
    const slack = (this.to - this.from) / (this.canvas.clientWidth || 1);
    const i = list[firstEndingAfter(this.spans, list, time - slack)];
    return i !== undefined && this.spans.begin[i]! <= time + slack ? i : -1;
  }

  private hover(i: number): void {
    if (i === this.hovered) return;
    this.hovered = i;
    const { spans, run } = this;
    this.reading.textContent = i < 0 ? "" : `${run.text(spans.name[i]!)}: ${quantity(spans.end[i]! - spans.begin[i]!, "s")}, from ${quantity(spans.begin[i]! - this.whole[0], "s")}`;
    this.later();
  }

  private window(from: number, to: number): void {
    const most = this.whole[1] - this.whole[0];
    const size = Math.min(most, Math.max(most * 1e-6, to - from));
    const begin = Math.min(this.whole[1] - size, Math.max(this.whole[0], from));
    [this.from, this.to] = [begin, begin + size];
    this.later();
  }

  private zoom(factor: number, at: number): void {
    this.window(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  private zoomTo(i: number): void {
    if (i < 0) this.window(...this.whole);
    else this.window(this.spans.begin[i]!, this.spans.end[i]!);
  }

  private wheel(event: WheelEvent): void {
    const size = (this.to - this.from) / (this.canvas.clientWidth || 1);
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(event.deltaY * 0.006), this.time(event.offsetX));
    else if (event.deltaX || event.shiftKey) this.window(this.from + (event.deltaX || event.deltaY) * size, this.to + (event.deltaX || event.deltaY) * size);
    else return;
    event.preventDefault();
  }

  private down(event: PointerEvent): void {
    this.drag = { x: event.clientX, from: this.from, to: this.to, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  private move(event: PointerEvent): void {
    if (!this.drag) return this.hover(this.at(event));
    const by = event.clientX - this.drag.x;
    if (Math.abs(by) < 4 && !this.drag.moved) return;
    this.drag.moved = true;
    const time = (by / (this.canvas.clientWidth || 1)) * (this.drag.to - this.drag.from);
    this.window(this.drag.from - time, this.drag.to - time);
  }

  private up(event: PointerEvent): void {
    const moved = this.drag?.moved;
    this.drag = null;
    const i = this.at(event);
    if (!moved && i >= 0 && this.spans.call[i]! >= 0) this.page.select({ call: this.spans.call[i]!, item: -1 });
  }

  private key(event: KeyboardEvent): void {
    const size = this.to - this.from;
    const middle = (this.from + this.to) / 2;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.window(this.from - size / 5, this.to - size / 5),
      ArrowRight: () => this.window(this.from + size / 5, this.to + size / 5),
      "+": () => this.zoom(0.7, middle), "=": () => this.zoom(0.7, middle), "-": () => this.zoom(1 / 0.7, middle),
      "0": () => this.window(...this.whole),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }
}

/** The first of a row's spans, which do not overlap, that ends after a time. */
function firstEndingAfter(spans: Spans, list: readonly number[], time: number): number {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans.end[list[middle]!]! <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Round numbers between two ends, at most so many. */
export function ticks(from: number, to: number, most: number): number[] {
  const rough = (to - from) / most;
  if (!(rough > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough)!;
  const found: number[] = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) found.push(k * step);
  return found;
}
