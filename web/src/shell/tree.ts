// The tree of calls: an ARIA tree whose rows exist only while they are seen.

import { overlayOf, colourOf, type Overlay } from "../canvas/overlay";
import { samePlace, type Place } from "../state";
import { quantity } from "../units";
import { el, fill, freshId, svg } from "./dom";
import { markOf, wordsOf, type Mark, type Page } from "./page";
import { Rows } from "./rows";
import { hitsOf, matcher, type Hits } from "./search";
import { themeOf, onTheme } from "./theme";

const ROW = 26; // pixels; page.css has the same
const BEYOND = 8; // rows that are made above and below the visible ones
const DEEPEST_INDENT = 14; // levels: deeper rows stay readable at the same indent

export const MARKS: Readonly<Record<Mark, string>> = {
  raised: "raised an exception",
  error: "has an error",
  adds: "adds error",
  warning: "has a warning",
  advice: "has advice",
  opaque: "opaque",
  recorded: "recorded",
};

export class Tree {
  readonly element: HTMLElement;
  private rows: Rows;
  private readonly list: HTMLElement;
  private readonly space: HTMLElement;
  private readonly id = freshId("row");
  private scheduled = false;
  private stale = true;
  private readonly made = new Map<number, HTMLElement>(); // by row
  private overlay: Overlay | null = null;
  private hits: Hits | null = null;

  constructor(private readonly page: Page) {
    this.rows = this.rowsOf();
    this.space = el("div", { class: "tree-space", role: "presentation" });
    this.list = el("div", {
      class: "tree-rows", role: "tree", tabindex: 0, "aria-label": "Calls of the run",
      keydown: (event: KeyboardEvent) => this.key(event),
      scroll: () => this.later(true),
      click: (event: MouseEvent) => this.click(event),
      dblclick: (event: MouseEvent) => this.doubleClick(event),
    }, this.space);
    this.element = el("nav", { class: "tree", "aria-label": "Tree" }, this.list);
    new ResizeObserver(() => this.later(true)).observe(this.list);
    page.follow(["selected"], () => this.reveal());
    page.follow(["overlay", "query", "compareSide"], () => this.recolour());
    onTheme(page.store, () => this.later());
    page.store.subscribe((now, before) => {
      if (now.compareSide !== before.compareSide && page.run !== this.rows.run) this.rows = this.rowsOf();
    });
  }

  /** What is shown, for tests: the rows in sight as plain data. */
  visible(): { name: string; level: number; selected: boolean; expanded: boolean | null }[] {
    const { first, last } = this.window();
    return Array.from({ length: last - first }, (_, i) => {
      const row = first + i;
      const place = this.rows.place(row);
      return {
        name: wordsOf(this.rows.run, place).name, level: this.rows.level[row]!,
        selected: samePlace(place, this.page.selected), expanded: this.rows.isParent(row) ? this.rows.isExpanded(row) : null,
      };
    });
  }

  get rowCount(): number {
    return this.rows.count;
  }

  focus(): void {
    this.list.focus();
  }

  expandTo(depth: number): void {
    this.rows.expandTo(depth);
    this.reveal();
  }

  private rowsOf(): Rows {
    return new Rows(this.page.run);
  }

  private recolour(): void {
    const { overlay, query, compareSide } = this.page.store.get();
    this.overlay = overlayOf(overlay, this.page.payload, compareSide, matcher);
    this.hits = query ? hitsOf(this.page.run, query) : null;
    this.later();
  }

  private reveal(): void {
    const { selected } = this.page;
    if (selected) {
      this.rows.reveal(selected);
      this.scrollTo(this.rows.rowOf(selected));
    }
    this.later();
  }

  private scrollTo(row: number): void {
    if (row < 0) return;
    this.space.style.height = `${this.rows.count * ROW}px`;
    const top = row * ROW;
    const { scrollTop, clientHeight } = this.list;
    if (top < scrollTop + ROW) this.list.scrollTop = Math.max(0, top - ROW);
    else if (top + 2 * ROW > scrollTop + clientHeight) this.list.scrollTop = top + 2 * ROW - clientHeight;
  }

  /** Draw in the next frame; rows that were made stay as they are if only the window has moved. */
  private later(onlyMoved = false): void {
    if (!onlyMoved) this.stale = true;
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  private window(): { first: number; last: number } {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - BEYOND);
    const last = Math.min(this.rows.count, Math.ceil((this.list.scrollTop + this.list.clientHeight) / ROW) + BEYOND);
    return { first, last };
  }

  private draw(): void {
    if (this.stale) {
      this.space.style.height = `${this.rows.count * ROW}px`;
      fill(this.space);
      this.made.clear();
      this.stale = false;
    }
    const { first, last } = this.window();
    for (const [row, element] of this.made) {
      if (row >= first && row < last) continue;
      element.remove();
      this.made.delete(row);
    }
    const fresh: HTMLElement[] = [];
    for (let row = first; row < last; row++) {
      if (this.made.has(row)) continue;
      const element = this.row(row);
      this.made.set(row, element);
      fresh.push(element);
    }
    this.space.append(...fresh);
    const chosen = this.page.selected ? this.rows.rowOf(this.page.selected) : -1;
    if (this.made.has(chosen)) this.list.setAttribute("aria-activedescendant", `${this.id}-${chosen}`);
    else this.list.removeAttribute("aria-activedescendant");
  }

  private row(row: number): HTMLElement {
    const { run } = this.rows;
    const place = this.rows.place(row);
    const words = wordsOf(run, place);
    const isParent = this.rows.isParent(row);
    const mark = markOf(this.page, run, place);
    const indent = Math.min(this.rows.level[row]! - 1, DEEPEST_INDENT);
    const isHit = this.hits?.has(place) ?? false;
    return el("div", {
      class: `row${place.item >= 0 ? " operation" : ""}${isHit ? " hit" : ""}`,
      role: "treeitem", id: `${this.id}-${row}`, "data-row": row,
      "aria-level": this.rows.level[row]!, "aria-posinset": this.rows.position[row]!, "aria-setsize": this.rows.siblings[row]!,
      "aria-selected": samePlace(place, this.page.selected) ? "true" : "false",
      "aria-expanded": isParent ? String(this.rows.isExpanded(row)) : undefined,
      style: `top:${row * ROW}px;padding-left:${8 + indent * 14}px`,
    },
      chevron(isParent),
      el("span", { class: "names" }, el("span", { class: "name" }, words.name), el("span", { class: "type" }, words.type)),
      mark && el("span", { class: `mark ${mark}`, title: MARKS[mark], role: "img", "aria-label": MARKS[mark] }),
      this.reading(place) ?? el("span", { class: "shape" }, words.shape),
    );
  }

  /** The number of the overlay, with its colour. */
  private reading(place: Place): HTMLElement | null {
    if (!this.overlay) return null;
    const reading = this.overlay.read(place);
    const colour = colourOf(this.overlay, reading, themeOf(this.page.store));
    if (reading === undefined || !colour) return el("span", { class: "reading" });
    const text = this.overlay.scale ? quantity(reading, this.overlay.unit) : this.overlay.classes[reading]?.name ?? "";
    const swatch = el("i", { class: "swatch" });
    swatch.style.background = colour;
    return el("span", { class: "reading" }, text, swatch);
  }

  private click(event: MouseEvent): void {
    const row = rowAt(event);
    if (row < 0) return;
    if ((event.target as Element).closest(".chevron")) this.toggle(row);
    else this.page.select(this.rows.place(row));
  }

  private doubleClick(event: MouseEvent): void {
    const row = rowAt(event);
    if (row >= 0 && !(event.target as Element).closest(".chevron") && this.rows.isParent(row)) this.toggle(row);
  }

  private toggle(row: number): void {
    this.rows.setExpanded(this.rows.call[row]!, !this.rows.isExpanded(row));
    this.later();
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = Math.max(0, this.page.selected ? this.rows.rowOf(this.page.selected) : 0);
    const action = this.actions(row)[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }

  private actions(row: number): Record<string, (() => void) | undefined> {
    const to = (other: number): void => this.page.select(this.rows.place(Math.min(this.rows.count - 1, Math.max(0, other))));
    const perPage = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
    const isOpen = this.rows.isExpanded(row);
    return {
      ArrowDown: () => to(row + 1),
      ArrowUp: () => to(row - 1),
      PageDown: () => to(row + perPage),
      PageUp: () => to(row - perPage),
      Home: () => to(0),
      End: () => to(this.rows.count - 1),
      ArrowRight: () => (this.rows.isParent(row) && !isOpen ? this.toggle(row) : isOpen && to(row + 1)),
      ArrowLeft: () => (isOpen && this.rows.isParent(row) ? this.toggle(row) : this.toParent(row)),
      Enter: () => this.openInGraph(row),
      " ": () => this.openInGraph(row),
      "*": () => this.expandSiblings(row),
    };
  }

  private toParent(row: number): void {
    const { call, item } = this.rows.place(row);
    const parent = item < 0 ? this.rows.run.parent(call) : call;
    if (parent >= 0) this.page.select({ call: parent, item: -1 });
  }

  private openInGraph(row: number): void {
    if (this.rows.item[row]! < 0) this.page.toggle(this.rows.call[row]!);
  }

  private expandSiblings(row: number): void {
    const parent = this.rows.run.parent(this.rows.call[row]!);
    if (parent < 0) return;
    this.rows.expandAll(this.rows.run.children(parent));
    this.later();
  }
}

function rowAt(event: MouseEvent): number {
  const row = (event.target as Element).closest<HTMLElement>(".row");
  return row ? Number(row.dataset["row"]) : -1;
}

function chevron(isParent: boolean): HTMLElement {
  const icon = isParent ? svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("path", { d: "M3.5 2 6.5 5 3.5 8" })) : null;
  return el("span", { class: isParent ? "chevron" : "no-chevron" }, icon);
}
