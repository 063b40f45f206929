/**
 * What each box of the drawing stands for. Where repeats are drawn once it stands for many calls, one of which is
 * shown: its readings are written in the box, and a click on something in it selects that one's.
 */

import { shownBy, type Drawn, type DrawnItem } from "../fold";
import type { Geometry } from "../layout/geometry";
import type { Frame, Layout } from "../layout/layout";
import type { Run } from "../payload";
import type { Place } from "../state";
import { keyOf } from "./overlay";

/** An item of a box. */
export interface Member { box: Box; index: number }

/** The inside of an item: the body of one or more calls, or one turn of a group that repeats. */
export class Box {
  readonly key: string; // as the layout names it
  frame: Frame | null = null; // where it is open
  private readonly inner = new Map<number, Box>();

  constructor(
    private readonly tree: DrawnTree,
    readonly parent: Box | null,
    readonly index: number, // the item of the box around that this is the inside of
    readonly drawn: Drawn,
    /** All calls that it stands for, in execution order; of a group those around it. */
    readonly calls: Int32Array,
    readonly isGroup: boolean,
  ) {
    this.key = parent ? keyIn(parent, index) : "";
  }

  get geometry(): Geometry {
    return this.frame!.geometry;
  }

  item(index: number): DrawnItem {
    return this.drawn.items[index]!;
  }

  /** The inside of an item that is open; null for a closed one. */
  child(index: number): Box | null {
    const frame = this.frame?.inner(index);
    if (!frame) return null;
    const box = this.inside(index);
    if (box) box.frame = frame;
    return box;
  }

  /** The inside of an item, open or closed; null for one without. */
  inside(index: number): Box | null {
    const drawn = this.tree.drawnOf(this, index);
    if (!drawn) return null;
    let box = this.inner.get(index);
    if (box?.drawn !== drawn) {
      const isGroup = this.item(index).group !== null;
      box = new Box(this.tree, this, index, drawn, isGroup ? this.calls : this.callsOf(index), isGroup);
      this.inner.set(index, box);
    }
    return box;
  }

  private callsOf(index: number): Int32Array {
    const calls: number[] = [];
    for (const place of this.places(index)) if (place.item < 0) calls.push(place.call);
    return Int32Array.from(calls);
  }

  /** The call that is shown of those that the box stands for; of a group the one around it. */
  get shown(): number {
    const { parent } = this;
    if (!parent) return this.calls[0] ?? 0;
    return this.isGroup ? parent.shown : parent.shownPlace(this.index).call;
  }

  /** Which turn of a repeated item is shown. */
  turn(index: number): number {
    const { members } = this.item(index);
    const turn = this.isGroup ? this.parent!.turn(this.index) : this.tree.turns.get(keyIn(this, index)) ?? 0;
    return Math.min(turn, (this.item(index).group ? this.item(index).times : members.length) - 1);
  }

  /** Was a turn of a repeat chosen, of this item or of a box around it? */
  isChosen(index: number): boolean {
    if (!this.isGroup && this.tree.turns.has(keyIn(this, index))) return true;
    return this.parent !== null && this.parent.isChosen(this.index);
  }

  setTurn(index: number, turn: number): void {
    if (this.isGroup) this.parent!.setTurn(this.index, turn);
    else this.tree.turns.set(keyIn(this, index), turn);
  }

  /** The place that an item shows now: a call, or an operation of the shown call. */
  shownPlace(index: number): Place {
    const { members } = this.item(index);
    return this.placeIn(this.shown, members[Math.min(this.turn(index), members.length - 1)]!);
  }

  /** How many places an item stands for. */
  count(index: number): number {
    return this.calls.length * this.item(index).members.length;
  }

  /** Every place that an item stands for, in execution order; of a row of views its last, whose result it is. */
  *places(index: number): Generator<Place> {
    const { members } = this.item(index);
    for (const call of this.calls) for (const turn of members) yield this.placeIn(call, turn);
  }

  /** The place at a position of `places`. */
  placeAt(index: number, position: number): Place {
    const { members } = this.item(index);
    return this.placeIn(this.calls[Math.floor(position / members.length)]!, members[position % members.length]!);
  }

  private placeIn(call: number, turn: readonly number[]): Place {
    return this.tree.run.normal({ call, item: turn[turn.length - 1] ?? -1 });
  }
}

function keyIn(box: Box, index: number): string {
  return box.key ? `${box.key}.${index}` : `${index}`;
}

export function keyOfMember({ box, index }: Member): string {
  return keyIn(box, index);
}

export function pathOfKey(key: string): number[] {
  return key ? key.split(".").map(Number) : [];
}

export class DrawnTree {
  readonly turns = new Map<string, number>(); // by the key of a repeated item: what is chosen, and so shown
  private readonly apart = new Set<string>();
  private rootBox: Box | null = null;

  constructor(readonly run: Run, readonly layout: Layout) {}

  get root(): Box {
    const frame = this.layout.root;
    if (this.rootBox?.drawn !== frame.drawn) this.rootBox = new Box(this, null, -1, frame.drawn, Int32Array.of(0), false);
    this.rootBox.frame = frame;
    return this.rootBox;
  }

  /** Draw each repetition in a box by itself, or once again. */
  unfold(box: Box): void {
    const { key } = box;
    if (!this.apart.delete(key)) this.apart.add(key);
    this.layout.unfold(pathOfKey(key), this.apart.has(key));
  }

  drawnOf(box: Box, index: number): Drawn | null {
    const item = box.item(index);
    return item.group ?? (item.body < 0 ? null : this.layout.folder.drawn(item.body, !this.apart.has(keyIn(box, index))));
  }

  /**
   * The item that a place is drawn in, if all around it were open; null for the root. With `show` the turns of repeats
   * along the way become those that the place is in.
   */
  find(place: Place, show: boolean): Member | null {
    if (show) this.turns.clear();
    const steps: number[] = place.item >= 0 ? [place.item] : [], { parent, item } = this.run.data.calls;
    for (let call = place.call; parent[call]! >= 0; call = parent[call]!) {
      // What no graph shows is in the first box around it that one shows.
      if (item[call]! < 0) steps.length = 0;
      else steps.push(item[call]!);
    }
    let at: Member | null = null;
    for (let box: Box | null = this.root; box && steps.length; box = at.box.inside(at.index)) {
      const next = this.step(box, steps.pop()!, show);
      if (!next) break;
      at = next;
    }
    return at;
  }

  private step(box: Box, item: number, show: boolean): Member | null {
    const index = shownBy(box.drawn, item);
    if (index < 0) return null;
    const { group } = box.item(index), at = group ? { box: box.inside(index)!, index: shownBy(group, item) } : { box, index };
    if (at.index < 0) return { box, index };
    const { members } = at.box.item(at.index);
    if (show && members.length > 1) at.box.setTurn(at.index, Math.max(0, members.findIndex((turn) => turn.includes(item))));
    return at;
  }

  /** The item as it is drawn now: itself, or the closed one around it. */
  visible(at: Member): Member {
    let box = this.root;
    for (const slot of pathOfKey(at.box.key)) {
      const inner = box.child(slot);
      if (!inner) return { box, index: slot };
      box = inner;
    }
    return { box, index: at.index };
  }

  /** The keys of the items that are open where these calls are. */
  openKeys(open: ReadonlySet<number>): Set<string> {
    const keys = new Set<string>();
    for (const call of open) {
      if (call === 0 || call >= this.run.callCount) continue;
      const at = this.find({ call, item: -1 }, false);
      if (at) keys.add(keyOfMember(at));
    }
    return keys;
  }
}

/** One number for a place, to remember things by. */
export function placeKey(place: Place): number {
  return keyOf(place.call, place.item);
}
