// Python code with a quiet colour for what is not a name: a line of the model, or the graph of a call.

import { el, shown } from "./dom";

const TOKEN =
  /(?<comment>#.*)|(?<text>[rfbu]{0,2}(?:"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(?<number>\b\d[\d_.]*(?:e[+-]?\d+)?j?\b)|(?<word>\b(?:def|return|if|elif|else|for|in|not|and|or|is|None|True|False|self|lambda|with|as|import|from|class|raise|yield|while|async|await|del|pass|try|except)\b)/gi;

/** Code in lines; `mark` is the line to stress, from 0. */
export function code(text: string, mark = -1): HTMLElement {
  const lines = text.replace(/\n+$/, "").split("\n");
  const rows = lines.map((line, i) => {
    const row = el("span", { class: i === mark ? "line marked" : "line" });
    row.append(...coloured(line), "\n");
    return row;
  });
  return el("pre", { class: "code", tabindex: 0 }, ...rows);
}

function coloured(line: string): (Node | string)[] {
  const pieces: (Node | string)[] = [];
  let at = 0;
  for (const match of line.matchAll(TOKEN)) {
    if (match.index > at) pieces.push(shown(line.slice(at, match.index)));
    const kind = Object.entries(match.groups!).find(([, text]) => text !== undefined)![0];
    pieces.push(el("span", { class: `code-${kind}` }, match[0]));
    at = match.index + match[0].length;
  }
  if (at < line.length) pieces.push(shown(line.slice(at)));
  return pieces;
}

/** The line of a graph's code that makes a step; -1 if it is not found. */
export function lineOfStep(text: string, name: string): number {
  return text.split("\n").findIndex((line) => line.trimStart().startsWith(`${name} =`) || line.trimStart().startsWith(`${name}:`));
}

/** A line of a file, as `modeling_gpt2.py:371`; the whole path is its title. */
export function sourcePlace(source: string): HTMLElement {
  return el("div", { class: "where", title: source }, source.replace(/^.*[/\\]/, ""));
}
