// Facts about the run as a whole, shown with the root.

import type { Run } from "../payload";
import { quantity } from "../units";
import { el } from "./dom";

export function runFacts(run: Run): HTMLElement | null {
  const { data } = run;
  const rows: [string, string][] = [
    ["Started", when(data.started)],
    ["Took", data.duration ? quantity(data.duration, "s") : ""],
    ["Folder", data.folder],
    ...data.versions,
    ...data.settings,
  ];
  const known = rows.filter(([, text]) => text);
  return known.length === 0 ? null : el("section", null, el("h3", null, "Run"),
    el("dl", { class: "facts" }, ...known.flatMap(([name, text]) => [el("dt", null, name), el("dd", null, text)])));
}

/** A date of ISO 8601 in the reader's own time. */
export function when(iso: string): string {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? iso : date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}
