// Elements of the page. Text from a run goes through `shown` here and nowhere else becomes markup.

export type Child = Node | string | null | false | undefined;
type Attributes = Readonly<Record<string, string | number | boolean | undefined | ((event: never) => void)>>;

/** Make an element. An attribute that is a function listens to the event of its name; `true` is an empty attribute. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes | null = null,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") element.addEventListener(name, value as unknown as EventListener);
    else if (name === "style") element.style.cssText = String(value); // an attribute would need unsafe-inline styles
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return element;
}

/** Add children to an element. */
export function put(element: Element, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === false || child === undefined || child === "") continue;
    element.append(typeof child === "string" ? shown(child) : child);
  }
}

/** Replace what an element contains. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  put(element, children);
}

/** A path; its lines break behind its dots. */
export function pathText(text: string): DocumentFragment {
  const parts = document.createDocumentFragment();
  text.split(/(?<=\.)/).forEach((part, i) => parts.append(...(i ? [el("wbr")] : []), shown(part)));
  return parts;
}

/** An element of SVG. */
export function svg(tag: string, attributes: Readonly<Record<string, string | number>>, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  put(element, children);
  return element;
}

const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]/gu;
const LONGEST = 2_000; // characters of one text; the rest of a name of 10,000 would only cost time

/** Text with control characters and marks of direction as escapes, line breaks kept, and at most 2,000 characters. */
export function shown(text: string, longest = LONGEST): string {
  const cut = text.length > longest ? `${text.slice(0, longest)}…` : text;
  return cut.replace(HIDDEN, (c) => (c === "\n" ? c : escape(c.codePointAt(0)!)));
}

function escape(code: number): string {
  if (code === 9) return "\\t";
  if (code === 13) return "\\r";
  const hex = code.toString(16);
  return code < 256 ? `\\x${hex.padStart(2, "0")}` : code < 65536 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}

let ids = 0;

/** An id for `aria-controls` and the like, unique in the page. */
export function freshId(prefix: string): string {
  return `${prefix}-${++ids}`;
}

/** Say a number of things: `1 call`, `12 calls`, `1,024 operations`. */
export function counted(count: number, thing: string, things = `${thing}s`): string {
  return `${count.toLocaleString("en-US")} ${count === 1 ? thing : things}`;
}
