// What is worth knowing about the run: findings, the exception, notes, modules that were never called, graphs that are
// not verified, and what the graphs assume.

import type { Run } from "../../payload";
import { sourcePlace } from "../code";
import { counted, el, fill, type Child } from "../dom";
import { findingCard } from "../finding_card";
import { idOf, placeOf, type Page } from "../page";
import { callLink } from "../links";
import { digits } from "../../units";
import { VERDICT_MEANS } from "../pairs";
import { VERDICTS } from "../../payload";

const MANY = 60; // of one list; the rest is behind a button

export function findingCount(page: Page): number {
  return page.payload.run.data.findings.length + (page.payload.comparison?.findings.length ?? 0);
}

export function buildFindings(page: Page, host: HTMLElement): void {
  page.follow(["compareSide"], () => fill(host, el("div", { class: "reading-column" }, ...sections(page, page.run))));
}

function sections(page: Page, run: Run): Child[] {
  const { findings, notes, neverCalled } = run.data;
  const parts = [
    compared(page),
    raised(page, run),
    group("Findings", findings.map((finding) => () => findingCard(page, run, finding))),
    group("Never called", neverCalled.map(([path, type]) => () => el("p", { class: "line" }, el("code", null, path), el("span", { class: "type" }, type))), "Modules that the model has and this run did not call."),
    group("Graphs that are not verified", notVerified(page, run), "Their operations ran as shown; the graph may not hold for other inputs."),
    group("What the graphs assume", guards(page, run), "Answers that the code asked for. With other answers it may run other operations."),
    group("Notes", notes.map((note) => () => noteLine(page, run, note.what, note.where, note.call))),
  ].filter(Boolean);
  return parts.length ? parts : [el("p", { class: "empty" }, "Nothing to report: no finding, no note, every module was called, every graph is verified.")];
}

function group(title: string, items: readonly (() => HTMLElement)[], about = ""): HTMLElement | null {
  if (!items.length) return null;
  const list = el("div", { class: "group-items" }, ...items.slice(0, MANY).map((make) => make()));
  const rest = items.slice(MANY);
  const more = rest.length > 0 && el("button", { type: "button", class: "more", click: (event: MouseEvent) => {
    list.append(...rest.map((make) => make()));
    (event.currentTarget as HTMLElement).remove();
  } }, `Show ${counted(rest.length, "more", "more")}`);
  return el("section", { class: "group" }, el("h3", null, title, el("span", { class: "count" }, String(items.length))), about && el("p", { class: "about" }, about), list, more);
}

function raised(page: Page, run: Run): HTMLElement | null {
  const calls = Array.from({ length: run.callCount }, (_, call) => call).filter((call) => run.failure(call)?.here);
  return group("Exception", calls.map((call) => () => {
    const failure = run.failure(call)!;
    return el("article", { class: "finding error" },
      el("header", null, el("span", { class: "severity" }, failure.type), callLink(page, run, call, idOf(run, { call, item: -1 }))),
      el("p", null, failure.message), failure.source && sourcePlace(failure.source));
  }));
}

function notVerified(page: Page, run: Run): (() => HTMLElement)[] {
  const byReason = new Map<string, number[]>();
  for (let call = 0; call < run.callCount; call++) {
    const status = run.status(call);
    if (status !== "recorded" && status !== "opaque") continue;
    const key = `${status}\n${run.reason(call)}`;
    const known = byReason.get(key);
    if (known) known.push(call);
    else byReason.set(key, [call]);
  }
  return [...byReason].map(([key, calls]) => () => {
    const [status, reason] = key.split("\n") as [string, string];
    const links = calls.slice(0, 6).map((call) => callLink(page, run, call, idOf(run, { call, item: -1 })));
    return el("article", { class: "plain-card" }, el("header", null, el("span", { class: `chip ${status}` }, status), ...links, calls.length > 6 && el("span", { class: "remarks" }, `and ${calls.length - 6} more`)), reason && el("p", null, reason));
  });
}

function guards(page: Page, run: Run): (() => HTMLElement)[] {
  const asked = new Map<string, { text: string; answer: string; source: string; calls: number[] }>();
  for (let call = 0; call < run.callCount; call++) {
    for (const guard of run.guards(call)) {
      const key = `${guard.what}\n${guard.answer}\n${guard.source}`;
      const known = asked.get(key);
      if (known) known.calls.push(call);
      else asked.set(key, { text: guard.what, answer: guard.answer, source: guard.source, calls: [call] });
    }
  }
  return [...asked.values()].map(({ text, answer, source, calls }) => () => {
    const line = source && run.line(source);
    return el("article", { class: "plain-card" },
      el("p", null, el("code", null, text), ` is ${answer}, in `, callLink(page, run, calls[0]!, idOf(run, { call: calls[0]!, item: -1 })), calls.length > 1 && ` and ${calls.length - 1} more`),
      source && sourcePlace(source), line && el("code", { class: "inline" }, line.trim()));
  });
}

function noteLine(page: Page, run: Run, what: string, where: string, call: number): HTMLElement {
  return el("p", { class: "line" }, what, " ", call >= 0 ? callLink(page, run, call, idOf(run, { call, item: -1 })) : where && el("code", null, where));
}

/** The findings of a comparison: where error is added, the first one first. */
function compared(page: Page): HTMLElement | null {
  const { comparison } = page.payload;
  if (!comparison) return null;
  const { rows } = comparison;
  const run = page.payload.run;
  const cards = comparison.findings.map((row, i) => () => {
    const call = rows.bCall[row]!;
    const place = call < 0 ? null : placeOf(run, call, rows.bStep[row]!);
    const verdict = VERDICTS[rows.verdict[row]!]!;
    const kind = rows.kind[row]! < 0 ? "" : comparison.kindNames[rows.kind[row]!]!;
    const because = run.text(rows.because[row]!);
    return el("article", { class: `finding ${verdict === "adds" ? "error" : "warning"}` },
      el("header", null, el("span", { class: "severity" }, kind || VERDICT_MEANS[verdict]), i === 0 && el("span", { class: "chip" }, "first"),
        place && el("button", { class: "link place", type: "button", click: () => page.select(place, 1) }, idOf(run, place))),
      because && el("p", null, because),
      kind && comparison.kinds[kind] && el("p", { class: "advice-text" }, comparison.kinds[kind]),
      !Number.isNaN(rows.error[row]!) && el("p", { class: "remarks" }, `error ${digits(rows.error[row]!, 3)}, tolerance ${digits(rows.tolerance[row]!, 3)}`));
  });
  return el("div", null,
    el("section", { class: "group" }, el("h3", null, "Comparison"), el("pre", { class: "code screen" }, comparison.summary.join("\n")), ...comparison.notes.map((line) => el("p", { class: "remarks" }, line))),
    group("Where error is added", cards));
}
