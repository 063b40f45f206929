// The panel: everything that is known about the chosen call or operation.

import { statisticsAt, type Finding, type Run } from "../payload";
import type { Place } from "../state";
import { quantity, whole } from "../units";
import { code, lineOfStep, sourcePlace } from "./code";
import { counted, el, fill, type Child } from "./dom";
import { findingCard } from "./finding_card";
import { callLink, placeLink } from "./links";
import { around, placeOf, wordsOf, type Page } from "./page";
import { comparedPlace, counterpartOf } from "./pairs";
import { runFacts } from "./run_facts";
import { plainItem, statistics, tensor } from "./tensors";

export class Panel {
  readonly element: HTMLElement;
  private readonly body: HTMLElement;

  constructor(private readonly page: Page) {
    this.body = el("div", { class: "panel-body" });
    this.element = el("aside", { class: "panel", "aria-label": "Details", tabindex: -1 }, this.body);
    page.follow(["selected", "compareSide"], () => this.draw());
  }

  private draw(): void {
    const place = this.page.selected ?? { call: 0, item: -1 };
    fill(this.body, ...sectionsOf(this.page, this.page.run, place));
    this.element.scrollTop = 0;
  }
}

function sectionsOf(page: Page, run: Run, place: Place): Child[] {
  const isCall = place.item < 0;
  return [
    heading(page, run, place),
    failureOf(page, run, place),
    isCall && reasonOf(run, place.call),
    findingsOf(page, run, place),
    isCall && notesOf(run, place.call),
    comparedPlace(page, run, place),
    sourceOf(run, place),
    ...(isCall ? callTensors(page, run, place.call) : stepTensors(page, run, place)),
    links(page, run, "Producers", run.producers(place)),
    links(page, run, "Consumers", run.consumers(place)),
    isCall && parametersOf(run, place.call),
    measuresOf(page, run, place),
    isCall && guardsOf(run, place.call),
    isCall && neverCalled(run, place.call),
    graphCode(run, place),
    isCall && place.call === 0 && runFacts(run),
  ];
}

/** A section of the panel; nothing where it would be empty. */
export function section(title: string, ...children: Child[]): HTMLElement | null {
  const all = children.filter(Boolean);
  return all.length ? el("section", null, el("h3", null, title), ...all) : null;
}

// What it is ---------------------------------------------------------------------------------------------

function heading(page: Page, run: Run, place: Place): HTMLElement {
  const words = wordsOf(run, place);
  const crumbs = around(run, place).map((call) => callLink(page, run, call, wordsOf(run, { call, item: -1 }).name));
  const isCall = place.item < 0;
  const step = isCall ? -1 : run.stepOf(place);
  const type = isCall ? words.type : step < 0 ? "" : run.step(step, place.call).target;
  return el("header", { class: "panel-head" },
    crumbs.length > 0 && el("nav", { class: "crumbs", "aria-label": "Modules around it" }, ...crumbs),
    el("h2", null, words.name, type && type !== words.name && el("span", { class: "type" }, type)),
    isCall && el("div", { class: "chips" }, ...chips(run, place.call)),
    isCall && sameForward(page, run, place.call),
  );
}

const STATUS_MEANS: Readonly<Record<string, string>> = {
  verified: "Its graph was traced symbolically and matched, operation by operation, with what ran",
  recorded: "Its graph has the operations that ran, with the constants of this run",
  opaque: "Nothing inside can be seen",
};

function chips(run: Run, call: number): HTMLElement[] {
  const status = run.status(call);
  const { flags, method, number } = run.data.calls;
  const chip = (text: string, name = "", title = ""): HTMLElement => el("span", { class: `chip ${name}`, title: title || undefined }, text);
  const forward = run.text(method[call]!);
  return [
    run.failure(call) && chip("raised", "raised"),
    status && chip(status, status, STATUS_MEANS[status]),
    (flags[call]! & 1) > 0 && chip("training"),
    (flags[call]! & 2) === 0 && chip("no grad"),
    (flags[call]! & 4) > 0 && chip("registered late", "", "The module was registered during the run"),
    (flags[call]! & 8) > 0 && chip("not registered", "", "No parent has registered the module"),
    forward && forward !== "forward" && chip(`.${forward}()`),
    number[call]! > 0 && chip(`call ${number[call]! + 1}`, "", "This module was called before"),
  ].filter((one): one is HTMLElement => Boolean(one));
}

/** Calls with the same forward in the same call: the other layers of a stack. */
function sameForward(page: Page, run: Run, call: number): HTMLElement | null {
  const parent = run.parent(call);
  const body = run.data.calls.body[call]!;
  if (parent < 0 || body < 0) return null;
  const type = run.data.calls.type[call];
  const same = run.children(parent).filter((one) => run.data.calls.body[one] === body && run.data.calls.type[one] === type);
  if (same.length < 2) return null;
  const at = same.indexOf(call);
  const step = (to: number, text: string, label: string): HTMLElement | null => {
    const other = same[to];
    return other === undefined ? null : el("button", { class: "link", type: "button", "aria-label": `${label}: ${run.name(other)}`, click: () => page.select({ call: other, item: -1 }) }, text);
  };
  return el("div", { class: "same" }, step(at - 1, "‹", "Previous"), el("span", null, `${at + 1} of ${same.length} with the same forward`), step(at + 1, "›", "Next"));
}

function failureOf(page: Page, run: Run, place: Place): HTMLElement | null {
  const failure = place.item < 0 ? run.failure(place.call) : null;
  if (!failure) return null;
  const line = failure.source && run.line(failure.source);
  return el("section", { class: "failure", role: "note" },
    el("h3", null, failure.here ? "Raised here" : "An exception passed through"),
    el("p", { class: "message" }, el("b", null, failure.type), failure.message && `: ${failure.message}`),
    !failure.here && innermost(page, run, place.call),
    failure.source && sourcePlace(failure.source),
    line && code(line.trim()),
    failure.traceback && el("details", null, el("summary", null, "Traceback"), el("pre", { class: "code" }, failure.traceback)),
  );
}

/** The call inside another that raised the exception. */
function innermost(page: Page, run: Run, call: number): HTMLElement | null {
  const inner = run.raisedIn(call);
  return inner === call ? null : el("p", null, "raised in ", callLink(page, run, inner));
}

function reasonOf(run: Run, call: number): HTMLElement | null {
  const reason = run.reason(call);
  const status = run.status(call);
  if (status === "verified" && run.guards(call).length) return null; // they are listed, with their lines
  const title = status === "opaque" || status === "recorded" ? `Why it is ${status}` : "Holds while";
  return reason ? section(title, el("p", null, reason)) : null;
}

function findingsOf(page: Page, run: Run, place: Place): HTMLElement | null {
  const here = run.data.findings.filter((finding) => isAt(run, finding, place));
  return here.length ? el("section", { class: "findings-here" }, ...here.map((finding) => findingCard(page, run, finding, false))) : null;
}

function isAt(run: Run, finding: Finding, place: Place): boolean {
  const at = placeOf(run, finding.call, finding.step);
  return (at.call === place.call && at.item === place.item) || finding.others.some(([call, step]) => {
    const other = placeOf(run, call, step);
    return other.call === place.call && other.item === place.item;
  });
}

function sourceOf(run: Run, place: Place): HTMLElement | null {
  const step = run.stepOf(place);
  const source = place.item < 0 ? run.source(place.call) : step < 0 ? "" : run.step(step, place.call).source;
  if (!source) return null;
  const line = run.line(source);
  return section("Source", sourcePlace(source), line && code(line.trim()));
}

// What went in and out -----------------------------------------------------------------------------------

function callTensors(page: Page, run: Run, call: number): Child[] {
  const ports = run.ports(call);
  const listed = (kind: string): HTMLElement[] =>
    ports.filter((port) => port.kind === kind).map((port) =>
      port.value < 0 ? plainItem(port.slot, port.text) : tensor(run, port.value, port.slot, counterpartOf(page, run, { call, item: -1 }, port.value)));
  return [
    section("Outputs", ...folded(listed("output"), 3)),
    section("Outputs, as hooks returned them", ...folded(listed("returned"), 3)),
    section("Inputs", ...folded(listed("input"), 6)),
    section("Inputs, before hooks", ...folded(listed("given"), 6)),
  ];
}

function stepTensors(page: Page, run: Run, place: Place): Child[] {
  const step = run.stepOf(place);
  if (step < 0) return [];
  const outputs = run.valuesOfStep(step).map((value, i, all) => tensor(run, value, all.length > 1 ? `[${i}]` : "", counterpartOf(page, run, place, value)));
  const { text, op } = run.step(step, place.call);
  const operands = run.operands(step).map(({ value, name }) => tensor(run, value, run.facts(value).name || name, counterpartOf(page, run, place, value)));
  return [
    text && section("Operation", code(`${op}(${text})`)),
    section(outputs.length > 1 ? "Results" : "Result", ...folded(outputs, 3)),
    section("Operands", ...folded(operands, 6)),
  ];
}

/** The first of many, and the rest behind a line that opens them. */
function folded(all: HTMLElement[], few: number): HTMLElement[] {
  if (all.length <= few + 1) return all;
  return [...all.slice(0, few), el("details", { class: "rest" }, el("summary", null, `${all.length - few} more`), ...all.slice(few))];
}

const FEW = 12;

function links(page: Page, run: Run, title: string, places: readonly Place[]): HTMLElement | null {
  const item = (place: Place): HTMLElement => {
    const isInput = place.item < 0 && place.call === 0;
    const words = wordsOf(run, place);
    return el("li", null, isInput ? el("span", null, "input of the model") : placeLink(page, run, place), el("span", { class: "type" }, words.type), el("span", { class: "shape" }, words.shape));
  };
  return section(title, places.length > 0 && el("ul", { class: "links" }, ...folded(places.map(item), FEW)));
}

function parametersOf(run: Run, call: number): HTMLElement | null {
  const all = run.data.parameters;
  const blocks = run.parametersOf(call).map((i) => {
    const names = all.names[i] as string[];
    const own = names[0]!.slice(names[0]!.lastIndexOf(".") + 1);
    const said = [
      run.text(all.dtype[i]!),
      run.text(all.device[i]!),
      all.kind[i] ? "buffer" : all.requiresGrad[i] ? "" : "frozen",
      all.changed[i] ? "changed by the run" : "",
      run.text(all.sharding[i]!),
      names.length > 1 ? `also ${names.slice(1).join(", ")}` : "",
    ].filter(Boolean);
    const stats = statisticsAt(all.statistics, i);
    return el("div", { class: "tensor" },
      el("div", { class: "tensor-head" }, el("code", { class: "slot" }, own), el("span", { class: "shape" }, run.text(all.shape[i]!))),
      el("div", { class: "remarks" }, said.join(" · ")),
      stats && statistics(stats),
    );
  });
  return section("Parameters", ...folded(blocks, 6));
}

const IN_STATISTICS = new Set("count mean std min max absmax nan posinf neginf inf zeros finite numel ndim requires_grad bytes".split(" "));

function measuresOf(page: Page, run: Run, place: Place): HTMLElement | null {
  const { overlay } = page.store.get();
  const rows = run.data.measures.filter((measure) => !IN_STATISTICS.has(measure.name)).flatMap((measure) => {
    const number = run.number(measure.name, place);
    if (number === null) return [];
    const colour = (): void => page.store.set({ overlay: page.store.get().overlay === measure.name ? "" : measure.name });
    return [el("tr", { title: `${measure.about}${measure.by ? ` (${measure.by})` : ""}` },
      el("th", { scope: "row" }, el("button", { class: "link", type: "button", "aria-pressed": String(overlay === measure.name), "aria-label": `Colour by ${measure.name}`, click: colour }, measure.name)),
      el("td", null, !measure.unit && Number.isInteger(number) ? whole(number) : quantity(number, measure.unit)))];
  });
  return section("Measures", rows.length > 0 && el("table", { class: "measures" }, el("tbody", null, ...rows)));
}

function guardsOf(run: Run, call: number): HTMLElement | null {
  const guards = run.guards(call);
  if (!guards.length) return null;
  const items = guards.map((guard) => el("li", null, el("code", null, guard.what), ` is ${guard.answer}`, guard.source && sourcePlace(guard.source)));
  return section("The graph assumes", el("ul", { class: "guards" }, ...items));
}

/** The modules in a call that were never called: the outermost of them. */
function neverCalled(run: Run, call: number): HTMLElement | null {
  const missing = run.data.neverCalled.filter((one) => one[2] === call).map(([path, type]) => el("li", null, el("code", null, path), el("span", { class: "type" }, type)));
  return section("Never called", missing.length > 0 && el("ul", { class: "links" }, ...folded(missing, FEW)));
}

function notesOf(run: Run, call: number): HTMLElement | null {
  return section("Notes", ...folded(run.notes(call).map((note) => el("p", null, note.what, note.where && call === 0 && el("span", { class: "type" }, note.where))), 4));
}

function graphCode(run: Run, place: Place): HTMLElement | null {
  const text = run.code(place.call);
  if (!text) return null;
  const step = run.stepOf(place);
  const mark = step < 0 ? -1 : lineOfStep(text, run.step(step, place.call).name);
  const count = counted(text.trim().split("\n").length, "line");
  return section("Graph", el("details", { open: mark >= 0 || undefined }, el("summary", null, `As Python, ${count}`), code(text, mark)));
}
