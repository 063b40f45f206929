// The frame of the page: header, tree, views, panel; narrow screens show one of them at a time.

import { measuresOf } from "../canvas/overlay";
import type { Payload } from "../payload";
import { THEMES, type Store, type View } from "../state";
import { counted, el, fill } from "./dom";
import { keepHash, titleOf } from "./hash";
import { callLink } from "./links";
import { addShortcuts, helpDialog, listenToKeys, showHelp } from "./keys";
import { operationCount, Page } from "./page";
import { Panel } from "./panel";
import { when } from "./run_facts";
import { SearchBox } from "./searchbox";
import { sizer } from "./sizer";
import { followTheme } from "./theme";
import { Tree } from "./tree";
import { SEVERAL } from "./views/training";
import { viewsOf, type ViewPart } from "./views";

export interface Frame {
  readonly page: Page;
  readonly stage: HTMLElement; // the graph fills it
  readonly tree: Tree;
  /** Say something to people who do not see the page. */
  announce(text: string): void;
}

export function buildFrame(payload: Payload, store: Store): Frame {
  const page = new Page(payload, store);
  const tree = new Tree(page);
  const panel = new Panel(page);
  const search = new SearchBox(page);
  const stage = el("div", { class: "stage" });
  const views = viewsOf(page, stage);
  const help = helpDialog();
  const voice = el("div", { class: "unseen", "aria-live": "polite" });
  const main = el("main", { class: "main", "aria-label": "Views" }, tabs(page, views), ...views.map((view) => view.host));
  const body = el("div", { class: "page", "data-pane": "main" },
    header(page, search, () => showHelp(help)), verdictNote(page), partialNote(page),
    el("div", { class: "columns" },
      tree.element, sizer(tree.element, "left", "Width of the tree"), main, sizer(panel.element, "right", "Width of the details"), panel.element),
    paneBar((pane) => (body.dataset["pane"] = pane)), help, voice);
  if (page.payload.run.data.reports.some(({ analysis }) => analysis === SEVERAL)) body.classList.add("without-tree", "without-panel"); // no calls
  document.body.replaceChildren(body);
  showViews(page, views);
  followTheme(store);
  keepHash(payload, store);
  page.follow(["selected", "compareSide"], (state) => (document.title = titleOf(payload, state)));
  addShortcuts(...shortcutsOf(page, { tree, panel, search, views, body, help }));
  listenToKeys();
  return { page, stage, tree, announce: (text) => (voice.textContent = text) };
}

// Header ---------------------------------------------------------------------------------------------------

function header(page: Page, search: SearchBox, help: () => void): HTMLElement {
  const colour = el("label", { class: "colour" }, el("span", null, "Colour by"), colourSelect(page));
  const themes = el("button", { class: "icon theme", type: "button", click: () => nextTheme(page) });
  page.follow(["theme"], ({ theme }) => {
    const label = theme === "auto" ? "Theme: as the system" : `Theme: ${theme}`;
    themes.dataset["shows"] = theme;
    themes.title = label;
    themes.setAttribute("aria-label", label);
  });
  return el("header", { class: "top" },
    el("div", { class: "title" }, el("h1", null, page.payload.data.title), el("p", null, summary(page))),
    page.payload.data.live && el("a", { class: "link all-runs", href: "/" }, "All runs"),
    sides(page), search.element, colour,
    el("div", { class: "icons" }, themes, el("button", { class: "icon", type: "button", title: "Keys and search (?)", "aria-label": "Keys and search", click: help }, "?")));
}

function summary(page: Page): string {
  const { data } = page.payload.run;
  const torch = data.versions.find(([name]) => name === "torch");
  return [
    counted(page.payload.run.callCount, "call"),
    data.hasGraphs && counted(operationCount(page.payload.run), "operation"),
    torch && `torch ${torch[1]}`,
    when(data.started),
  ].filter(Boolean).join(" · ");
}

function nextTheme(page: Page): void {
  const { theme } = page.store.get();
  page.store.set({ theme: THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]! });
}

/** Buttons to look at one or the other run of a comparison. */
function sides(page: Page): HTMLElement | null {
  if (page.payload.runs.length < 2) return null;
  const buttons = page.payload.runs.map((run, side) =>
    el("button", { type: "button", title: run.data.folder || run.data.model, click: () => page.store.set({ compareSide: side as 0 | 1, selected: null }) }, side ? "Run b" : "Run a"));
  page.follow(["compareSide"], ({ compareSide }) => buttons.forEach((button, side) => button.setAttribute("aria-pressed", String(side === compareSide))));
  return el("div", { class: "sides", role: "group", "aria-label": "Run that the tree and the details show" }, ...buttons);
}

function colourSelect(page: Page): HTMLSelectElement {
  const select = el("select", { change: () => page.store.set({ overlay: select.value, filter: [] }) });
  const option = (value: string, text: string, title = ""): HTMLOptionElement => el("option", { value, title: title || undefined }, text);
  page.follow(["overlay", "compareSide"], ({ overlay }) => {
    const { run, payload } = page;
    const groups = [
      ...(payload.comparison ? [option("error", "error of the comparison"), option("verdict", "verdict of the comparison")] : []),
      ...(run.data.hasGraphs ? [option("status", "status of the graph")] : []),
      ...(run.data.findings.length ? [option("findings", "findings")] : []),
    ];
    const measures = measuresOf(run).map(({ name, title, about }) => option(name, title, about));
    fill(select, option("", "kind of module"), ...groups, measures.length > 0 && el("optgroup", { label: "Measures" }, ...measures),
      overlay.startsWith("where:") && option(overlay, overlay.slice(6).trim()));
    select.value = overlay;
  });
  return select;
}

/** A line below the header of two runs: are they equal, where do they differ first, and why? */
function verdictNote({ payload: { comparison } }: Page): HTMLElement | null {
  return comparison && el("div", { class: `banner is-${comparison.tone}`, role: "status" }, ...comparison.headline.map((line, i) => el(i ? "span" : "b", null, line)));
}

/** A line below the header for a run that raised, or is not whole. */
function partialNote(page: Page): HTMLElement | null {
  const { run } = page.payload;
  const raised = run.raisedIn(0), failure = raised < 0 ? null : run.failure(raised);
  if (!failure && !run.data.partial) return null;
  return el("div", { class: "banner", role: "status" },
    failure && el("span", null, el("b", null, failure.type), failure.message && `: ${failure.message}`),
    failure && callLink(page, run, raised, `raised in ${run.path(raised) || run.data.model}`),
    !failure && el("span", null, run.data.partial));
}

// Views and panes --------------------------------------------------------------------------------------------

function tabs(page: Page, views: readonly ViewPart[]): HTMLElement | null {
  if (views.length < 2) return null;
  const buttons = views.map((view) => el("button", {
    type: "button", role: "tab", "data-view": view.name, "aria-controls": view.host.id, id: `${view.host.id}-tab`,
    click: () => page.store.set({ view: view.name }),
  }, view.title, view.count > 0 && el("span", { class: "count" }, String(view.count))));
  const list = el("div", { class: "tabs", role: "tablist", "aria-label": "Views", keydown: (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = views.findIndex((view) => view.name === page.store.get().view);
    const next = (at + step + views.length) % views.length;
    page.store.set({ view: views[next]!.name });
    buttons[next]!.focus();
    event.preventDefault();
    event.stopPropagation();
  } }, ...buttons);
  page.follow(["view"], ({ view }) => buttons.forEach((button, i) => {
    button.setAttribute("aria-selected", String(views[i]!.name === view));
    button.tabIndex = views[i]!.name === view ? 0 : -1;
  }));
  return list;
}

/** Show the chosen view; build it when it is first shown. */
function showViews(page: Page, views: readonly ViewPart[]): void {
  const built = new Set<View>();
  page.follow(["view"], ({ view }) => {
    const shown = views.find((one) => one.name === view) ?? views[0]!;
    for (const one of views) one.host.hidden = one !== shown;
    if (built.has(shown.name)) return;
    built.add(shown.name);
    shown.build();
  });
}

function paneBar(show: (pane: string) => void): HTMLElement {
  const panes = [["tree", "Tree"], ["main", "Graph"], ["panel", "Details"]] as const;
  const buttons = panes.map(([pane, text]) => el("button", { type: "button", "aria-pressed": String(pane === "main"), click: () => {
    show(pane);
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(panes[i]![0] === pane)));
  } }, text));
  return el("nav", { class: "pane-bar", "aria-label": "Parts of the page" }, ...buttons);
}

interface Parts {
  readonly tree: Tree;
  readonly panel: Panel;
  readonly search: SearchBox;
  readonly views: readonly ViewPart[];
  readonly body: HTMLElement;
  readonly help: HTMLDialogElement;
}

function shortcutsOf(page: Page, { tree, panel, search, views, body, help }: Parts): Parameters<typeof addShortcuts> {
  const hide = (name: string): void => void body.classList.toggle(`without-${name}`);
  const inTree = "In the tree";
  return [
    { keys: ["/"], does: "Search", group: "Page", run: () => search.focus() },
    { keys: ["t"], does: "Go to the tree", group: "Page", run: () => tree.focus() },
    { keys: ["d"], does: "Go to the details", group: "Page", run: () => panel.element.focus() },
    ...views.slice(0, 9).map((view, i) => ({ keys: [String(i + 1)], does: `Show ${view.title}`, group: "Page", run: () => page.store.set({ view: view.name }) })),
    { keys: ["["], does: "Hide or show the tree", group: "Page", run: () => hide("tree") },
    { keys: ["]"], does: "Hide or show the details", group: "Page", run: () => hide("panel") },
    { keys: ["T"], does: "Light, dark, or as the system", group: "Page", run: () => nextTheme(page) },
    { keys: ["?"], does: "This help", group: "Page", run: () => showHelp(help) },
    { keys: ["ArrowUp", "ArrowDown"], does: "Previous, next", group: inTree },
    { keys: ["ArrowRight", "ArrowLeft"], does: "Expand or go inside, collapse or go outside", group: inTree },
    { keys: ["Home", "End"], does: "First, last", group: inTree },
    { keys: ["*"], does: "Expand all calls beside this one", group: inTree },
    { keys: ["Enter"], does: "Open in the graph, or close", group: inTree },
  ];
}
