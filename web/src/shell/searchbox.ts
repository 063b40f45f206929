// The search field: what was found stands below it in a list, and is lit in tree and graph.

import type { Run } from "../payload";
import type { Place } from "../state";
import { quantity } from "../units";
import { counted, el, fill, freshId, type Child } from "./dom";
import { SEARCHES } from "./keys";
import { idOf, wordsOf, type Page } from "./page";
import { type Hits, hitsOf, parsed, prepare } from "./search";

const SHOWN = 40; // results in the list
const REST = 60; // milliseconds without a key before tree and graph are lit, too

export class SearchBox {
  readonly element: HTMLElement;
  private readonly input: HTMLInputElement;
  private readonly list: HTMLElement;
  private readonly count: HTMLElement;
  private places: Place[] = [];
  private active = -1;
  private waiting = 0;
  private listed: { run: Run; query: string } | null = null;
  private readonly id = freshId("hit");

  constructor(private readonly page: Page) {
    const list = freshId("hits");
    this.input = el("input", {
      type: "search", role: "combobox", "aria-expanded": "false", "aria-controls": list, "aria-autocomplete": "list",
      "aria-label": "Search calls and operations", placeholder: "Search, or absmax > 100", autocomplete: "off", spellcheck: "false", enterkeyhint: "search",
      input: () => this.typed(), focus: () => this.open(), keydown: (event: KeyboardEvent) => this.key(event),
    });
    this.count = el("span", { class: "hit-count", role: "status" });
    this.list = el("div", { class: "hits", id: list, role: "listbox", "aria-label": "Found", hidden: true, mousedown: (event: Event) => event.preventDefault() });
    this.element = el("div", { class: "search", focusout: (event: FocusEvent) => this.left(event) },
      el("span", { class: "search-icon", "aria-hidden": "true" }), this.input, this.count, el("kbd", { "aria-hidden": "true" }, "/"), this.list);
    page.follow(["query", "compareSide"], (state) => {
      if (state.query !== this.input.value && !this.waiting) this.input.value = state.query;
      this.draw();
    });
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  /** Words are looked up at each key; a condition, which reads every number of the run, when the keys pause. */
  private typed(): void {
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    if (!parsed(this.input.value).condition) this.draw();
    clearTimeout(this.waiting);
    this.waiting = window.setTimeout(() => {
      this.waiting = 0;
      const { query } = this.page.store.get();
      this.page.store.set({ query: this.input.value });
      if (query === this.input.value) this.draw();
    }, REST);
  }

  private open(): void {
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    if (!this.waiting) this.draw();
    setTimeout(() => prepare(this.page.run));
  }

  private close(): void {
    this.list.hidden = true;
    this.listed = null;
    this.input.setAttribute("aria-expanded", "false");
    this.mark(-1);
  }

  private left(event: FocusEvent): void {
    if (!this.element.contains(event.relatedTarget as Node | null)) this.close();
  }

  private draw(): void {
    const query = this.input.value;
    const { run } = this.page;
    const hits = hitsOf(run, query);
    this.count.textContent = !query.trim() ? "" : hits.error ? "" : hits.count.toLocaleString("en-US");
    this.count.setAttribute("aria-label", query.trim() && !hits.error ? `${counted(hits.count, "result")}` : "");
    this.input.setAttribute("aria-invalid", String(Boolean(hits.error)));
    if (this.list.hidden || (this.listed?.run === run && this.listed.query === query)) return; // what is marked stays so
    this.listed = { run, query };
    this.active = -1;
    this.input.removeAttribute("aria-activedescendant");
    this.places = query.trim() ? placesOf(run, hits).slice(0, SHOWN) : [];
    fill(this.list, ...(query.trim() ? this.found(run, hits) : this.examples()));
  }

  private found(run: Run, hits: Hits): Child[] {
    if (hits.error) return [el("p", { class: "hint error", role: "alert" }, hits.error)];
    if (!hits.count) return [el("p", { class: "hint" }, "Nothing found")];
    const rest = hits.count - this.places.length;
    const parts = [hits.calls.length && counted(hits.calls.length, "call"), hits.steps.length && counted(hits.steps.length, "operation")].filter(Boolean);
    return [
      el("p", { class: "hint" }, parts.join(", "), hits.isCondition && el("button", { class: "link", type: "button", click: () => this.colour() }, "Colour by this condition")),
      ...this.places.map((place, i) => this.option(run, place, i, hits)),
      rest > 0 && el("p", { class: "hint" }, `${rest.toLocaleString("en-US")} more`),
    ];
  }

  private option(run: Run, place: Place, i: number, hits: Hits): HTMLElement {
    const words = wordsOf(run, place);
    const measure = hits.isCondition ? /[a-z][\w.]*/i.exec(hits.query)?.[0] ?? "" : "";
    const number = measure ? run.number(measure, place) : null;
    const unit = measure === "bytes" ? "B" : run.measure(measure)?.unit ?? "";
    return el("div", { class: `hit-row${place.item >= 0 ? " operation" : ""}`, role: "option", id: `${this.id}-${i}`, "aria-selected": "false", click: () => this.choose(i) },
      el("span", { class: "name" }, words.name), el("span", { class: "type" }, words.type),
      el("span", { class: "path" }, idOf(run, place)),
      el("span", { class: "shape" }, number === null ? words.shape : quantity(number, unit)));
  }

  private examples(): HTMLElement[] {
    const use = (text: string): void => {
      this.input.value = text;
      this.typed();
      this.input.focus();
    };
    return [
      el("p", { class: "hint" }, "Type a word, a pattern or a condition"),
      ...SEARCHES.map(([text, means]) => el("button", { class: "example", type: "button", tabindex: -1, click: () => use(text) }, el("code", null, text), el("span", null, means))),
    ];
  }

  private key(event: KeyboardEvent): void {
    const to = { ArrowDown: this.active + 1, ArrowUp: this.active - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      if (this.list.hidden) this.open();
      this.mark(Math.max(-1, Math.min(this.places.length - 1, to)));
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.waiting) this.draw();
      if (this.places.length) this.choose(Math.max(0, this.active));
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (!this.list.hidden && this.input.value) this.close();
      else {
        this.input.value = "";
        this.typed();
        this.close();
        this.input.blur();
      }
    }
  }

  private mark(i: number): void {
    this.option_(this.active)?.setAttribute("aria-selected", "false");
    this.active = i;
    const option = this.option_(i);
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) this.input.setAttribute("aria-activedescendant", option.id);
    else this.input.removeAttribute("aria-activedescendant");
  }

  private option_(i: number): HTMLElement | null {
    return i < 0 ? null : this.list.querySelector(`#${this.id}-${i}`);
  }

  private choose(i: number): void {
    const place = this.places[i];
    if (!place) return;
    this.page.store.set({ query: this.input.value });
    this.page.select(place);
    this.mark(i);
  }

  private colour(): void {
    this.page.store.set({ overlay: `where: ${this.input.value.trim()}`, filter: [] });
    this.close();
  }
}

/** The places of hits in execution order, a call before the operations in it. */
export function placesOf(run: Run, hits: Hits): Place[] {
  const found: Place[] = [];
  let step = 0;
  const { calls, steps } = hits;
  const first = run.data.calls.firstStep;
  for (const call of calls) {
    for (; step < steps.length && steps[step]! < first[call]!; step++) found.push(run.placeOfStep(steps[step]!));
    found.push({ call, item: -1 });
    if (found.length > 4 * SHOWN) return found;
  }
  for (; step < steps.length && found.length <= 4 * SHOWN; step++) found.push(run.placeOfStep(steps[step]!));
  return found;
}
