/** What holds for every picture: no line runs through words, no words lie on others, it is no taller than a page. */

import { widthOf } from "../src/layout/text";

const TALLEST = 2.1; // of height to width
const SHORT = 960; // pixels: what is no taller fits in any case

interface Words { text: string; left: number; right: number; top: number; bottom: number; hides: boolean }
interface Line { x0: number; y0: number; x1: number; y1: number }

/** Return a sentence for everything that does not hold in the SVG text of a picture. */
export function brokenPicture(svg: string): string[] {
  const words = wordsIn(svg), lines = linesIn(svg), found: string[] = [];
  const [, width, height] = /<svg [^>]*width="(\d+)" height="(\d+)"/.exec(svg)!.map(Number) as [number, number, number];
  const [left, top] = /viewBox="(-?[\d.]+) (-?[\d.]+)/.exec(svg)!.slice(1).map(Number) as [number, number];
  if (height > SHORT && height > TALLEST * width) found.push(`it is ${height} high and ${width} wide`);
  for (const one of words)
    if (one.left < left || one.right > left + width || one.top < top || one.bottom > top + height) found.push(`${one.text} is outside`);
  const order = [...words].sort((a, b) => a.top - b.top);
  for (const [place, one] of order.entries()) {
    for (const other of order.slice(place + 1)) {
      if (other.top >= one.bottom) break;
      if (one.left < other.right && other.left < one.right) found.push(`${one.text} and ${other.text} lie on each other`);
    }
    for (const line of one.hides ? [] : lines)
      if (Math.max(line.x0, line.x1) > one.left && Math.min(line.x0, line.x1) < one.right && Math.max(line.y0, line.y1) > one.top && Math.min(line.y0, line.y1) < one.bottom)
        found.push(`a line runs through ${one.text}`);
  }
  return [...new Set(found)];
}

function wordsIn(svg: string): Words[] {
  const found: Words[] = [];
  // words on a pill are drawn above all lines
  for (const [, pill, attributes, text] of svg.matchAll(/(<rect [^>]*height="16" rx="8"[^>]*\/>\n)?<text ([^>]*)>([^<]*)<\/text>/g)) {
    const of = (name: string): string => new RegExp(`(?:^| )${name}="([^"]*)"`).exec(attributes!)?.[1] ?? "";
    const [x, y, size] = [Number(of("x")), Number(of("y")), Number(of("font-size"))];
    const plain = text!.replace(/&(amp|lt|gt|quot);/g, "x");
    const width = widthOf(plain, size, of("font-weight") ? "bold" : "regular");
    const left = of("text-anchor") === "middle" ? x - width / 2 : of("text-anchor") === "end" ? x - width : x;
    found.push({ text: plain, left: left + 1, right: left + width - 1, top: y - 0.7 * size, bottom: y, hides: pill !== undefined });
  }
  return found;
}

/** Return the straight parts of everything that is drawn as a line. */
function linesIn(svg: string): Line[] {
  const found: Line[] = [];
  for (const [, d] of svg.matchAll(/<path d="([^"]*)" fill="none"/g)) {
    let [x, y] = [0, 0];
    for (const [, sign, rest] of d!.matchAll(/([MLQVHh])([^MLQVHh]*)/g)) {
      const numbers = rest!.trim().split(/[ ,]+/).map(Number);
      const [nextX, nextY] = sign === "V" ? [x, numbers[0]!] : sign === "H" ? [numbers[0]!, y] : sign === "h" ? [x + numbers[0]!, y] : [numbers.at(-2)!, numbers.at(-1)!];
      if (sign !== "M") found.push({ x0: x, y0: y, x1: nextX, y1: nextY });
      [x, y] = [nextX, nextY];
    }
  }
  return found;
}

