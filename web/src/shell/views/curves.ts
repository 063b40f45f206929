// Curves over the events of a run or the steps of a training: memory, loss, and the like.

import type { Series, Timeline } from "../../payload";
import { digits, quantity, scaleOfUnit } from "../../units";
import { el, svg } from "../dom";
import { ticks } from "./timeline";

const WIDTH = 800;
const HEIGHT = 220;
const LEFT = 62;
const BOTTOM = 22;
const MOST_LABELS = 12;

const COLOURS = 8;

/** Kinds of memory are parts of a whole: each is drawn on top of those before it. */
function stacked(series: readonly Series[]): Float64Array[] {
  const length = Math.max(0, ...series.map((one) => one.numbers.length));
  let below = new Float64Array(length);
  return series.map((one) => (below = Float64Array.from(below, (sum, i) => sum + (one.numbers[i] || 0))));
}

/** A chart of a timeline, with a line that reads the numbers under the pointer or, with arrow keys, at a point. */
export function curves(timeline: Timeline): HTMLElement {
  const series = timeline.series.filter((one) => one.numbers.some((number) => number !== 0));
  const isStacked = timeline.title === "memory";
  const drawn = isStacked ? stacked(series) : series.map((one) => Float64Array.from(one.numbers));
  const length = Math.max(1, ...drawn.map((numbers) => numbers.length));
  const finite = drawn.flatMap((numbers) => Array.from(numbers).filter(Number.isFinite));
  const low = Math.min(0, ...finite.length ? [least(finite)] : []);
  const high = finite.length ? most(finite) : 1;
  const x = (i: number): number => LEFT + (i / Math.max(1, length - 1)) * (WIDTH - LEFT - 8);
  const y = (number: number): number => HEIGHT - BOTTOM - ((number - low) / (high - low || 1)) * (HEIGHT - BOTTOM - 14);
  const cursor = svg("line", { class: "cursor", y1: 8, y2: HEIGHT - BOTTOM, x1: -9, x2: -9 });
  const reading = el("p", { class: "chart-reading", role: "status" });
  let at = -1;
  const read = (i: number): void => {
    at = Math.max(0, Math.min(length - 1, i));
    cursor.setAttribute("x1", String(x(at)));
    cursor.setAttribute("x2", String(x(at)));
    reading.textContent = `at ${(at * timeline.step).toLocaleString("en-US")}: ${series.map((one) => `${one.name} ${text(one, one.numbers[at])}`).join(", ")}`;
  };
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", tabindex: 0, role: "img", "aria-label": `${timeline.title}: ${series.map((one) => one.name).join(", ")}` },
    ...axis(low, high, series[0]?.unit ?? "", y),
    ...(isStacked ? drawn.map((numbers, k) => svg("path", { class: `area area-${k % COLOURS}`, d: area(numbers, drawn[k - 1], x, y) })) : []),
    ...drawn.map((numbers, k) => svg("path", { class: `curve curve-${k % COLOURS}`, d: path(numbers, x, y) })),
    ...marks(timeline, x), cursor);
  picture.addEventListener("pointermove", (event) => {
    const bounds = picture.getBoundingClientRect();
    const across = (((event as PointerEvent).clientX - bounds.left) / bounds.width) * WIDTH;
    read(Math.round(((across - LEFT) / (WIDTH - LEFT - 8)) * (length - 1)));
  });
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[(event as KeyboardEvent).key];
    if (!step) return;
    read(at + step);
    event.preventDefault();
    event.stopPropagation();
  });
  const names = series.length > 1 && el("p", { class: "curve-names" }, ...series.map((one, k) => el("span", null, el("i", { class: `key key-${k % COLOURS}` }), one.name)));
  return el("figure", { class: "curves" }, el("figcaption", { class: "chart-head" }, el("b", null, timeline.title), reading), picture, names || null);
}

function text(series: Series, number: number | undefined): string {
  return number === undefined || Number.isNaN(number) ? "–" : series.unit ? quantity(number, series.unit) : digits(number, 4);
}

function axis(low: number, high: number, unit: string, y: (number: number) => number): SVGElement[] {
  const [, factor] = scaleOfUnit(high, unit);
  return ticks(low / factor, high / factor, 4).flatMap((tick) => [
    svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(tick * factor), y2: y(tick * factor) }),
    svg("text", { x: LEFT - 6, y: y(tick * factor) + 4, "text-anchor": "end" }, unit ? quantity(tick * factor, unit) : digits(tick, 3)),
  ]);
}

/** The line through the finite numbers; it is broken where one is missing. */
function path(numbers: ArrayLike<number>, x: (i: number) => number, y: (number: number) => number): string {
  let line = "";
  let pen = "M";
  for (let i = 0; i < numbers.length; i++) {
    const number = numbers[i]!;
    if (!Number.isFinite(number)) pen = "M";
    else {
      line += `${pen}${x(i).toFixed(1)} ${y(number).toFixed(1)}`;
      pen = "L";
    }
  }
  return line;
}

/** The space between a line and the one below it. */
function area(numbers: Float64Array, below: Float64Array | undefined, x: (i: number) => number, y: (number: number) => number): string {
  const back = Array.from(numbers, (_, i) => `${x(i).toFixed(1)} ${y(below?.[i] ?? 0).toFixed(1)}`).reverse();
  return `${path(numbers, x, y)}L${back.join("L")}Z`;
}

function marks(timeline: Timeline, x: (i: number) => number): SVGElement[] {
  const labelled = timeline.marks.length <= MOST_LABELS;
  return timeline.marks.flatMap(([at, label]) => [
    svg("line", { class: "mark-line", x1: x(at), x2: x(at), y1: 8, y2: HEIGHT - BOTTOM }, svg("title", {}, label)),
    ...(labelled ? [svg("text", { class: "mark-label", x: Math.min(x(at) + 4, WIDTH - 8 - 6 * Math.min(40, label.length)), y: HEIGHT - 6 }, label.slice(0, 40))] : []),
  ]);
}

function least(numbers: readonly number[]): number {
  return numbers.reduce((a, b) => Math.min(a, b), Infinity);
}

function most(numbers: readonly number[]): number {
  return numbers.reduce((a, b) => Math.max(a, b), -Infinity);
}
