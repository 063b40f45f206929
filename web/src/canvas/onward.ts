/** Of two runs: where they first part ways, and all that carries the error from there on. */

import type { Payload, Run } from "../payload";
import type { Place, Side } from "../state";
import { keyOf } from "./overlay";

export class Onward {
  private readonly lit = new Set<number>();
  private readonly around = new Set<number>(); // boxes that the guilty one is in
  private readonly guiltyKey: number;
  readonly guilty: Place | null;

  constructor(private readonly payload: Payload, readonly side: Side) {
    const comparison = payload.comparison!, { rows, first, onward } = comparison, run = payload.runs[side]!;
    this.guilty = first >= 0 ? placeOf(run, (side ? rows.bCall : rows.aCall)[first]!, (side ? rows.bStep : rows.aStep)[first]!) : null;
    this.guiltyKey = this.guilty ? keyOf(this.guilty.call, this.guilty.item) : -1;
    if (this.guilty) for (const place of outward(run, this.guilty)) this.around.add(keyOf(place.call, place.item));
    const pairs = side ? null : this.pairsOfB();
    for (let k = 0; k < onward.call.length; k++) {
      const b = placeOf(payload.runs[1]!, onward.call[k]!, onward.step[k]!);
      if (!b) continue;
      const places = pairs ? pairs.get(keyOf(b.call, b.item)) ?? [] : [b];
      for (const place of places) for (const out of outward(run, place)) this.lit.add(keyOf(out.call, out.item));
    }
  }

  at(place: Place): "" | "guilty" | "onward" {
    const key = keyOf(place.call, place.item);
    if (key === this.guiltyKey) return "guilty";
    return this.lit.has(key) || this.around.has(key) ? "onward" : "";
  }

  private pairsOfB(): Map<number, Place[]> {
    const { rows } = this.payload.comparison!, found = new Map<number, Place[]>();
    for (let row = 0; row < rows.aCall.length; row++) {
      const a = placeOf(this.payload.runs[0]!, rows.aCall[row]!, rows.aStep[row]!), b = placeOf(this.payload.runs[1]!, rows.bCall[row]!, rows.bStep[row]!);
      if (!a || !b) continue;
      const key = keyOf(b.call, b.item), known = found.get(key);
      if (known) known.push(a);
      else found.set(key, [a]);
    }
    return found;
  }
}

export function placeOf(run: Run, call: number, step: number): Place | null {
  if (call < 0) return null;
  return step >= 0 ? run.placeOfStep(step, call) : { call, item: -1 };
}

/** A place and the calls around it, from the inside out. */
function outward(run: Run, place: Place): Place[] {
  const found = [place];
  for (let call = place.item < 0 ? run.parent(place.call) : place.call; call >= 0; call = run.parent(call)) found.push({ call, item: -1 });
  return found;
}

/** Which places of the other run a place is paired with: one, or several where one operation does what several did. */
export class Pairs {
  private readonly forward: Map<number, Place[]>[] = [new Map(), new Map()];

  constructor(payload: Payload) {
    const { rows } = payload.comparison!;
    for (let row = 0; row < rows.aCall.length; row++) {
      const a = placeOf(payload.runs[0]!, rows.aCall[row]!, rows.aStep[row]!), b = placeOf(payload.runs[1]!, rows.bCall[row]!, rows.bStep[row]!);
      if (!a || !b) continue;
      this.add(0, a, b);
      this.add(1, b, a);
    }
    this.add(0, { call: 0, item: -1 }, { call: 0, item: -1 });
    this.add(1, { call: 0, item: -1 }, { call: 0, item: -1 });
  }

  private add(side: Side, from: Place, to: Place): void {
    const key = keyOf(from.call, from.item), known = this.forward[side]!.get(key);
    if (!known) this.forward[side]!.set(key, [to]);
    else if (!known.some((one) => one.call === to.call && one.item === to.item)) known.push(to);
  }

  of(side: Side, place: Place): readonly Place[] {
    return this.forward[side]!.get(keyOf(place.call, place.item)) ?? [];
  }
}
