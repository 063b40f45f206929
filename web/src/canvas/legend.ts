/** The legend of an overlay: its ramp with a histogram, or its classes; each entry filters the graph. */

import { counted, el, fill } from "../shell/dom";
import type { Store } from "../state";
import { digits, quantity } from "../units";
import { BINS, entryOf, type Overlay } from "./overlay";
import { paletteOf, type ThemeName } from "./palette";
import { rampColours } from "./scale";

const KINDS = { linear: "", log: "logarithmic", symmetric: "around zero" } as const;

/** How many readings each entry of the legend has. */
export function countsOf(overlay: Overlay): Map<string, number> {
  const counts = new Map<string, number>();
  for (const reading of overlay.all()) {
    const entry = entryOf(overlay, reading);
    counts.set(entry, (counts.get(entry) ?? 0) + 1);
  }
  return counts;
}

export class Legend {
  readonly element = el("section", { class: "legend", "aria-label": "Legend" });
  private counts = new Map<string, number>();
  private shown: Overlay | null = null;

  constructor(private readonly store: Store) {}

  show(overlay: Overlay | null, theme: ThemeName): void {
    if (overlay !== this.shown) this.counts = overlay ? countsOf(overlay) : new Map();
    this.shown = overlay;
    this.element.hidden = !overlay;
    if (!overlay) return fill(this.element);
    const close = el("button", { class: "legend-close", title: "Remove the colours", "aria-label": "Remove the colours", click: () => this.store.set({ overlay: "", filter: [] }) }, "×");
    const kind = overlay.scale ? KINDS[overlay.scale.kind] : "";
    const heading = el("div", { class: "legend-title", title: overlay.about }, el("b", null, overlay.title), kind && el("span", { class: "dim" }, kind), close);
    fill(this.element, heading, ...(overlay.scale ? this.ramp(overlay, theme) : this.classes(overlay, theme)));
  }

  private toggle(entry: string): void {
    const { filter } = this.store.get();
    this.store.set({ filter: filter.includes(entry) ? filter.filter((one) => one !== entry) : [...filter, entry] });
  }

  private entry(entry: string, className: string, label: string, ...children: (Node | string)[]): HTMLButtonElement {
    const off = this.store.get().filter.includes(entry);
    return el("button", { class: className, title: label, "aria-label": label, "aria-pressed": String(!off), click: () => this.toggle(entry) }, ...children);
  }

  private ramp(overlay: Overlay, theme: ThemeName): Node[] {
    const scale = overlay.scale!, colours = rampColours(scale.kind, theme), most = Math.max(1, ...Array.from({ length: BINS }, (_, i) => this.counts.get(`bin${i}`) ?? 0));
    const bins = Array.from({ length: BINS }, (_, i) => {
      const count = this.counts.get(`bin${i}`) ?? 0, from = quantity(scale.value(i / BINS), overlay.unit), to = quantity(scale.value((i + 1) / BINS), overlay.unit);
      const bar = el("i", { class: "legend-bar" }), swatch = el("i", { class: "legend-swatch" });
      bar.style.height = `${count ? 2 + 22 * Math.sqrt(count / most) : 0}px`;
      swatch.style.background = colours[Math.round(((i + 0.5) / BINS) * (colours.length - 1))]!;
      return this.entry(`bin${i}`, "legend-bin", `${from} to ${to}: ${count}`, bar, swatch);
    });
    const end = (value: number, beyond: boolean, sign: string): HTMLElement => el("span", null, (beyond ? sign : "") + (overlay.unit ? quantity(value, overlay.unit) : digits(value, 3)));
    const ends = el("div", { class: "legend-ends" }, end(scale.low, scale.clipped.low, "≤ "), end(scale.high, scale.clipped.high, "≥ "));
    return [el("div", { class: "legend-bins" }, ...bins), ends, ...this.chips([["nan", "not finite", paletteOf(theme).nan]])];
  }

  private classes(overlay: Overlay, theme: ThemeName): Node[] {
    return this.chips(overlay.classes.map((one) => [one.name, one.name, one.colour(theme)]));
  }

  private chips(entries: readonly (readonly [entry: string, label: string, colour: string])[]): Node[] {
    const chips = entries.filter(([entry]) => this.counts.get(entry)).map(([entry, label, colour]) => {
      const swatch = el("i", { class: entry === "nan" ? "legend-dot hatched" : "legend-dot" }), count = this.counts.get(entry)!;
      swatch.style.backgroundColor = colour;
      return this.entry(entry, "legend-chip", `${label}: ${counted(count, "reading")}`, swatch, label, el("span", { class: "dim" }, count.toLocaleString("en-US")));
    });
    return chips.length ? [el("div", { class: "legend-chips" }, ...chips)] : [];
  }
}
