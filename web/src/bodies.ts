/**
 * The form of a run that is laid out: one body for each distinct forward, shared by all calls that did the same.
 *
 * Bodies come from the payload as they ran (`operation`, `views`, `structure`, `call`), so that an operation or a value
 * is found by (call, index of its item). `fold.ts` makes from them what is drawn: `structure` is passed through, rows
 * of `views` become one pill, repeated calls and repeated groups become one `repeat`.
 */

/**
 * `operation`: computes something. `views`: only rearranges elements (view, transpose, contiguous …).
 * `structure`: makes or takes apart what is no tensor: a size, a tuple, an output class; drawn only where nothing else
 * would be, and never needed by an edge: edges go from the item that made the tensor to the item that reads it.
 * `call`: a call of a module. `repeat`: made by `fold.ts`.
 */
export type Kind = "operation" | "views" | "structure" | "call" | "repeat";

/** A tensor that an item reads. */
export interface Edge {
  /** The item of this body that made it, always an earlier one; below 0: input `~from` of this body. */
  from: number;
  /** What it becomes in the reader: of a call, the input (port) of the child's body; of an operation, its position. */
  argument: number;
  /** Which output of the producer it is: of a call, the output of its body; of an operation that returns several, the position. */
  output: number;
}

/** One operation or call of a body, in execution order. */
export interface Item {
  kind: Kind;
  /** The short name of an operation, the name of a call relative to its parent: `layers.0`. */
  label: string;
  /** The class of a call's module; empty for operations. */
  type: string;
  edges: Edge[];
  /** Shape of its first tensor, as written in labels: `2×12×64`; empty where there is none. */
  shape: string;
  /** The body of a call, -1 without one: operations, and calls inside which nothing can be seen. */
  body: number;
  /** How many calls stand in this item: 1, except for repeats. */
  times: number;
  /** 0 where all is well; items that differ in it (a NaN, an exception, another finding) are not drawn as one. */
  health: number;
}

/** An input of a body. */
export interface Port {
  name: string;
  shape: string;
}

/** What a body returns: the item that made it (below 0: input `~from`), and which output of that item. */
export interface Output {
  from: number;
  output: number;
  name: string;
}

/** What one forward did. */
export interface Body {
  /** The class of the module. */
  title: string;
  inputs: Port[];
  items: Item[];
  outputs: Output[];
  /** Is every operation seen? Only then an input that nothing reads is known to be unread. */
  whole?: boolean;
}

/** All bodies of a run; `bodies[index]` is decoded when it is first asked for. */
export interface Bodies {
  root: number;
  readonly count: number;
  body(index: number): Body;
}

/** The tree of calls, as far as the layout needs it; call 0 is the root. */
export interface Calls {
  /** The call around a call; -1 for the root. */
  parent(call: number): number;
  /** The index of a call in its parent's body. */
  item(call: number): number;
  /** The call behind an item of a call's body; -1 where there is none. */
  child(call: number, item: number): number;
}

/** One thing of a run: an operation or call by its parent and the index of its item, or a call itself (item -1). */
export interface Place {
  call: number;
  item: number;
}
