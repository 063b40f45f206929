/** The bodies of a run from the lists that Python writes, decoded when they are asked for. */

import type { Bodies, Body, Edge, Item, Kind } from "../bodies";

const KINDS: readonly Kind[] = ["operation", "views", "structure", "call"];

/** The bodies of a run as lists: those of `BodiesData` in payload.ts, and the texts that they refer to. */
export interface BodyLists {
  root: number;
  texts: string[];
  title: number[];
  firstInput: number[];
  firstItem: number[];
  firstOutput: number[];
  inputName: number[];
  inputShape: number[];
  kind: number[];
  label: number[];
  type: number[];
  shape: number[];
  body: number[];
  /** The position in the graph, -1 in a body without one. */
  step: number[];
  health: number[];
  firstEdge: number[];
  from: number[];
  argument: number[];
  output: number[];
  outputFrom: number[];
  outputOutput: number[];
  outputName: number[];
}

/** Return the bodies of some lists. */
export function bodiesOf(lists: BodyLists): Bodies {
  const known: Body[] = [];
  return { root: lists.root, count: lists.title.length, body: (index) => (known[index] ??= bodyOf(lists, index)) };
}

function bodyOf(lists: BodyLists, index: number): Body {
  const text = (position: number) => (position < 0 ? "" : lists.texts[position]!);
  const items: Item[] = range(lists.firstItem, index).map((at) => ({
    kind: KINDS[lists.kind[at]!]!,
    label: text(lists.label[at]!),
    type: text(lists.type[at]!),
    shape: text(lists.shape[at]!),
    body: lists.body[at]!,
    times: 1,
    health: lists.health[at]!,
    edges: range(lists.firstEdge, at).map((edge): Edge => ({ from: lists.from[edge]!, argument: lists.argument[edge]!, output: lists.output[edge]! })),
  }));
  return {
    title: text(lists.title[index]!),
    inputs: range(lists.firstInput, index).map((at) => ({ name: text(lists.inputName[at]!), shape: text(lists.inputShape[at]!) })),
    items,
    whole: lists.firstOutput[index] !== lists.firstOutput[index + 1] && range(lists.firstItem, index).slice(0, 1).every((at) => lists.step[at]! >= 0),
    outputs: range(lists.firstOutput, index).map((at) => ({
      from: lists.outputFrom[at]!, output: lists.outputOutput[at]!, name: text(lists.outputName[at]!),
    })),
  };
}

function range(first: number[], index: number): number[] {
  return Array.from({ length: first[index + 1]! - first[index]! }, (_, at) => first[index]! + at);
}
