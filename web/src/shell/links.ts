// Links to calls and operations.

import type { Run } from "../payload";
import type { Place } from "../state";
import { el, pathText } from "./dom";
import { idOf, wordsOf, type Page } from "./page";

/** A button that chooses a call or operation. */
export function placeLink(page: Page, run: Run, place: Place, text = wordsOf(run, place).name): HTMLElement {
  return el("button", { class: "link", type: "button", title: idOf(run, place), click: () => page.select(place) }, pathText(text));
}

/** The same for a call, by its path; plain text for none. */
export function callLink(page: Page, run: Run, call: number, text = run.path(call) || run.data.model): HTMLElement {
  return call < 0 ? el("span", null, pathText(text)) : placeLink(page, run, { call, item: -1 }, text);
}
