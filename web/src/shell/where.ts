// Conditions such as `absmax > 100 or input.nan > 0` and `time.self > 1ms`: the lines that `where=` takes in Python.
// Each rule here has its twin in query/where.py; a test asks both the same lines.

import { UNITS } from "../units.js";

export type Tensors = "input" | "output" | "parameter";
export const TENSORS: readonly Tensors[] = ["input", "output", "parameter"];

/** A complex number, such as the mean of a complex tensor; comparisons are about its magnitude. */
export interface Complex {
  readonly re: number;
  readonly im: number;
}
export type Fact = number | Complex | null;

/** One call or operation and one tensor of each kind, `-1` for none. */
export interface Scope {
  item: number;
  input: number;
  output: number;
  parameter: number;
}

/** Where the names of a line come from: `null` for a name that there is none of. */
export interface Names {
  /** The reader of a measure of tensors of one kind, by the tensor's number. */
  ofTensor(name: string, kind: Tensors): ((tensor: number) => Fact) | null;
  /** The reader of any other measure, by the number of the call or the operation. */
  ofItem(name: string): ((item: number) => Fact) | null;
  unit(name: string): string;
  /** Every name there is, for the error that offers the nearest ones. */
  all(): Iterable<string>;
}

export interface Condition {
  readonly line: string;
  readonly names: readonly string[];
  evaluate(scope: Scope): boolean;
}

/** A line that is no condition; the message is for the person who typed it. */
export class NotACondition extends Error {}

const LONGEST = 2000;
const DEEPEST = 100;

export function compileCondition(line: string, names: Names): Condition {
  if (line.length > LONGEST) throw tooLarge();
  const tree = new Parser(tokens(line.trim())).whole();
  if (depth(tree) > DEEPEST) throw tooLarge();
  const compiler = new Compiler(names);
  const evaluate = compiler.evaluator(tree);
  return { line, names: [...compiler.met], evaluate: (scope) => isTrue(evaluate(scope)) };
}

/** The kind of tensors that a name is about, or `""` for the call or operation itself, and its measure. */
export function placeOf(name: string, names: Names): readonly [Tensors | "", string] {
  const dot = name.indexOf(".");
  const first = dot < 0 ? name : name.slice(0, dot);
  const own = dot < 0 ? "" : name.slice(dot + 1);
  if (own && (TENSORS as readonly string[]).includes(first)) return [first as Tensors, own];
  return [names.ofTensor(name, "output") ? "output" : "", name];
}

function tooLarge(): NotACondition {
  return new NotACondition(`the condition is longer than ${LONGEST} characters, or nested too deeply`);
}

// From text to tokens --------------------------------------------------------------------------------------

type Token =
  | { readonly kind: "number"; readonly value: number }
  | { readonly kind: "quantity"; readonly value: number; readonly unit: string; readonly text: string }
  | { readonly kind: "name" | "sign"; readonly text: string };

const UNIT = [...UNITS.keys()].sort((a, b) => b.length - a.length).map(escaped).join("|");
const WORD = String.raw`[\p{L}\p{N}_]`;
const QUANTITY = new RegExp(String.raw`(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s?(${UNIT})(?!${WORD}|\()`, "uy");
const NUMBER =
  /(?:0[xX](?:_?[\da-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|(?:\d(?:_?\d)*(?:\.(?:\d(?:_?\d)*)?)?|\.\d(?:_?\d)*)(?:[eE][+-]?\d(?:_?\d)*)?)/y;
const NAME = /[\p{L}_][\p{L}\p{N}_]*/uy;
const SIGN = /\*\*|<=|>=|==|!=|[<>+\-*/().]/y;
const SPACE = /[ \t\f]+|#.*$/y;
const BREAK = /[\r\n]+/y;

function tokens(text: string): Token[] {
  const found: Token[] = [];
  let at = 0;
  let open = 0; // a line may be broken inside parentheses
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match) at = pattern.lastIndex;
    return match;
  };
  while (at < text.length) {
    if (take(SPACE) || (open > 0 && take(BREAK))) continue;
    const amount = /[\p{L}\p{N}_.]/u.test(text[at - 1] ?? "") ? null : take(QUANTITY);
    if (amount) {
      const [factor, unit] = UNITS.get(amount[2]!)!;
      found.push({ kind: "quantity", value: Number(amount[1]) * factor, unit, text: amount[1]! + amount[2]! });
      continue;
    }
    const number = take(NUMBER);
    if (number) {
      const digits = number[0].replaceAll("_", "");
      if (/^0\d*[1-9]/.test(digits) && /^\d+$/.test(digits)) throw notAnExpression("a number begins with 0");
      if (/[\p{L}\p{N}_]/u.test(text[at] ?? "")) throw notAnExpression(`after ${number[0]} stands no unit`);
      found.push({ kind: "number", value: Number(digits) });
      continue;
    }
    const name = take(NAME);
    if (name) {
      found.push({ kind: "name", text: name[0].normalize("NFKC") });
      continue;
    }
    const sign = take(SIGN);
    if (!sign) throw notAnExpression(`it has a ${JSON.stringify(text[at])}`);
    open += sign[0] === "(" ? 1 : sign[0] === ")" ? -1 : 0;
    found.push({ kind: "sign", text: sign[0] });
  }
  return found;
}

function escaped(text: string): string {
  return text.replace(/[/.*+?^${}()|[\]\\]/g, "\\$&");
}

function notAnExpression(why: string): NotACondition {
  return new NotACondition(`this is no condition: ${why}`);
}

// From tokens to a tree -------------------------------------------------------------------------------------

type Tree =
  | { readonly is: "number"; readonly value: number }
  | { readonly is: "quantity"; readonly value: number; readonly unit: string; readonly text: string }
  | { readonly is: "name"; readonly name: string }
  | { readonly is: "and" | "or"; readonly parts: readonly Tree[] }
  | { readonly is: "not" | "negative"; readonly inner: Tree }
  | { readonly is: "arithmetic"; readonly sign: string; readonly left: Tree; readonly right: Tree }
  | { readonly is: "comparison"; readonly signs: readonly string[]; readonly terms: readonly Tree[] };

const KEYWORDS = new Set(
  ("and or not None as assert async await break class continue def del elif else except finally for from global if " +
    "import in is lambda nonlocal pass raise return try while with yield").split(" "),
);

class Parser {
  private at = 0;
  private level = 0;

  constructor(private readonly all: readonly Token[]) {}

  whole(): Tree {
    if (!this.all.length) throw notAnExpression("it is empty");
    const tree = this.or();
    const next = this.all[this.at];
    if (next) throw notAnExpression(`${textOf(next)} stands where it may end`);
    return tree;
  }

  private or(): Tree {
    if (++this.level > 4 * DEEPEST) throw tooLarge();
    const tree = this.several("or", () => this.several("and", () => this.not()));
    this.level--;
    return tree;
  }

  private several(word: "and" | "or", next: () => Tree): Tree {
    const parts = [next()];
    while (this.takes(word)) parts.push(next());
    return parts.length === 1 ? parts[0]! : { is: word, parts };
  }

  private not(): Tree {
    let nots = 0;
    while (this.takes("not")) nots++;
    if (nots > DEEPEST) throw tooLarge();
    let tree = this.comparison();
    while (nots--) tree = { is: "not", inner: tree };
    return tree;
  }

  private comparison(): Tree {
    const terms = [this.sum()];
    const signs: string[] = [];
    for (let sign = this.takesOne(Object.keys(FITS)); sign; sign = this.takesOne(Object.keys(FITS))) {
      signs.push(sign);
      terms.push(this.sum());
    }
    return signs.length ? { is: "comparison", signs, terms } : terms[0]!;
  }

  private sum(): Tree {
    return this.chain(["+", "-"], () => this.chain(["*", "/"], () => this.unary()));
  }

  private chain(signs: readonly string[], next: () => Tree): Tree {
    let left = next();
    for (let sign = this.takesOne(signs); sign; sign = this.takesOne(signs)) {
      left = { is: "arithmetic", sign, left, right: next() };
    }
    return left;
  }

  private unary(): Tree {
    if (++this.level > 4 * DEEPEST) throw tooLarge();
    const tree: Tree = this.takes("-") ? { is: "negative", inner: this.unary() } : this.power();
    this.level--;
    return tree;
  }

  private power(): Tree {
    const left = this.atom();
    return this.takes("**") ? { is: "arithmetic", sign: "**", left, right: this.unary() } : left;
  }

  private atom(): Tree {
    const token = this.all[this.at++];
    if (!token) throw notAnExpression("something is missing at its end");
    if (token.kind === "number") return { is: "number", value: token.value };
    if (token.kind === "quantity") return { is: "quantity", value: token.value, unit: token.unit, text: token.text };
    if (token.kind === "sign" && token.text === "(") {
      const tree = this.or();
      if (!this.takes(")")) throw notAnExpression("a ) is missing");
      return tree;
    }
    if (token.kind === "name" && !KEYWORDS.has(token.text)) return this.name(token.text);
    throw notAnExpression(`${token.text} stands where a number or a measure is expected`);
  }

  private name(first: string): Tree {
    if (first === "True" || first === "False") return { is: "number", value: Number(first === "True") };
    let name = first;
    while (this.takes(".")) {
      const part = this.all[this.at++];
      if (part?.kind !== "name" || KEYWORDS.has(part.text)) throw notAnExpression(`a name is missing after ${name}.`);
      name += `.${part.text}`;
    }
    return { is: "name", name };
  }

  private takes(text: string): boolean {
    return this.takesOne([text]) !== null;
  }

  private takesOne(texts: readonly string[]): string | null {
    const token = this.all[this.at];
    if (!token || token.kind === "number" || token.kind === "quantity" || !texts.includes(token.text)) return null;
    this.at++;
    return token.text;
  }
}

function textOf(token: Token): string {
  return token.kind === "number" ? String(token.value) : token.text;
}

/** The number of expressions in one another, as Python counts them: `time.self` and `1ms` are two. */
function depth(tree: Tree): number {
  switch (tree.is) {
    case "number":
      return 1;
    case "quantity":
      return 2;
    case "name":
      return tree.name.split(".").length;
    case "and":
    case "or":
      return 1 + Math.max(...tree.parts.map(depth));
    case "not":
    case "negative":
      return 1 + depth(tree.inner);
    case "arithmetic":
      return 1 + Math.max(depth(tree.left), depth(tree.right));
    case "comparison":
      return 1 + Math.max(...tree.terms.map(depth));
  }
}

// From the tree to a function --------------------------------------------------------------------------------

type Evaluate = (scope: Scope) => Fact;

class Compiler {
  readonly met = new Set<string>();

  constructor(private readonly names: Names) {}

  evaluator(tree: Tree): Evaluate {
    switch (tree.is) {
      case "number":
      case "quantity": {
        const { value } = tree;
        return () => value;
      }
      case "name":
        this.met.add(tree.name);
        return this.fact(tree.name);
      case "and":
      case "or": {
        const parts = tree.parts.map((part) => this.evaluator(part));
        const decisive = tree.is === "or";
        return (scope) => combined(parts.map((part) => part(scope)), decisive);
      }
      case "not": {
        const inner = this.evaluator(tree.inner);
        return (scope) => {
          const fact = inner(scope);
          return fact === null ? null : Number(!isTrue(fact));
        };
      }
      case "negative": {
        const inner = this.evaluator(tree.inner);
        return (scope) => arithmetic("-", 0, inner(scope));
      }
      case "arithmetic": {
        const { sign } = tree;
        const left = this.evaluator(tree.left);
        const right = this.evaluator(tree.right);
        return (scope) => arithmetic(sign, left(scope), right(scope));
      }
      case "comparison":
        return this.comparison(tree.signs, tree.terms);
    }
  }

  private comparison(signs: readonly string[], terms: readonly Tree[]): Evaluate {
    const operands = terms.map((term) => this.evaluator(term));
    terms.forEach((term, i) => i && this.requireSameUnit(terms[i - 1]!, term));
    if (operands.length === 2) {
      const [left, right] = operands as [Evaluate, Evaluate];
      const fits = FITS[signs[0]!]!;
      return (scope) => compare(fits, left(scope), right(scope));
    }
    return (scope) => {
      const facts = operands.map((operand) => operand(scope));
      return combined(signs.map((sign, i) => compare(FITS[sign]!, facts[i]!, facts[i + 1]!)), false);
    };
  }

  private requireSameUnit(one: Tree, other: Tree): void {
    for (const [named, number] of [[one, other], [other, one]] as const) {
      let amount = number;
      while (amount.is === "negative") amount = amount.inner;
      if (named.is !== "name" || amount.is !== "quantity") continue;
      const unit = this.names.unit(placeOf(named.name, this.names)[1]);
      if (unit === amount.unit) continue;
      throw new NotACondition(`${named.name} ${unit ? `is in ${unit}` : "has no unit"}, and ${amount.text} is not`);
    }
  }

  private fact(name: string): Evaluate {
    const [tensors, own] = placeOf(name, this.names);
    if (tensors) {
      const read = this.names.ofTensor(own, tensors);
      if (read) return (scope) => (scope[tensors] < 0 ? null : read(scope[tensors]));
    } else {
      const read = this.names.ofItem(own);
      if (read) return (scope) => read(scope.item);
    }
    const near = nearest(name, this.names.all());
    throw new NotACondition(`this run has no measure ${name}${near ? `; did you mean ${near}?` : ""}`);
  }
}

/** `decisive` where a part is so, `null` where one is not known, else the opposite. */
function combined(parts: readonly Fact[], decisive: boolean): Fact {
  if (parts.some((part) => part !== null && isTrue(part) === decisive)) return Number(decisive);
  return parts.includes(null) ? null : Number(!decisive);
}

function isTrue(fact: Fact): boolean {
  return fact !== null && (typeof fact === "number" ? fact !== 0 : fact.re !== 0 || fact.im !== 0);
}

function magnitude(fact: number | Complex): number {
  return typeof fact === "number" ? fact : Math.hypot(fact.re, fact.im);
}

type Fits = (a: number, b: number) => boolean;
const FITS: Readonly<Record<string, Fits>> = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "==": (a, b) => a === b, "!=": (a, b) => a !== b,
};

function compare(fits: Fits, one: Fact, other: Fact): Fact {
  if (one === null || other === null) return null;
  return Number(fits(typeof one === "number" ? one : magnitude(one), typeof other === "number" ? other : magnitude(other)));
}

function arithmetic(sign: string, one: Fact, other: Fact): Fact {
  if (one === null || other === null) return null;
  if (sign === "**") return power(magnitudeIfComplex(one, other), magnitudeIfComplex(other, one));
  if (typeof one !== "number" || typeof other !== "number") return complexArithmetic(sign, one, other);
  if (sign === "+") return one + other;
  if (sign === "-") return one - other;
  if (sign === "*") return one * other;
  return other === 0 ? null : one / other;
}

/** If either number is complex, powers are those of magnitudes. */
function magnitudeIfComplex(fact: number | Complex, other: number | Complex): number {
  return typeof fact === "number" && typeof other === "number" ? fact : magnitude(fact);
}

function power(base: number, exponent: number): Fact {
  if (base === 0 && exponent < 0) return null;
  if (base === 1 || (base === -1 && Math.abs(exponent) === Infinity)) return 1;
  if (base < 0 && Number.isFinite(base) && Number.isFinite(exponent) && !Number.isInteger(exponent)) {
    const size = (-base) ** exponent;
    return { re: size * Math.cos(Math.PI * exponent), im: size * Math.sin(Math.PI * exponent) };
  }
  return base ** exponent;
}

function complexArithmetic(sign: string, one: number | Complex, other: number | Complex): Fact {
  const a = typeof one === "number" ? { re: one, im: 0 } : one;
  const b = typeof other === "number" ? { re: other, im: 0 } : other;
  if (sign === "+") return { re: a.re + b.re, im: a.im + b.im };
  if (sign === "-") return { re: a.re - b.re, im: a.im - b.im };
  if (sign === "*") return { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re };
  const size = b.re * b.re + b.im * b.im;
  return size === 0 ? null : { re: (a.re * b.re + a.im * b.im) / size, im: (a.im * b.re - a.re * b.im) / size };
}

/** The known name that is fewest changes away, if that is less than half of its letters. */
export function nearest(name: string, known: Iterable<string>): string | null {
  let best: string | null = null;
  let least = Math.max(1, Math.floor(name.length / 2));
  for (const one of known) {
    const distance = changes(name, one);
    if (distance <= least && (best === null || distance < least)) [best, least] = [one, distance];
  }
  return best;
}

function changes(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, i) => i);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const same = one[i - 1] === other[j - 1] ? 0 : 1;
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + same));
    }
    row = next;
  }
  return row[other.length]!;
}
