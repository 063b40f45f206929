// The state as the part of the address after #, so that a link is a finding. Calls and operations are named as in
// Python, by path, number and operation: links to the same place of another run of the model work, too.

import type { Payload, Run } from "../payload";
import { START, VIEWS, type Place, type Side, type State, type Store, type View } from "../state";
import { wordsOf } from "./page";

let first: ReadonlySet<number> = START.open; // the calls that are open where an address names none

/** Say which calls are open at first, so that addresses need not name them. */
export function openFirst(open: ReadonlySet<number>): void {
  first = open;
}

const LONGEST_LIST = 400; // calls named as open; more would make an address that nobody can send

/** The text of a state; "" for the one at the beginning. */
export function hashOf(payload: Payload, state: State): string {
  const run = payload.runs[state.compareSide] ?? payload.run;
  const parts: [string, string][] = [];
  if (state.selected) parts.push(["select", nameOf(run, state.selected)]);
  if (!isDefaultOpen(state.open)) parts.push(["open", namesOfOpen(run, state.open)]);
  if (state.overlay) parts.push(["colour", state.overlay]);
  if (state.filter.length) parts.push(["without", state.filter.join(",")]);
  if (state.query) parts.push(["search", state.query]);
  if (state.view !== START.view) parts.push(["view", state.view]);
  if (payload.runs.length > 1 && state.compareSide !== payload.runs.length - 1) parts.push(["run", "a"]);
  return parts.map(([key, value]) => `${key}=${encoded(value)}`).join("&");
}

/** The state of an address; what it does not name, or names wrongly, is as at the beginning. */
export function stateOf(payload: Payload, hash: string): Partial<State> {
  const given = new Map(hash.replace(/^#/, "").split("&").map((part): [string, string] => {
    const cut = part.indexOf("=");
    return [part.slice(0, cut), decoded(part.slice(cut + 1))];
  }));
  const last = (payload.runs.length - 1) as Side;
  const compareSide: Side = given.get("run") === "a" ? 0 : last;
  const run = payload.runs[compareSide] ?? payload.run;
  const view = given.get("view") as View | undefined;
  return {
    compareSide,
    selected: placeOfName(run, given.get("select") ?? ""),
    open: openOf(run, given.get("open")),
    overlay: given.get("colour") ?? START.overlay,
    filter: given.get("without")?.split(",").filter(Boolean) ?? START.filter,
    query: given.get("search") ?? START.query,
    view: view && VIEWS.includes(view) ? view : START.view,
  };
}

/** Keep the address and the state equal, in both directions. */
export function keepHash(payload: Payload, store: Store): void {
  let own = location.hash.replace(/^#/, "");
  let waiting = 0;
  const write = (): void => {
    waiting = 0;
    const hash = hashOf(payload, store.get());
    if (hash === own) return;
    own = hash;
    try {
      history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    } catch {
      // a notebook's frame has no address of its own
    }
  };
  store.subscribe(() => (waiting ||= window.setTimeout(write, 150)));
  addEventListener("hashchange", () => {
    const hash = location.hash.replace(/^#/, "");
    if (hash === own) return;
    own = hash;
    store.set(stateOf(payload, hash));
  });
}

function nameOf(run: Run, place: Place): string {
  const call = run.id(place.call);
  if (place.item < 0) return call;
  const step = run.stepOf(place);
  return `${call}/${step < 0 ? place.item : run.step(step, place.call).name}`;
}

function placeOfName(run: Run, name: string): Place | null {
  if (!name) return null;
  const cut = name.indexOf("/", name.lastIndexOf("#"));
  const call = run.callOf(cut < 0 ? name : name.slice(0, cut));
  if (call < 0) return null;
  if (cut < 0) return { call, item: -1 };
  const wanted = name.slice(cut + 1);
  const items = run.body(call).items;
  const item = items.findIndex((one, i) => {
    const step = run.stepOf({ call, item: i });
    return step < 0 ? String(i) === wanted && one.kind !== "call" : run.step(step, call).name === wanted;
  });
  return item < 0 ? { call, item: -1 } : run.normal({ call, item });
}

function isDefaultOpen(open: ReadonlySet<number>): boolean {
  return open.size === first.size && [...first].every((call) => open.has(call));
}

// Calls by their numbers in the run, each as the distance to the one before: short, and exact for this very run.
function namesOfOpen(run: Run, open: ReadonlySet<number>): string {
  const calls = [...open].filter((call) => call < run.callCount).sort((a, b) => a - b).slice(0, LONGEST_LIST);
  return calls.map((call, i) => call - (calls[i - 1] ?? 0)).join(".");
}

function openOf(run: Run, text: string | undefined): ReadonlySet<number> {
  if (text === undefined) return first;
  let call = 0;
  const open = new Set<number>();
  for (const step of text.split(".").filter(Boolean).slice(0, LONGEST_LIST)) {
    call += Number(step);
    if (Number.isInteger(call) && call >= 0 && call < run.callCount) open.add(call);
  }
  return open;
}

// Characters that an address may have as they are stay readable: paths, globs, comparisons.
function encoded(text: string): string {
  return encodeURIComponent(text).replace(/%(?:20|2F|3A|3D|2C|3E|3C)/g, (code) => (code === "%20" ? "+" : code === "%3E" || code === "%3C" ? code : decodeURIComponent(code)));
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return "";
  }
}

/** A sentence about a place, for the title of the window. */
export function titleOf(payload: Payload, state: State): string {
  const run = payload.runs[state.compareSide] ?? payload.run;
  const place = state.selected;
  return place && (place.call || place.item >= 0) ? `${wordsOf(run, place).name} – ${payload.data.title}` : payload.data.title;
}
