// Attention maps: every head of a module small, one head large, and the weights of the token under the pointer.

import { paletteOf } from "../../canvas/palette";
import type { AttentionData } from "../../payload";
import { digits } from "../../units";
import { el, fill } from "../dom";
import type { Page } from "../page";
import { onTheme, themeOf } from "../theme";

interface Choice {
  map: number;
  row: number; // of the batch
  head: number;
}

export function buildAttention(page: Page, host: HTMLElement): void {
  const maps = page.payload.run.data.attention;
  const chosen: Choice = { map: 0, row: 0, head: 0 };
  const modules = el("select", { "aria-label": "Module", change: () => choose({ map: Number(modules.value), head: 0 }) },
    ...maps.map((map, i) => el("option", { value: i }, map.name)));
  const rows = el("select", { "aria-label": "Row of the batch", change: () => choose({ row: Number(rows.value) }) });
  const heads = el("div", { class: "heads", role: "group", "aria-label": "Heads" });
  const large = el("div", { class: "large-map" });
  const choose = (change: Partial<Choice>): void => {
    Object.assign(chosen, change);
    const map = maps[chosen.map]!;
    chosen.row = Math.min(chosen.row, map.shape[0] - 1);
    fill(rows, ...Array.from({ length: map.shape[0] }, (_, i) => el("option", { value: i }, `row ${i}`)));
    rows.value = String(chosen.row);
    rows.hidden = map.shape[0] < 2;
    fill(heads, ...Array.from({ length: map.heads }, (_, head) => headButton(page, map, { ...chosen, head }, head === chosen.head, () => choose({ head }))));
    fill(large, ...largeMap(page, map, chosen));
    if (map.call >= 0 && "map" in change) page.select({ call: map.call, item: -1 });
  };
  fill(host, el("div", { class: "wide-column" }, el("div", { class: "choices" }, modules, rows), heads, large));
  choose({});
  onTheme(page.store, () => choose({}));
}

function headButton(page: Page, map: AttentionData, choice: Choice, isChosen: boolean, choose: () => void): HTMLElement {
  return el("button", { type: "button", class: "head", "aria-pressed": String(isChosen), "aria-label": `Head ${choice.head}`, click: choose },
    drawn(page, map, choice), el("span", null, String(choice.head)));
}

/** A weight between 0 and 1; NaN where it is none. */
function weightAt(map: AttentionData, at: number): number {
  const steps = map.weights[at]!;
  return steps < 0 ? NaN : steps / map.steps;
}

/** The weights of one head, one pixel for each pair of tokens, in the ramp of the accent colour. */
function drawn(page: Page, map: AttentionData, { row, head }: Choice): HTMLCanvasElement {
  const [, heads, queries, keys] = map.shape;
  const canvas = el("canvas", { class: "map", width: keys, height: queries });
  const context = canvas.getContext("2d")!;
  const picture = context.createImageData(keys, queries);
  const { paper, accent, nan } = paletteOf(themeOf(page.store));
  const [low, high, none] = [channels(paper), channels(accent), channels(nan)];
  const first = (row * heads + head) * queries * keys;
  const most = largest(map, first, queries * keys);
  for (let i = 0; i < queries * keys; i++) {
    const weight = Math.sqrt(weightAt(map, first + i) / most); // small weights stay visible
    for (let c = 0; c < 3; c++) picture.data[4 * i + c] = Number.isNaN(weight) ? none[c]! : low[c]! + (high[c]! - low[c]!) * weight;
    picture.data[4 * i + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

function largest(map: AttentionData, first: number, count: number): number {
  let most = 1 / map.steps;
  for (let i = first; i < first + count; i++) most = Math.max(most, weightAt(map, i) || 0);
  return most;
}

function channels(hex: string): number[] {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function largeMap(page: Page, map: AttentionData, choice: Choice): HTMLElement[] {
  const [, heads, queries, keys] = map.shape;
  const canvas = drawn(page, map, choice);
  const reading = el("p", { class: "chart-reading", role: "status" }, `From 0 to ${digits(largest(map, (choice.row * heads + choice.head) * queries * keys, queries * keys), 3)}. Point at a cell, or choose a token.`);
  const first = (choice.row * heads + choice.head) * queries * keys;
  const weight = (query: number, key: number): number => weightAt(map, first + query * keys + key);
  const down = map.queries[choice.row] ?? [];
  const across = map.keys[choice.row] ?? [];
  canvas.addEventListener("pointermove", (event) => {
    const bounds = canvas.getBoundingClientRect();
    const key = Math.min(keys - 1, Math.floor(((event.clientX - bounds.left) / bounds.width) * keys));
    const query = Math.min(queries - 1, Math.floor(((event.clientY - bounds.top) / bounds.height) * queries));
    if (key >= 0 && query >= 0) reading.textContent = `${down[query] ?? query} looks at ${across[key] ?? key} with ${digits(weight(query, key), 3)}`;
  });
  const tokens = el("div", { class: "tokens" });
  const choose = (query: number): void => {
    const most = Math.max(1e-9, ...across.map((_, key) => weight(query, key) || 0));
    fill(tokens, ...across.map((token, key) => {
      const piece = el("button", { type: "button", class: "token", title: digits(weight(query, key), 3), "aria-pressed": String(key === query), click: () => choose(Math.min(key, queries - 1)) }, token);
      piece.style.setProperty("--weight", String(Math.sqrt((weight(query, key) || 0) / most)));
      return piece;
    }));
  };
  choose(queries - 1);
  const error = map.error === null ? null : el("p", { class: "about" }, `The maps were computed again from queries and keys; they give the recorded result within ${digits(map.error, 2)}.`);
  return [el("div", { class: "map-frame" }, canvas), reading, tokens, ...(error ? [error] : [])];
}
