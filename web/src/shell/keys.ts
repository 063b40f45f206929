// The keyboard: one table of keys for the whole page, which the help shows as it is.

import { el } from "./dom";

export interface Shortcut {
  readonly keys: readonly string[]; // as KeyboardEvent.key has them; "Shift+" before one where it matters
  readonly does: string;
  readonly group: string;
  run?(event: KeyboardEvent): void; // without it, the part that has the focus listens itself
}

const table: Shortcut[] = [];

/** Add shortcuts; those with `run` work wherever the focus is, unless text is being typed. */
export function addShortcuts(...shortcuts: Shortcut[]): void {
  table.push(...shortcuts);
}

export function shortcuts(): readonly Shortcut[] {
  return table;
}

export function listenToKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
    const found = table.find((shortcut) => shortcut.run && shortcut.keys.includes(event.key));
    if (!found) return;
    event.preventDefault();
    found.run!(event);
  });
}

function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  if (document.querySelector("dialog[open]")) return true;
  return Boolean(target?.closest("input, textarea, select, [contenteditable]"));
}

const NAMES: Readonly<Record<string, string>> = {
  ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", " ": "Space", Escape: "Esc", PageUp: "Page up", PageDown: "Page down",
};

/** The help: a dialog with all shortcuts by group, and how to search. */
export function helpDialog(): HTMLDialogElement {
  const dialog = el("dialog", { class: "help", "aria-labelledby": "help-title" });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  return dialog;
}

export function showHelp(dialog: HTMLDialogElement): void {
  const groups = [...new Set(table.map((shortcut) => shortcut.group))];
  dialog.replaceChildren(
    el("header", null,
      el("h2", { id: "help-title" }, "Keys and search"),
      el("button", { type: "button", class: "icon", "aria-label": "Close", click: () => dialog.close() }, "×")),
    el("div", { class: "help-groups" },
      ...groups.map((group) => el("section", null, el("h3", null, group), el("dl", null, ...table.filter((one) => one.group === group).flatMap(row)))),
      el("section", { class: "help-search" }, el("h3", null, "Search"), el("dl", null, ...SEARCHES.flatMap(([text, means]) => [el("dt", null, el("code", null, text)), el("dd", null, means)])))),
  );
  dialog.showModal();
}

export const SEARCHES: readonly (readonly [string, string])[] = [
  ["attn", "paths, classes and operations"],
  ["h.*.mlp", "paths by a pattern"],
  ["type:Linear", "a class; also path: op: source: status:"],
  ["shape:2,*,768", "shapes of results; also dtype:"],
  ["absmax > 100", "statistics of a result"],
  ["input.nan > 0", "the same of an input; also parameter."],
  ["duration > 1ms", "a condition on any measure, with its unit"],
];

function row(shortcut: Shortcut): HTMLElement[] {
  const keys = shortcut.keys.map((key) => el("kbd", null, NAMES[key] ?? key));
  return [el("dt", null, ...keys), el("dd", null, shortcut.does)];
}
