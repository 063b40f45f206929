/** Notes: the shape of a value where it changes, the names of inputs; left out where they would stand in the way. */

import type { Edges, Geometry, Note } from "./geometry";
import type { Stand } from "./arrange";
import { FONT, SIZE } from "./sizes";
import { fitted, widthOf } from "./text";

/** The extents of a box. */
export type Box = Pick<Geometry, "boxLeft" | "boxRight" | "boxHeight">;

const MOST_WIDE = 150;
const BESIDE = 6; // between a line and its note
const APART = 4; // between two notes
/** The height at which the names of inputs stand. */
export const INPUT_NOTE = SIZE.head + 5;

/** Return the notes of an arrangement. */
export function notesOf(stand: Stand, edges: Edges, box: Box, isRoot: boolean): Note[] {
  const taken = new Taken(stand, edges, box.boxHeight);
  return [...inputNotes(stand, taken, box, isRoot), ...shapeNotes(stand, taken, box, isRoot)];
}

function inputNotes(stand: Stand, taken: Taken, box: Box, isRoot: boolean): Note[] {
  const { plan, inX } = stand;
  const notes: Note[] = [];
  const read = [...inX.keys()].filter((input) => plan.isRead[input] === 1).sort((a, b) => inX[a]! - inX[b]!);
  read.forEach((input, place) => {
    const name = plan.drawn.inputs[input]!.name;
    // inside of the run the main value, and one that is alone, are told by their lines
    if (name === "" || (!isRoot && (input === plan.mainInput || plan.inputCount < 2))) return;
    const x = inX[input]! + BESIDE;
    const next = read[place + 1];
    const room = Math.min(box.boxRight - 4, next === undefined ? Infinity : inX[next]! - 3) - x;
    const text = fitted(name, FONT.note, MOST_WIDE);
    const width = widthOf(text, FONT.note);
    const y = INPUT_NOTE;
    const left = inX[input]! - BESIDE;
    if (width <= room && taken.take(x - 3, x + width, y)) notes.push({ text, x, y, align: "left" });
    else if (left - width > -box.boxLeft && taken.take(left - width - APART, left + 3, y)) notes.push({ text, x: left, y, align: "right" });
  });
  return notes;
}

function shapeNotes(stand: Stand, taken: Taken, box: Box, isRoot: boolean): Note[] {
  const { plan } = stand;
  const notes: Note[] = [];
  for (let item = 0; item < plan.count; item++) {
    const shape = plan.drawn.items[item]!.shape;
    if (shape === "" || shape === shapeInto(stand, item) || !isShown(stand, item, isRoot)) continue;
    const text = fitted(shape, FONT.note, MOST_WIDE);
    const width = widthOf(text, FONT.note);
    const y = stand.y[item]! + stand.height[item]! + 9;
    const x = stand.x[item]! + (stand.open.get(item)?.outX[0] ?? 0);
    if (x + BESIDE + width < box.boxRight && taken.take(x + 2, x + BESIDE + width + APART, y))
      notes.push({ text, x: x + BESIDE, y, align: "left" });
    else if (x - BESIDE - width > -box.boxLeft && taken.take(x - BESIDE - width - APART, x - 2, y))
      notes.push({ text, x: x - BESIDE, y, align: "right" });
  }
  return notes;
}

/** Is the shape of an item written here? What only leaves the box has it below the box. */
function isShown({ plan }: Stand, item: number, isRoot: boolean): boolean {
  const readers = plan.readers.subarray(plan.readersStart[item]!, plan.readersStart[item + 1]!);
  return readers.length > 0 && (isRoot || readers.some((reader) => reader < plan.count));
}

/** Return the shape of what an item takes from the column that it continues. */
function shapeInto({ plan }: Stand, item: number): string {
  const edge = plan.mainEdge[item]! >= 0 ? plan.mainEdge[item]! : plan.wires.start[item]!;
  if (edge >= plan.wires.start[item + 1]!) return "";
  const node = plan.wires.from[edge]!;
  return (node < plan.count ? plan.drawn.items[node]!.shape : plan.drawn.inputs[node - plan.count]?.shape) ?? "";
}

const STRIP = 32;
const FEW = 1024;

/** What is taken by lines and boxes: by strips of equal height, each a linked list in columns. */
class Taken {
  private readonly head: Int32Array; // of each strip its last entry, -1 for none
  private areas = new Float32Array(4 * FEW); // left, top, right, bottom of each area
  private areaCount = 0;
  private area = new Int32Array(FEW); // of each entry its area, and the entry before it in the strip
  private before = new Int32Array(FEW);
  private entryCount = 0;

  constructor(stand: Stand, edges: Edges, height: number) {
    this.head = new Int32Array(Math.max(1, Math.ceil((height + 2 * STRIP) / STRIP))).fill(-1);
    for (let item = 0; item < stand.plan.count; item++) {
      const [x, y] = [stand.x[item]!, stand.y[item]!];
      this.add(x - stand.extents.left[item]!, y, x + stand.extents.right[item]!, y + stand.height[item]!);
    }
    const { points, start } = edges;
    for (let edge = 0; edge < edges.count; edge++)
      for (let at = start[edge]! + 2; at < start[edge + 1]!; at += 2) {
        const [x0, y0, x1, y1] = [points[at - 2]!, points[at - 1]!, points[at]!, points[at + 1]!];
        this.add(Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1));
      }
  }

  /** Take the place of a line of text in the middle of whose height y is; false if it is not free. */
  take(left: number, right: number, y: number): boolean {
    const { areas } = this;
    for (let entry = this.head[this.strip(y)]!; entry >= 0; entry = this.before[entry]!) {
      const at = 4 * this.area[entry]!;
      if (areas[at]! < right && areas[at + 2]! > left && areas[at + 1]! < y + 7 && areas[at + 3]! > y - 6) return false;
    }
    this.add(left, y - 5, right, y + 5);
    return true;
  }

  private strip(y: number): number {
    return Math.max(0, Math.min(this.head.length - 1, Math.floor(y / STRIP)));
  }

  private add(left: number, top: number, right: number, bottom: number): void {
    if (4 * this.areaCount === this.areas.length) this.areas = grown(this.areas, new Float32Array(2 * this.areas.length));
    this.areas.set([left, top, right, bottom], 4 * this.areaCount);
    for (let strip = this.strip(top - 7); strip <= this.strip(bottom + 7); strip++) {
      if (this.entryCount === this.area.length) {
        this.area = grown(this.area, new Int32Array(2 * this.area.length));
        this.before = grown(this.before, new Int32Array(2 * this.before.length));
      }
      this.area[this.entryCount] = this.areaCount;
      this.before[this.entryCount] = this.head[strip]!;
      this.head[strip] = this.entryCount++;
    }
    this.areaCount++;
  }
}

function grown<T extends Float32Array | Int32Array>(old: T, larger: T): T {
  larger.set(old);
  return larger;
}
