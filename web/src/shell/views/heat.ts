// A map of layers × steps: a row for each layer or for blocks that repeat, a cell for each step, coloured by how far its number is from the usual.

import { paletteOf } from "../../canvas/palette";
import { rampColours } from "../../canvas/scale";
import type { ChartData } from "../../payload";
import { digits } from "../../units";
import { counted, el, fill, pathText } from "../dom";
import type { Page } from "../page";
import { onTheme, themeOf } from "../theme";
import { farFrom, heatRows, type Far, type HeatRow } from "./heat_rows";

const SHOWN = 40; // rows at first
const MOST_COLUMNS = 400;
const DECADES = 3; // from the usual to an end of the colours

export function heatMap(page: Page, charts: readonly ChartData[]): HTMLElement {
  const reading = el("p", { class: "chart-reading", role: "status" });
  const about = el("span", { class: "type" }), body = el("div", { class: "heat" }), legend = el("p", { class: "heat-legend" });
  const open = new Set<string>();
  let shown = SHOWN;
  const choice = el("select", { "aria-label": "What is shown of layers", change: () => draw() }, ...charts.map((one, i) => el("option", { value: i }, one.title)));
  const draw = (): void => {
    const data = charts[Number(choice.value)]!;
    const { names, lines } = linesOf(data), usual = data.usual;
    const far = farFrom(usual && Math.sqrt(usual[0] * usual[1]), lines.map((one) => one.numbers), data.steps.length);
    const rows = heatRows(names, lines.map((one) => one.numbers), data.steps.length, far);
    const listed = flat(rows, open, 0), kept = runsOf(page, data);
    about.textContent = `${data.about}, the worst layers first`;
    fill(legend, ...legendOf(page, usual));
    fill(body,
      ...listed.slice(0, shown).flatMap(([row, depth]) => rowParts(row, depth)),
      el("span", null), axisOf(data, kept), el("span", null));
    if (listed.length > shown) body.append(el("button", { type: "button", class: "more", click: () => { shown = Infinity; draw(); } }, `Show ${counted(listed.length - shown, "more row")}`));

    function rowParts(row: HeatRow, depth: number): HTMLElement[] {
      const isOpen = open.has(row.name), indent = `padding-left: ${depth * 14}px`;
      const text = [pathText(row.name), row.count > 1 ? el("span", { class: "type" }, ` · ${row.count} blocks`) : null];
      const toggle = (): void => {
        if (!open.delete(row.name)) open.add(row.name);
        draw();
        body.querySelector<HTMLElement>(`button[data-row="${CSS.escape(row.name)}"]`)?.focus();
      };
      const label = row.parts.length
        ? el("button", { type: "button", class: "heat-name", "aria-expanded": String(isOpen), "data-row": row.name, title: row.name, style: indent, click: toggle }, el("i", { class: "heat-arrow" }), el("span", null, ...text))
        : el("span", { class: "heat-name", title: row.name, style: indent }, el("i", { class: "heat-arrow" }), el("span", null, ...text));
      const last = row.numbers[row.numbers.length - 1]!;
      return [label, cells(row), el("span", { class: "number", title: `at step ${data.steps[data.steps.length - 1]}` }, written(last, 2))];
    }

    function cells(row: HeatRow): HTMLElement {
      const { canvas, columns } = drawn(page, row, far), count = columns.length;
      let at = 0;
      const read = (column: number): void => {
        at = Math.max(0, Math.min(count - 1, column));
        const i = columns[at]!, run = runIn(data, columns, at, kept), number = row.numbers[i]!;
        reading.textContent = `step ${data.steps[i]!.toLocaleString("en-US")}, ${row.name}: ${written(number, 3)}${run ? ` · a click opens the run of step ${run[0]}` : ""}`;
        canvas.classList.toggle("has-run", run !== undefined);
      };
      const choose = (): void => {
        const run = runIn(data, columns, at, kept);
        if (run) return location.assign(run[1]);
        const line = row.lines.find((one) => lines[one]!.numbers[columns[at]!] === row.numbers[columns[at]!]) ?? row.lines[0]!;
        if (lines[line]!.call >= 0) page.select({ call: lines[line]!.call, item: -1 });
      };
      canvas.setAttribute("aria-label", `${row.name} over the steps`);
      canvas.addEventListener("pointermove", ({ clientX }) => {
        const { left, width } = canvas.getBoundingClientRect();
        read(Math.floor(((clientX - left) / width) * count));
      });
      canvas.addEventListener("click", choose);
      canvas.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (step) read(at + step);
        else if (event.key === "Enter") choose();
        else return;
        event.preventDefault();
        event.stopPropagation();
      });
      return canvas;
    }
  };
  draw();
  onTheme(page.store, draw);
  return el("figure", { class: "curves heat-map" },
    el("figcaption", { class: "chart-head" }, el("span", { class: "choices" }, el("b", null, "Layers"), charts.length > 1 ? choice : el("span", null, charts[0]!.title), about), reading),
    body, legend);
}

/** The lines of the layers that a chart names. */
function linesOf({ names, calls, numbers, steps, layers }: ChartData): { names: string[]; lines: { numbers: ArrayLike<number>; call: number }[] } {
  const wanted = new Set(layers), chosen = names.map((_, i) => i).filter((i) => wanted.has(names[i]!));
  return { names: chosen.map((i) => names[i]!), lines: chosen.map((i) => ({ numbers: numbers.subarray(i * steps.length, (i + 1) * steps.length), call: calls[i]! })) };
}

function flat(rows: readonly HeatRow[], open: ReadonlySet<string>, depth: number): [HeatRow, number][] {
  return rows.flatMap((row) => [[row, depth] as [HeatRow, number], ...(open.has(row.name) ? flat(row.parts, open, depth + 1) : [])]);
}

/** A row as a picture, one pixel high; of many steps a column stands for several, and shows the farthest. */
function drawn(page: Page, row: HeatRow, far: Far): { canvas: HTMLCanvasElement; columns: number[] } {
  const theme = themeOf(page.store), palette = paletteOf(theme), ramp = rampColours("symmetric", theme);
  const steps = row.numbers.length, count = Math.min(steps, MOST_COLUMNS);
  const columns = Array.from({ length: count }, (_, column) => {
    let best = Math.floor((column * steps) / count);
    for (let i = best + 1; i < Math.floor(((column + 1) * steps) / count); i++) {
      if (!(Math.abs(far(row.numbers[i]!, i)) <= Math.abs(far(row.numbers[best]!, best)))) best = i;
    }
    return best;
  });
  const canvas = el("canvas", { class: "heat-cells", width: count, height: 1, tabindex: 0, role: "img" });
  const context = canvas.getContext("2d")!;
  columns.forEach((i, column) => {
    const number = row.numbers[i]!, distance = far(number, i);
    context.fillStyle = Number.isNaN(number) ? palette.missing : !Number.isFinite(number) ? palette.nan : ramp[colour(distance, ramp.length)]!;
    context.fillRect(column, 0, 1, 1);
  });
  return { canvas, columns };
}

function written(number: number, count: number): string {
  return Number.isNaN(number) ? "–" : Number.isFinite(number) ? digits(number, count) : "not finite";
}

function colour(distance: number, count: number): number {
  return Math.round(Math.max(0, Math.min(1, 0.5 + distance / (2 * DECADES))) * (count - 1));
}

/** The runs that were kept, by step, which the server has pages of. */
function runsOf(page: Page, { steps }: ChartData): (readonly [step: number, url: string])[] {
  return (page.payload.data.live?.runs ?? []).filter(([step]) => steps.length > 0 && step >= steps[0]!);
}

/** The first run of a step that a column stands for: from its own step to that of the next one. */
function runIn({ steps }: ChartData, columns: readonly number[], at: number, runs: readonly (readonly [number, string])[]): readonly [number, string] | undefined {
  const from = steps[columns[at]!]!, to = at + 1 < columns.length ? steps[columns[at + 1]!]! : Infinity;
  return runs.find(([step]) => step >= from && step < to);
}

function axisOf({ steps }: ChartData, runs: readonly (readonly [number, string])[]): HTMLElement {
  const count = steps.length, name = (step: number): string => `step ${step.toLocaleString("en-US")}`;
  const place = (step: number): number => {
    let i = 0;
    while (i + 1 < count && steps[i + 1]! <= step) i++;
    const width = i + 1 < count ? steps[i + 1]! - steps[i]! : Math.max(1, step - steps[i]! + 1);
    return (100 * (i + (step - steps[i]!) / width)) / count;
  };
  return el("div", { class: "heat-axis" },
    el("span", null, name(steps[0]!)),
    runs.length > 0 && el("span", { class: "heat-runs" }, "Runs: ", ...runs.slice(0, 8).flatMap(([step, url], i) => [i ? " " : "", el("a", { class: "link", href: url }, name(step))])),
    el("span", null, name(steps[count - 1]!)),
    ...runs.map(([step]) => el("i", { class: "heat-mark", style: `left: ${place(step)}%` })));
}

function legendOf(page: Page, usual: ChartData["usual"]): HTMLElement[] {
  const theme = themeOf(page.store), palette = paletteOf(theme), ramp = rampColours("symmetric", theme);
  const swatch = (hex: string, text: string): HTMLElement => el("span", null, el("i", { class: "swatch", style: `background: ${hex}` }), text);
  const at = (distance: number): string => ramp[colour(distance, ramp.length)]!;
  const named = usual
    ? [swatch(at(-DECADES), `0, or up to ${digits(usual[0] / 100, 1)}`), swatch(at(0), `usual, ${digits(usual[0], 1)} to ${digits(usual[1], 1)}`), swatch(at(DECADES), `${digits(usual[1] * 100, 1)} and more`)]
    : [swatch(at(-DECADES), `0, or a thousandth of the median layer`), swatch(at(0), "the median layer of a step"), swatch(at(DECADES), "a thousand times as much")];
  return [...named, swatch(palette.nan, "not finite"), swatch(palette.missing, "no number")];
}
