/** Writes a layout as SVG text: boxes in boxes, lines with round corners, tooltips. */

import { type Palette, familyOf } from "../canvas/palette";
import type { DrawnItem } from "../fold";
import { EDGE, type Edges, type Geometry, loopOf } from "../layout/geometry";
import { type Frame, type Layout, titleOf } from "../layout/layout";
import { INPUT_NOTE } from "../layout/notes";
import { faceOf, FONT, SIZE, timesOf } from "../layout/sizes";
import { fitted, widthOf } from "../layout/text";
import { isCallOf, type LegendEntry, legendRows, meanings } from "./legend";
import { titlePlaces } from "./titles";

/** How one item looks, beyond its kind; by the key of its path. */
export interface Decoration {
  fill?: string;
  ink?: string;
  line?: string;
  dashed?: boolean;
  /** Further lines of text below the name. */
  lines?: string[];
  badge?: string;
  /** A text on a fill of its own, in the title of an open box. */
  chip?: { text: string; short: string; fill: string; ink: string };
  /** The tooltip. */
  title?: string;
}

export interface Drawing {
  layout: Layout;
  palette: Palette;
  decorations: Record<string, Decoration>;
  legend: LegendEntry[];
  about: string;
}

const MARGIN = 16;
const FONTS = "Inter,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Liberation Sans','DejaVu Sans',sans-serif";
const SHEETS = 2; // behind a repeated box
const LABEL = 16; // height of the name of an input
const BESIDE = 5; // between a line and its name
const MOST_LABEL = 190;
const MOST_LABELS = 6; // of inputs, and of outputs

/** The name of an input or output of the run, and which row of names it is in. */
interface Label { name: string; shape: string; width: number; x: number; row: number }

function rowsOf(labels: readonly Label[]): number {
  return Math.max(-1, ...labels.map((label) => label.row)) + 1;
}

/** Return a drawing as a whole SVG file. */
export function svgOf(drawing: Drawing): string {
  return new Writer(drawing).file();
}

class Writer {
  private readonly parts: string[] = [];
  private edge = Infinity; // of the picture, on the right

  constructor(private readonly drawing: Drawing) {}

  file(): string {
    const { layout, palette, about, decorations } = this.drawing;
    const all = layout.area(layout.root);
    const given = this.labels("inputs"), returned = this.labels("outputs");
    const right = Math.max(all.right, ...[...given, ...returned].map((one) => one.x + BESIDE + one.width));
    const isFilled = (key: string) => decorations[key]?.fill !== undefined;
    const legend = legendRows([...meanings(layout, palette, isFilled), ...this.drawing.legend], right - all.left, palette, escaped);
    const [above, below] = [rowsOf(given), rowsOf(returned)].map((rows) => rows * LABEL) as [number, number];
    const width = Math.ceil(Math.max(right - all.left, legend.width) + 2 * MARGIN);
    const top = -MARGIN - above;
    const height = Math.ceil(all.bottom + below + MARGIN - top + legend.height);
    const left = round(all.left - MARGIN);
    this.edge = left + width - 4;
    this.put(
      '<?xml version="1.0" encoding="UTF-8"?>',
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="${left} ${top} ${width} ${height}" font-family="${FONTS}">`,
      `<title>${escaped(about)}</title>`,
      `<rect x="${left}" y="${top}" width="${width}" height="${height}" fill="${palette.paper}"/>`,
    );
    this.frame(layout.root, "", 0, 0, 0);
    this.name(given, 0, -1);
    this.name(returned, all.bottom, 1);
    this.put(...legend.parts(left + MARGIN, all.bottom + below + MARGIN), "</svg>\n");
    return this.parts.join("\n");
  }

  /** Return the names of what enters or leaves the run: each stands right of its line, higher where it is above others. */
  private labels(which: "inputs" | "outputs"): Label[] {
    const { drawn, geometry: { edges } } = this.drawing.layout.root;
    const isInput = which === "inputs";
    const found = new Map<number, Label>();
    for (let edge = 0; edge < edges.count; edge++) {
      const end = isInput ? edges.from[edge]! : edges.to[edge]!;
      if (end >= 0 || found.has(~end)) continue;
      const port = drawn[which][~end];
      const at = isInput ? edges.start[edge]! : edges.start[edge + 1]! - 2;
      const name = fitted(port?.name ?? "", FONT.name, MOST_LABEL, "bold"), shape = isInput ? drawn.inputs[~end]?.shape ?? "" : "";
      const width = widthOf(name, FONT.name, "bold") + (name && shape ? 6 : 0) + widthOf(shape, FONT.note);
      if (width > 0 && !(which === "outputs" && drawn.outputs.length === 1)) found.set(~end, { name, shape, width, x: edges.points[at]!, row: 0 });
    }
    const order = [...found.keys()].sort((a, b) => a - b);
    for (const end of order.slice(MOST_LABELS)) found.delete(end);
    const rest = order.length - MOST_LABELS, last = found.get(order[MOST_LABELS - 1]!);
    if (rest > 0 && last !== undefined) Object.assign(last, { shape: `and ${rest} more`, width: widthOf(last.name, FONT.name, "bold") + 6 + widthOf(`and ${rest} more`, FONT.note) });
    const labels = [...found.values()].sort((a, b) => b.x - a.x);
    labels.forEach((label, place) => {
      const passed = labels.slice(0, place).filter((other) => other.x - label.x < BESIDE + label.width + 4);
      label.row = Math.max(-1, ...passed.map((other) => other.row)) + 1;
    });
    return labels;
  }

  /** Write names beside their lines, upwards or downwards from a border of the root. */
  private name(labels: readonly Label[], border: number, away: 1 | -1): void {
    const { palette } = this.drawing;
    if (labels.length === 0) return;
    const y = (row: number) => border + away * (LABEL * (row + 0.5) + 1);
    this.put(`<path d="${labels.map(({ x, row }) => `M${round(x)} ${round(border)}V${round(y(row) + away * 6)}`).join("")}" fill="none" stroke="${palette.edge}" stroke-width="1.3"/>`);
    for (const { x, name, shape, row } of labels) {
      this.text(name, x + BESIDE, y(row), FONT.name, palette.text, { anchor: "start", bold: true });
      this.text(shape, x + BESIDE + (name === "" ? 0 : widthOf(name, FONT.name, "bold") + 6), y(row), FONT.note, palette.dim, { anchor: "start" });
    }
  }

  private put(...parts: string[]): void {
    this.parts.push(...parts);
  }

  // Open boxes -----------------------------------------------------------------------------------------------------------

  private frame(frame: Frame, key: string, x: number, y: number, depth: number): void {
    const { palette } = this.drawing;
    const g = frame.geometry;
    const look = this.drawing.decorations[key] ?? {};
    const [left, width] = [x - g.boxLeft, g.boxLeft + g.boxRight];
    const paper = palette.box[depth & 1]!;
    this.put(`<g>${tooltip(look)}`);
    if ((frame.self?.times ?? 1) > 1)
      for (let sheet = SHEETS; sheet > 0; sheet--)
        this.rect(left + SIZE.stack * sheet, y + SIZE.stack * sheet, width, g.boxHeight, 9, paper, palette.boxLine);
    this.rect(left, y, width, g.boxHeight, 9, paper, look.line ?? palette.boxLine, look.dashed);
    if (frame.self?.carried) this.loop(x + g.boxRight, y, g.boxHeight);
    this.edges(frame, x, y);
    this.title(frame, x, y, paper, look);
    for (let item = 0; item < g.plan.count; item++) {
      const own = key === "" ? `${item}` : `${key}.${item}`;
      const kid = frame.inner(item);
      if (kid !== null) this.frame(kid, own, x + g.x[item]!, y + g.y[item]!, depth + 1);
      else this.closed(frame.drawn.items[item]!, own, g, item, x, y);
    }
    for (const note of depth === 0 ? g.notes.filter(({ y }) => y !== INPUT_NOTE) : g.notes) // those of the run stand above it
      this.text(note.text, x + note.x, y + note.y, FONT.note, palette.dim, { anchor: note.align === "left" ? "start" : "end", halo: paper });
    this.put("</g>");
  }

  private title(frame: Frame, x: number, y: number, paper: string, look: Decoration): void {
    const { palette, layout } = this.drawing;
    const g = frame.geometry;
    const title = titleOf(layout.name, frame);
    const places = titlePlaces(g, title);
    this.text(title.name, x + places.name, y + 13, FONT.title, palette.text, { anchor: "start", bold: true, halo: paper });
    if (title.type !== title.name) this.text(title.type, x + places.type, y + 13, FONT.titleType, palette.dim, { anchor: "start", halo: paper });
    let right = x + g.boxRight - 8;
    if (title.times !== "") right -= this.badge(title.times, right, y + 13, palette.badge, palette.badgeText) + 4;
    if (look.badge) this.badge(look.badge, Math.min(this.edge, x + g.boxRight + widthOf(look.badge, FONT.times, "bold") - 12), y - 3, palette.bad, palette.paper);
    if (look.chip) { // the number without its name where that has no room, which the legend has
      const { text, short, fill, ink } = look.chip, room = g.boxLeft + g.boxRight - title.width - 40;
      this.badge(widthOf(text, FONT.times, "bold") <= room ? text : fitted(short, FONT.times, Math.max(room, 48)), right, y + 13, fill, ink);
    }
  }

  // Closed items ---------------------------------------------------------------------------------------------------------

  private closed(item: DrawnItem, key: string, g: Geometry, index: number, ax: number, ay: number): void {
    const { palette } = this.drawing;
    const look = this.drawing.decorations[key] ?? {};
    const x = ax + g.x[index]!;
    const y = ay + g.y[index]!;
    const face = faceOf(item, this.drawing.layout.lines);
    const sheets = item.times > 1 ? SIZE.stack : 0;
    const [half, height] = [face.half - sheets, face.height - sheets];
    const isCall = isCallOf(item);
    const hue = palette.hues[familyOf(isCall ? item.type : item.label, isCall)];
    const isViews = item.kind === "views";
    const fill = look.fill ?? (isViews ? palette.pill : hue.fill);
    const line = look.line ?? (isViews ? "" : hue.line);
    const radius = isCall ? 6 : Math.min(height / 2, 12);
    this.put(`<g>${tooltip(look)}`);
    for (let sheet = item.times > 1 ? SHEETS : 0; sheet > 0; sheet--)
      this.rect(x - half + 2 * sheet, y + 2 * sheet, 2 * half, height, radius, fill, line);
    this.rect(x - half, y, 2 * half, height, radius, fill, line, look.dashed);
    if (item.carried) this.loop(x + half, y, height);
    if (isCall) this.put(`<path d="${stripe(x - half, y, height)}" fill="${look.line ?? hue.line}"/>`);
    const times = item.times > 1 ? this.badge(timesOf(item), x + half - 7, y + height / 2, palette.badge, palette.badgeText) + 10 : 0;
    this.words(face, look, isCall, isViews, x - times / 2 + (isCall ? 2 : 0), y, height, half - times / 2);
    // Outwards from the corner, so that no arrow ends behind it.
    if (look.badge) this.badge(look.badge, Math.min(this.edge, x + half + widthOf(look.badge, FONT.times, "bold")), y - 3, palette.bad, palette.paper);
    this.put("</g>");
  }

  private words(
    face: { name: string; type: string }, look: Decoration, isCall: boolean, isViews: boolean, x: number, y: number, height: number, half: number,
  ): void {
    const { palette } = this.drawing;
    const ink = look.ink ?? palette.text;
    const dim = look.ink ?? palette.dim;
    const size = isViews ? FONT.views : isCall ? FONT.name : FONT.operation;
    const lines: [string, number, boolean, string][] = [[face.name, size, isCall, isViews ? dim : ink]];
    if (isCall && face.type !== "") lines.push([face.type, FONT.type, false, dim]);
    if (!isViews) for (const line of look.lines ?? []) lines.push([fitted(line, FONT.note, 2 * half - 8), FONT.note, false, dim]);
    const step = (at: number) => (at === 0 ? 0 : at === 1 && isCall ? 15 : 12);
    let at = y + height / 2 - lines.reduce((total, _, place) => total + step(place), 0) / 2;
    lines.forEach(([text, px, bold, colour], place) => {
      at += step(place);
      this.text(text, x, at, px, colour, { bold });
    });
  }

  // Lines ----------------------------------------------------------------------------------------------------------------

  private edges(frame: Frame, x: number, y: number): void {
    const { palette } = this.drawing;
    const { edges } = frame.geometry;
    for (const [wanted, colour, width] of [[0, palette.edge, 1.3], [EDGE.SKIPS, palette.residual, 1.4]] as const) {
      const lines: string[] = [];
      const bundles: string[] = [];
      const heads: string[] = [];
      for (let edge = 0; edge < edges.count; edge++) {
        const flags = edges.flags[edge]!;
        if ((flags & EDGE.SKIPS) !== wanted) continue;
        (flags & EDGE.BUNDLE && !(flags & EDGE.TAP) ? bundles : lines).push(route(edges, edge, x, y));
        if (!(flags & (EDGE.INTO_OPEN | EDGE.OUT))) heads.push(head(edges, edge, x, y));
      }
      if (lines.length > 0) this.put(`<path d="${lines.join("")}" fill="none" stroke="${colour}" stroke-width="${width}"/>`);
      if (bundles.length > 0) this.put(`<path d="${bundles.join("")}" fill="none" stroke="${colour}" stroke-width="2.2"/>`);
      if (heads.length > 0) this.put(`<path d="${heads.join("")}" fill="${colour}"/>`);
    }
  }

  /** An arrow from the end of a turn back to its beginning. */
  private loop(x: number, y: number, height: number): void {
    const lines = loopOf(x, y, height).map((points) => `M${points.map(round).join(" ")}`);
    this.put(`<g><title>passes a value on to the next turn</title><path d="${lines.join("")}" fill="none" stroke="${this.drawing.palette.accent}" stroke-width="1.5"/></g>`);
  }

  // Pieces ---------------------------------------------------------------------------------------------------------------

  private rect(x: number, y: number, width: number, height: number, radius: number, fill: string, line: string, dashed = false): void {
    const stroke = line === "" ? "" : ` stroke="${line}"${dashed ? ' stroke-dasharray="4 3"' : ""}`;
    this.put(`<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" rx="${round(radius)}" fill="${fill}"${stroke}/>`);
  }

  private text(
    text: string, x: number, y: number, size: number, colour: string,
    { anchor = "middle", bold = false, halo = "" }: { anchor?: "start" | "middle" | "end"; bold?: boolean; halo?: string } = {},
  ): void {
    if (text === "") return;
    const weight = bold ? ' font-weight="600"' : "";
    const behind = halo === "" ? "" : ` stroke="${halo}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"`;
    this.put(
      `<text x="${round(x)}" y="${round(y + size * 0.35)}" font-size="${size}" text-anchor="${anchor}" fill="${colour}"${weight}${behind}>${escaped(text)}</text>`,
    );
  }

  /** A pill with its right end at x, in the middle of whose height y is; return its width. */
  private badge(text: string, right: number, y: number, fill: string, ink: string): number {
    const width = widthOf(text, FONT.times, "bold") + 12;
    this.rect(right - width, y - 8, width, 16, 8, fill, "");
    this.text(text, right - width / 2, y, FONT.times, ink, { bold: true });
    return width;
  }
}

function tooltip(look: Decoration): string {
  return look.title === undefined ? "" : `<title>${escaped(look.title)}</title>`;
}

function stripe(x: number, y: number, height: number): string {
  return `M${round(x + 4)} ${round(y)}V${round(y + height)}a4 6 0 0 1-4-6V${round(y + 6)}a4 6 0 0 1 4-6Z`;
}

/** Return the path of a line, with round corners. */
function route({ points, start }: Edges, edge: number, dx: number, dy: number): string {
  const [begin, end] = [start[edge]!, start[edge + 1]!];
  const x = (at: number) => dx + points[at]!;
  const y = (at: number) => dy + points[at + 1]!;
  let path = `M${round(x(begin))} ${round(y(begin))}`;
  for (let at = begin + 2; at < end - 2; at += 2) {
    const into = Math.abs(x(at) - x(at - 2)) + Math.abs(y(at) - y(at - 2));
    const out = Math.abs(x(at + 2) - x(at)) + Math.abs(y(at + 2) - y(at));
    const radius = Math.min(SIZE.radius, into / 2, out / 2);
    const a = [x(at) + Math.sign(x(at - 2) - x(at)) * radius, y(at) + Math.sign(y(at - 2) - y(at)) * radius];
    const b = [x(at) + Math.sign(x(at + 2) - x(at)) * radius, y(at) + Math.sign(y(at + 2) - y(at)) * radius];
    path += `L${round(a[0]!)} ${round(a[1]!)}Q${round(x(at))} ${round(y(at))} ${round(b[0]!)} ${round(b[1]!)}`;
  }
  return `${path}L${round(x(end - 2))} ${round(y(end - 2))}`;
}

function head({ points, start, flags }: Edges, edge: number, dx: number, dy: number): string {
  const at = start[edge + 1]! - 2;
  const [x, y] = [dx + points[at]!, dy + points[at + 1]!];
  if (flags[edge]! & EDGE.UNREAD) return `M${round(x - 2.5)} ${round(y)}a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0Z`;
  return `M${round(x)} ${round(y)}l-3.4-6h6.8Z`;
}

/** At most one digit behind the point, without a zero that says nothing. */
function round(number: number): number {
  return Math.round(number * 10) / 10;
}

const NOT_IN_XML = /[^\t\n\r\x20-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;

function escaped(text: string): string {
  const plain = text.replace(NOT_IN_XML, "\ufffd");
  return plain.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]!);
}
