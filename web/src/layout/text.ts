/**
 * Widths of text without a browser, so that the page and the picture are laid out alike.
 *
 * The table has the advances of DejaVu Sans, which is as wide as the fonts of any desktop: text in another font leaves
 * some room, and none runs over.
 */

const FIRST = 32;
const REGULAR = [
  318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636, 636, 636, 636, 636, 636,
  636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787,
  603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352, 635,
  634, 278, 278, 579, 278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
];
const BOLD = [
  348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365, 696, 696, 696, 696, 696, 696, 696, 696,
  696, 696, 400, 400, 838, 838, 838, 580, 1000, 774, 762, 734, 830, 683, 683, 821, 837, 372, 372, 775, 637, 995, 837, 850,
  733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725, 457, 365, 457, 838, 500, 500, 675, 716, 593, 716, 678, 435, 716,
  712, 343, 343, 665, 343, 1042, 712, 687, 716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838,
];
const MIDDLE_DOT = 0xb7;
const LETTER = 640; // a letter outside of ASCII
const WIDE = 1000; // what fills a square: Chinese, Japanese, Korean, most signs

/** Weights that text is drawn in. */
export type Weight = "regular" | "bold";

/** Return the width of a text, in the unit of its size. */
export function widthOf(text: string, size: number, weight: Weight = "regular"): number {
  const table = weight === "bold" ? BOLD : REGULAR;
  let width = 0;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    const known = table[code - FIRST];
    width += known ?? (code === MIDDLE_DOT ? 318 : code < 0x1100 ? LETTER : WIDE);
  }
  return (width * size) / 1000;
}

/** Return a text that is at most `most` wide: cut in the middle where it is longer, since names differ at their ends. */
export function fitted(text: string, size: number, most: number, weight: Weight = "regular"): string {
  if (text.length < 512 && widthOf(text, size, weight) <= most) return text;
  let shown = Math.min(Array.from(text.slice(0, 512)).length, 64);
  const start = Array.from(text.slice(0, 64));
  const end = Array.from(text.slice(-64));
  while (shown > 2) {
    const head = Math.ceil((shown - 1) / 2);
    const cut = `${start.slice(0, head).join("")}…${end.slice(end.length - (shown - 1 - head)).join("")}`;
    if (widthOf(cut, size, weight) <= most) return cut;
    shown--;
  }
  return "…";
}
