/** Numbers to colours: robust against outliers, logarithmic where magnitudes differ, readable by colour-blind eyes in both themes. */

import type { ThemeName } from "./palette";

export interface Scale {
  kind: "linear" | "log" | "symmetric";
  /** Ends of the ramp; numbers beyond them take the colour of the end. */
  low: number;
  high: number;
  /** True where numbers lie beyond an end. */
  clipped: { low: boolean; high: boolean };
  /** Where a finite number stands on the ramp, 0…1. */
  at(value: number): number;
  /** The number that stands at a place of the ramp. */
  value(at: number): number;
}

const LOG_FROM = 50; // ratio of the ends from which steps of equal size would hide all but the largest
const TAIL = 0.01;

/** A quantile of a sorted array, by the nearest rank. */
export function quantile(sorted: Float64Array, q: number): number {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(q * (sorted.length - 1))))] ?? NaN;
}

/** The scale of numbers as they lie: their middle 98 % spread over the ramp, unless all of it is near the ends. */
export function scaleOf(values: ArrayLike<number>): Scale | null {
  const sorted = Float64Array.from(values).filter(Number.isFinite).sort();
  if (!sorted.length) return null;
  const first = sorted[0]!, last = sorted[sorted.length - 1]!;
  let low = quantile(sorted, TAIL), high = quantile(sorted, 1 - TAIL);
  // An outlier is one that would squeeze the rest into a tenth of the ramp; without such the ends are the extremes.
  if (last - high < 10 * (high - low)) high = last;
  if (low - first < 10 * (high - low)) low = first;
  const clipped = { low: first < low, high: last > high };
  if (low < 0 && high > 0) return symmetric(Math.max(-low, high), sorted, clipped);
  const sign = high <= 0 && low < 0 ? -1 : 1;
  const small = smallestPositive(sorted, sign), large = sign > 0 ? high : -low;
  if (small > 0 && large / small >= LOG_FROM) return logarithmic(small, large, sign, low === 0 || high === 0, clipped);
  const span = high - low;
  return { kind: "linear", low, high, clipped, at: (v) => (span ? clamp((v - low) / span) : 0.5), value: (t) => low + t * span };
}

function smallestPositive(sorted: Float64Array, sign: number): number {
  const magnitudes = sorted.map((v) => v * sign).filter((v) => v > 0).sort();
  return magnitudes.length ? quantile(magnitudes, TAIL) : 0;
}

/** Logarithm of the magnitude; zero, where it occurs, has the first twentieth of the ramp to itself. */
function logarithmic(small: number, large: number, sign: number, zero: boolean, clipped: Scale["clipped"]): Scale {
  const a = Math.log(small), span = Math.log(large) - a, from = zero ? 0.05 : 0;
  const up = (v: number): number => (v * sign <= 0 ? 0 : from + (1 - from) * clamp((Math.log(v * sign) - a) / span));
  const down = (t: number): number => (zero && t < from / 2 ? 0 : sign * Math.exp(a + (span * Math.max(0, t - from)) / (1 - from)));
  const at = sign > 0 ? up : (v: number) => 1 - up(v), value = sign > 0 ? down : (t: number) => down(1 - t);
  return { kind: "log", low: value(0), high: value(1), clipped, at, value };
}

/** Both signs: zero in the middle, the same distance for the same magnitude; bent where magnitudes differ much. */
function symmetric(end: number, sorted: Float64Array, clipped: Scale["clipped"]): Scale {
  const middle = quantile(sorted.map(Math.abs).sort(), 0.5) || end;
  const bent = end / middle >= LOG_FROM;
  const unit = bent ? middle : 1, top = bent ? Math.asinh(end / unit) : end;
  const forward = (v: number): number => (bent ? Math.asinh(v / unit) : v) / top;
  const back = (t: number): number => (bent ? unit * Math.sinh(t * top) : t * top);
  return { kind: "symmetric", low: -end, high: end, clipped, at: (v) => clamp((forward(v) + 1) / 2), value: (t) => back(2 * t - 1) };
}

const clamp = (t: number): number => Math.min(1, Math.max(0, t));

type Rgb = readonly [number, number, number];
/** Lightness falls (light theme) or rises (dark) along the ramp without a turn, so that grey vision reads it too. */
const RAMPS: Record<ThemeName, readonly string[]> = {
  light: ["#fdf3dc", "#fbd39a", "#f6a272", "#e36c6b", "#b8437f", "#7d2a83", "#471b63"],
  dark: ["#2a2140", "#512a68", "#8a3579", "#c24c72", "#ea7a5f", "#f8b36c", "#fdebb0"],
};
const DIVERGING: Record<ThemeName, readonly string[]> = {
  light: ["#1f5a94", "#4f92c9", "#a9cfe8", "#f4f4f2", "#f6c391", "#dd8438", "#97480a"],
  dark: ["#7cc0ff", "#3f86c6", "#2a4d70", "#2b2f36", "#70482a", "#c9782f", "#ffb668"],
};
/** Okabe and Ito's set without black, then greys: told apart by all common kinds of colour vision. */
const CLASSES: Record<ThemeName, readonly string[]> = {
  light: ["#7cc4ee", "#f3b13d", "#4fc2a1", "#e58a55", "#d99cc0", "#efe37a", "#6f9fd0", "#b9bfc7"],
  dark: ["#3d86b0", "#b57d14", "#1c8a6b", "#b0562a", "#97597e", "#9c9234", "#3c66a0", "#6a727d"],
};

function rgb(hex: string): Rgb {
  const n = parseInt(hex.slice(1, 7), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

const STEPS = 256;
const ramps = new Map<string, string[]>();

/** The ramp as 256 colours, mixed once. */
export function rampColours(scale: Scale["kind"], theme: ThemeName): readonly string[] {
  const kind = scale === "symmetric" ? "diverging" : "ramp", key = kind + theme;
  let out = ramps.get(key);
  if (!out) {
    const stops = (kind === "diverging" ? DIVERGING : RAMPS)[theme].map(rgb);
    out = Array.from({ length: STEPS }, (_, i) => {
      const t = (i / (STEPS - 1)) * (stops.length - 1), k = Math.min(stops.length - 2, Math.floor(t)), f = t - k;
      const mixed = [0, 1, 2].map((c) => Math.round(stops[k]![c]! * (1 - f) + stops[k + 1]![c]! * f));
      return `#${mixed.map((c) => c.toString(16).padStart(2, "0")).join("")}`;
    });
    ramps.set(key, out);
  }
  return out;
}

export function colourAt(scale: Scale, value: number, theme: ThemeName): string {
  return rampColours(scale.kind, theme)[Math.round(scale.at(value) * (STEPS - 1))]!;
}

export function classColour(index: number, theme: ThemeName): string {
  const colours = CLASSES[theme];
  return colours[Math.min(index, colours.length - 1)]!;
}

const inks = new Map<string, string>();

/** Near-black or near-white, whichever is read more easily on this colour (WCAG's relative luminance). */
export function inkOn(colour: string): string {
  let ink = inks.get(colour);
  if (!ink) {
    const [r, g, b] = rgb(colour).map((c) => ((c / 255 + 0.055) / 1.055) ** 2.4) as [number, number, number];
    ink = 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.2 ? "#141a21" : "#ffffff";
    inks.set(colour, ink);
  }
  return ink;
}
