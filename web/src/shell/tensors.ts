// One tensor in the panel: shape, dtype, device, sharding, its statistics and its histogram.

import type { Numbers, Run, Statistics, ValueFacts } from "../payload";
import { digits, quantity, whole } from "../units";
import { el, svg } from "./dom";

/** The same tensor of the other run. */
export interface Counterpart {
  readonly statistics: Statistics | null;
  readonly isEqual: boolean; // within tolerance
  readonly names: readonly [own: string, other: string];
}

/** A tensor with its slot, as it stands among the inputs or outputs. */
export function tensor(run: Run, value: number, slot: string, counterpart: Counterpart | null = null): HTMLElement {
  const facts = run.facts(value);
  const histogram = run.histogram(value);
  return el("div", { class: "tensor" },
    head(slot || facts.name || "result", facts),
    remarks(facts),
    facts.statistics && statistics(facts.statistics, counterpart),
    histogram && drawnHistogram(histogram.edges, histogram.counts, "histogram of this tensor"),
  );
}

/** An argument or a result that is no tensor. */
export function plainItem(slot: string, text: string): HTMLElement {
  return el("div", { class: "tensor plain" }, el("div", { class: "tensor-head" }, el("code", { class: "slot" }, slot || "result"), el("code", { class: "text" }, text)));
}

function head(slot: string, facts: ValueFacts): HTMLElement {
  return el("div", { class: "tensor-head" }, el("code", { class: "slot" }, slot), el("span", { class: "shape" }, facts.shape));
}

function remarks(facts: ValueFacts): HTMLElement {
  const said = [
    facts.dtype,
    facts.device,
    facts.dtype && quantity(facts.bytes, "B"),
    facts.sharding,
    facts.type === "Tensor" || facts.type === "Parameter" ? "" : facts.type,
    facts.layout === "strided" || !facts.layout ? "" : facts.layout,
    facts.requiresGrad ? "requires grad" : "",
    facts.detail,
  ].filter(Boolean);
  return el("div", { class: "remarks" }, said.join(" · "));
}

const SHOWN = ["mean", "std", "min", "max"] as const;
const LONG = 8; // characters of a number for which four columns are too narrow

/** Statistics in columns; below them those of the other run, where there is one. */
export function statistics(own: Statistics, counterpart: Counterpart | null = null): HTMLElement {
  const other = counterpart?.statistics ?? null;
  const column = (name: string, first: string, second: string | null, differs = false): HTMLElement =>
    el("div", { class: `stat ${differs ? "differs" : name ? "" : "sides-named"}` },
      el("span", { class: "stat-name" }, name || "\u00a0"),
      el("span", { class: "stat-number" }, first),
      second !== null && el("span", { class: "stat-number other" }, second));
  if (!other) return el("div", { class: "statistics" }, ...SHOWN.map((name) => column(name, number(own[name], 4), null)), counts(own));
  const texts = SHOWN.map((name) => told(own[name], other[name], counterpart!.isEqual));
  const isLong = texts.flat().some((text) => text.length > LONG);
  const columns = SHOWN.map((name, i) => column(name, ...texts[i]!, texts[i]![0] !== texts[i]![1] && !counterpart!.isEqual));
  const names = (): HTMLElement => column("", ...counterpart!.names);
  return el("div", { class: isLong ? "statistics two long" : "statistics two" }, names(), ...columns.slice(0, 2), isLong && names(), ...columns.slice(2), counts(own));
}

function counts(all: Statistics): HTMLElement | null {
  const said: (Node | null)[] = [
    bad(all.nan, "NaN"), bad(all.posinf, "+Inf"), bad(all.neginf, "−Inf"),
    all.zeros > 0 ? el("span", null, `${share(all.zeros, all.count)} zeros`) : null,
  ];
  return said.some(Boolean) ? el("div", { class: "counts" }, ...said) : null;
}

function bad(count: number, what: string): HTMLElement | null {
  return count > 0 ? el("span", { class: "bad" }, `${whole(count)} ${what}`) : null;
}

function share(part: number, all: number): string {
  return part === all ? "all" : part * 1000 < all ? whole(part) : `${digits((100 * part) / all, 2)} %`;
}

function number(value: number, count: number): string {
  return Number.isNaN(value) ? "–" : digits(value, Math.abs(value) < 0.01 ? 3 : count); // zeros are wide, too
}

const MOST_DIGITS = 7; // the next one of a float32 is rounding

/** Two numbers in as many digits as show their difference, if it is more than rounding; else in three. */
function told(a: number, b: number, isEqual: boolean): [string, string] {
  for (let count = 3; count <= MOST_DIGITS && !isEqual; count++) {
    const [first, second] = [digits(a, count), digits(b, count)];
    if (first !== second) return [first, second];
  }
  return [number(a, 3), number(b, 3)];
}

const WIDTH = 300;
const HEIGHT = 44;
const EDGE = 60; // where the numbers at the ends of the axis stand

/** A histogram with its ends, and a line at zero where zero lies inside. */
export function drawnHistogram(edges: ArrayLike<number>, counts: Numbers | readonly number[], label: string): HTMLElement {
  const bins = counts.length;
  const low = edges[0]!;
  const high = edges[edges.length - 1]!;
  const most = Math.max(1, ...Array.from(counts));
  const x = (value: number): number => (high > low ? ((value - low) / (high - low)) * WIDTH : WIDTH / 2);
  const bars = Array.from(counts, (count, i) => {
    const tall = count ? Math.max(1, (count / most) * HEIGHT) : 0; // one element is seen, too
    const from = x(edges[i]!);
    return svg("rect", { x: from, y: HEIGHT - tall, width: Math.max(0.5, x(edges[i + 1]!) - from - (bins > 100 ? 0 : 0.5)), height: tall });
  });
  const zero = low < 0 && high > 0 ? svg("line", { x1: x(0), x2: x(0), y1: 0, y2: HEIGHT, class: "zero" }) : null;
  return el("figure", { class: "histogram" },
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, ...bars, zero),
    el("figcaption", null, el("span", null, digits(low, 3)), zero && x(0) > EDGE && x(0) < WIDTH - EDGE && el("span", { class: "zero-label", style: `left:${x(0) / WIDTH * 100}%` }, "0"), el("span", null, digits(high, 3))),
  );
}
