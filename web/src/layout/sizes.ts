/** Distances of the layout, and the sizes of what is closed. `u` is a CSS pixel at zoom 1. */

import type { DrawnItem } from "../fold";
import { fitted, widthOf } from "./text";

export const FONT = { name: 12, type: 10, operation: 12, views: 9, title: 11.5, titleType: 10.5, note: 9, times: 10 } as const;

export const SIZE = {
  head: 24, // height of the title of an open box
  top: 20, // between the title and the first row
  bottom: 16,
  side: 14, // between a box and what is in it
  gap: 26, // between two rows
  track: 6, // between two lines that run across in one gap
  mostGap: 96,
  column: 22, // between two boxes of a row
  lane: 5, // the width of a line with the room for itself
  beside: 9, // between a line and what it passes
  port: 16, // between two arrows into one box, at most
  row: 6, // height of a row that only lines pass
  radius: 7, // of corners of lines
  stack: 4, // offset of the sheets behind a repeated box
} as const;

const MOST_NAME = 190; // widest name that is written in full
const MOST_VIEWS = 130;

/** What stands in a closed item. */
export interface Face {
  name: string;
  type: string;
  /** Half its width, and its height. */
  half: number;
  height: number;
}

/** Return the texts and the size of a closed item; `lines` further lines of text have room below its name. */
export function faceOf(item: DrawnItem, lines = 0): Face {
  if (item.kind === "views") {
    const name = fitted(item.label, FONT.views, MOST_VIEWS);
    return { name, type: "", half: Math.max(22, widthOf(name, FONT.views) / 2 + 8), height: 16 };
  }
  const repeated = item.times > 1 ? widthOf(timesOf(item), FONT.times, "bold") + 20 : 0;
  const [below, wide] = [lines * 12, lines > 0 ? 64 : 0];
  const shift = item.times > 1 ? SIZE.stack : 0;
  if (item.kind !== "call" && !item.type) {
    const name = fitted(item.label, FONT.operation, MOST_NAME);
    return { name, type: "", half: Math.max(28, wide, widthOf(name, FONT.operation) / 2 + 12 + repeated / 2) + shift, height: 24 + below + shift };
  }
  const name = fitted(item.label, FONT.name, MOST_NAME, "bold");
  const type = fitted(item.type, FONT.type, MOST_NAME);
  const text = Math.max(widthOf(name, FONT.name, "bold"), widthOf(type, FONT.type));
  return { name, type, half: Math.max(46, wide, (text + repeated) / 2 + 14) + shift, height: 38 + below + shift };
}

/** Return how often a repeated item is repeated, as it is written. */
export function timesOf(item: DrawnItem): string {
  return `×${item.times}`;
}
