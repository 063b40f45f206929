/** Colours of the graph in both themes: paper, boxes, lines, text, and a hue for each family of module. */

export type ThemeName = "light" | "dark";
/** Families of modules and operations that share a hue, so that a layer is recognised before its name is read. */
export type Family = "linear" | "norm" | "activation" | "attention" | "embedding" | "inactive" | "operation" | "module";

export interface Hue { fill: string; line: string }

export interface Palette {
  paper: string;
  box: readonly [string, string];
  boxLine: string;
  text: string;
  dim: string;
  edge: string;
  residual: string;
  accent: string;
  accentSoft: string;
  pill: string;
  badge: string;
  badgeText: string;
  bad: string;
  warn: string;
  /** Where no number is: not measured, or no number has a meaning here. */
  missing: string;
  nan: string;
  hues: Record<Family, Hue>;
}

const LIGHT: Palette = {
  paper: "#f7f8fa", box: ["#ffffff", "#f4f6f9"], boxLine: "#ccd4de", text: "#18202a", dim: "#667383", edge: "#8a97a8", residual: "#c26a35",
  accent: "#2f62d9", accentSoft: "#2f62d926", pill: "#ebeef2", badge: "#36414f", badgeText: "#ffffff", bad: "#c62f3b", warn: "#a86a00", missing: "#eef0f3", nan: "#00a0b0",
  hues: {
    linear: { fill: "#e1ecfb", line: "#4a7cc8" }, norm: { fill: "#efe8fa", line: "#8a65c2" }, activation: { fill: "#fcefd6", line: "#bd8a2e" },
    attention: { fill: "#dff3e6", line: "#3a9663" }, embedding: { fill: "#dbf1f2", line: "#2f9097" }, inactive: { fill: "#f3f4f6", line: "#a9b2bd" },
    operation: { fill: "#eef1f5", line: "#8994a2" }, module: { fill: "#ffffff", line: "#8f9cad" },
  },
};

const DARK: Palette = {
  paper: "#12151a", box: ["#191e25", "#1f252d"], boxLine: "#38424f", text: "#e6ebf1", dim: "#8f9bab", edge: "#6f7d8f", residual: "#d8925f",
  accent: "#7aa2ff", accentSoft: "#7aa2ff30", pill: "#272e37", badge: "#c9d2dd", badgeText: "#151a20", bad: "#ff6b73", warn: "#e2ac4b", missing: "#232931", nan: "#2fd3e0",
  hues: {
    linear: { fill: "#1e304d", line: "#6b99e4" }, norm: { fill: "#302548", line: "#a685e0" }, activation: { fill: "#3f321b", line: "#d9a94f" },
    attention: { fill: "#1a3828", line: "#58bd88" }, embedding: { fill: "#18373a", line: "#56b8c0" }, inactive: { fill: "#22272e", line: "#667180" },
    operation: { fill: "#272e36", line: "#828ea0" }, module: { fill: "#242b34", line: "#7e8b9c" },
  },
};

export function paletteOf(theme: ThemeName): Palette {
  return theme === "dark" ? DARK : LIGHT;
}

/** First match wins: "Identity" and "Dropout" before anything they may be named after. */
const FAMILIES: readonly (readonly [RegExp, Family])[] = [
  [/dropout|identity/i, "inactive"],
  [/norm/i, "norm"],
  [/embed|rotary/i, "embedding"],
  [/attention|attn|sdpa|lstm|gru/i, "attention"],
  [/linear|conv|matmul|bmm|baddbmm|addmm|einsum|^mm$/i, "linear"],
  [/relu|gelu|silu|swish|sigmoid|tanh|softmax|activation|mish|elu/i, "activation"],
];

const known = new Map<string, Family | undefined>();

/** The family of a label, `operation` or `module` where the name says nothing. */
export function familyOf(label: string, isCall: boolean): Family {
  if (!known.has(label)) known.set(label, FAMILIES.find(([pattern]) => pattern.test(label))?.[1]);
  return known.get(label) ?? (isCall ? "module" : "operation");
}
