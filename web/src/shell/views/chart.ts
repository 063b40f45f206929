// A chart: lines over the events of a run or the steps of a training. A few lines have colours; of many that of the chosen call has.

import { digits, quantity, scaleOfUnit } from "../../units";
import { el, svg } from "../dom";
import type { Page } from "../page";
import { ticks } from "./timeline";

export interface Line { name: string; numbers: ArrayLike<number>; call: number }
export interface Chart {
  title: string; unit: string; about: string;
  at: ArrayLike<number>; // events or steps, ascending, one for each number of a line
  lines: readonly Line[];
  marks: readonly (readonly [at: number, label: string])[];
  isStacked: boolean;
  usual?: readonly [low: number, high: number] | null; // where numbers usually are: a band behind the lines
}

const HEIGHT = 220;
const [LEFT, RIGHT, TOP, BOTTOM] = [62, 8, 14, 22];
const COLOURS = 8;
const MOST_LABELS = 12;
const LOGARITHMS_FROM = 100; // largest over smallest number

/** Draw a chart; the pointer, or arrow keys, read its numbers, and a click chooses the call of a line. */
export function chart(page: Page, { title, unit, about, at, lines, marks, isStacked, usual }: Chart): HTMLElement {
  const width = Math.max(320, Math.min(800, document.documentElement.clientWidth - 24)); // its text is never small
  const tops = isStacked ? stacked(lines) : lines.map((line) => line.numbers), isMany = lines.length > COLOURS;
  const scale = verticalScale(tops, isStacked), first = at[0] ?? 0, last = at[at.length - 1] ?? 0;
  const x = (position: number): number => LEFT + ((position - first) / (last - first || 1)) * (width - LEFT - RIGHT);
  const cursor = svg("line", { class: "cursor", y1: 8, y2: HEIGHT - BOTTOM, x1: -9, x2: -9 });
  const reading = el("p", { class: "chart-reading", role: "status" });
  const paths = lines.map((_, k) => svg("path", { class: `curve ${isMany ? "other" : `series-${k}`}`, d: path(tops[k]!, at, x, scale.y) }));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, class: "chart", tabindex: 0, role: "img", "aria-label": `${title}: ${lines.slice(0, COLOURS).map((line) => line.name).join(", ")}` },
    ...(usual ? [bandOf(usual, width, scale.y)] : []),
    ...scale.ticks(unit).flatMap((number) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: scale.y(number), y2: scale.y(number) }),
      svg("text", { x: LEFT - 6, y: scale.y(number) + 4, "text-anchor": "end" }, written(number, unit, 3)),
    ]),
    ...(isStacked ? tops.map((top, k) => svg("path", { class: `area series-${k % COLOURS}`, d: area(top, tops[k - 1], at, x, scale.y) })) : []),
    ...(isStacked ? [] : [stepText(first, x(first), "start"), stepText(last, x(last), "end")]),
    ...paths, ...marksOf(marks, x, width, isStacked ? [] : [stepName(first), stepName(last)]), cursor);

  let shown = -1, line = -1;
  const nearest = (height: number): number => {
    let best = -1, distance = Infinity;
    tops.forEach((top, k) => {
      const far = Math.abs(scale.y(top[shown]!) - height);
      if (far < distance) [best, distance] = [k, far];
    });
    return best;
  };
  const chosen = (): number => lines.findIndex((one) => one.call >= 0 && one.call === page.selected?.call);
  const read = (position: number, height?: number): void => {
    shown = Math.max(0, Math.min(at.length - 1, position));
    line = height === undefined ? Math.max(0, chosen()) : nearest(height);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, String(x(at[shown]!)));
    const read = isMany ? lines.slice(line, line + 1) : lines;
    reading.textContent = `at ${at[shown]!.toLocaleString("en-US")}: ${read.map((one) => `${one.name} ${written(one.numbers[shown], unit, 4)}`).join(", ")}`;
  };
  picture.addEventListener("pointermove", ({ clientX, clientY }) => {
    const bounds = picture.getBoundingClientRect(), ratio = width / bounds.width;
    const position = first + (((clientX - bounds.left) * ratio - LEFT) / (width - LEFT - RIGHT)) * (last - first);
    read(closest(at, position), (clientY - bounds.top) * ratio);
  });
  picture.addEventListener("click", () => {
    const call = lines[line]?.call ?? -1;
    if (call >= 0) page.select({ call, item: -1 });
  });
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    read(shown + step);
    event.preventDefault();
    event.stopPropagation();
  });
  if (isMany) page.follow(["selected"], ({ selected }) => paths.forEach((one, k) => {
    one.classList.toggle("chosen", selected !== null && lines[k]!.call === selected.call);
    if (one.classList.contains("chosen")) cursor.before(one); // above the others
  }));
  const names = lines.length > 1 && !isMany && el("p", { class: "curve-names" }, ...lines.map((one, k) => el("span", null, el("i", { class: `key series-${k}` }), one.name)));
  return el("figure", { class: "curves" },
    el("figcaption", { class: "chart-head" }, el("span", null, el("b", null, title), " ", el("span", { class: "type" }, about)), reading), picture, names);
}

/** The band in which numbers usually lie, as far as the chart reaches. */
function bandOf(usual: readonly [number, number], width: number, y: (number: number) => number): SVGElement {
  const [bottom, top] = usual.map((number) => Math.max(TOP, Math.min(HEIGHT - BOTTOM, y(number)))) as [number, number];
  return svg("rect", { class: "usual", x: LEFT, width: width - LEFT - RIGHT, y: top, height: Math.max(0, bottom - top) }, svg("title", {}, `usual: ${digits(usual[0], 1)} to ${digits(usual[1], 1)}`));
}

function stepText(step: number, x: number, side: string): SVGElement {
  return svg("text", { x, y: HEIGHT - 6, "text-anchor": side }, stepName(step));
}

function stepName(step: number): string {
  return `step ${step.toLocaleString("en-US")}`;
}

function written(number: number | undefined, unit: string, count: number): string {
  return number === undefined || Number.isNaN(number) ? "–" : unit ? quantity(number, unit) : digits(number, count);
}

function stacked(lines: readonly Line[]): Float64Array[] {
  let below = new Float64Array(Math.max(0, ...lines.map((line) => line.numbers.length)));
  return lines.map((line) => (below = below.map((sum, i) => sum + (line.numbers[i] || 0))));
}

interface Scale { y(number: number): number; ticks(unit: string): number[] }

/** Heights of numbers: from zero on, or in logarithms where they are of very different sizes. */
function verticalScale(tops: readonly ArrayLike<number>[], isStacked: boolean): Scale {
  let [low, high, least] = [0, -Infinity, Infinity];
  for (const top of tops) for (let i = 0; i < top.length; i++) {
    const number = top[i]!;
    if (!Number.isFinite(number)) continue;
    low = Math.min(low, number);
    high = Math.max(high, number);
    if (number > 0) least = Math.min(least, number);
  }
  const isLog = !isStacked && low === 0 && high / least > LOGARITHMS_FROM;
  const size = isLog ? (number: number) => Math.log10(Math.max(number, least)) : (number: number) => number;
  const from = isLog ? Math.log10(least) : low, to = Number.isFinite(high) ? size(high) : 1;
  return {
    y: (number) => HEIGHT - BOTTOM - ((size(number) - from) / (to - from || 1)) * (HEIGHT - BOTTOM - TOP),
    ticks: (unit) => {
      if (isLog) return ticks(from, to, 4).filter(Number.isInteger).map((power) => 10 ** power);
      const [, factor] = scaleOfUnit(high, unit);
      return ticks(from / factor, to / factor, 4).map((tick) => tick * factor);
    },
  };
}

/** The position of the number that is closest in an ascending list. */
function closest(list: ArrayLike<number>, wanted: number): number {
  let best = 0;
  for (let i = 1; i < list.length; i++) if (Math.abs(list[i]! - wanted) < Math.abs(list[best]! - wanted)) best = i;
  return best;
}

/** The line through the finite numbers; it is broken where one is missing, and a dot between two such. */
function path(numbers: ArrayLike<number>, at: ArrayLike<number>, x: (position: number) => number, y: (number: number) => number): string {
  let line = "", pen = "M";
  for (let i = 0; i < numbers.length; i++) {
    const number = numbers[i]!;
    if (!Number.isFinite(number)) { pen = "M"; continue; }
    line += `${pen}${x(at[i]!).toFixed(1)} ${y(number).toFixed(1)}`;
    if (pen === "M" && !Number.isFinite(numbers[i + 1])) line += "h.1";
    pen = "L";
  }
  return line;
}

/** The space between a line and the one below it. */
function area(numbers: ArrayLike<number>, below: ArrayLike<number> | undefined, at: ArrayLike<number>, x: (position: number) => number, y: (number: number) => number): string {
  const back = Array.from(numbers, (_, i) => `${x(at[i]!).toFixed(1)} ${y(below?.[i] ?? 0).toFixed(1)}`).reverse();
  return `${path(numbers, at, x, y)}L${back.join("L")}Z`;
}

/** Lines of marks, each with its label beside it where there is room: labels lie neither on each other nor on the first and last step. */
function marksOf(marks: Chart["marks"], x: (position: number) => number, width: number, ends: readonly string[]): SVGElement[] {
  const long = (text: string): number => 6 * text.length;
  const taken: [number, number][] = ends.map((text, k) => (k ? [width - RIGHT - long(text), width] : [LEFT, LEFT + long(text)]));
  return marks.flatMap(([at, label]) => {
    const line = svg("line", { class: "mark-line", x1: x(at), x2: x(at), y1: 8, y2: HEIGHT - BOTTOM }, svg("title", {}, label)), text = label.slice(0, 40);
    const left = [x(at) + 4, x(at) - 4 - long(text)].find((from) => from >= 0 && from + long(text) <= width && taken.every(([begin, end]) => from + long(text) < begin || from > end));
    if (marks.length > MOST_LABELS || left === undefined) return [line];
    taken.push([left, left + long(text)]);
    return [line, svg("text", { class: "mark-label", x: left, y: HEIGHT - 6 }, text)];
  });
}
