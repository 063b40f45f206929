/** The graph of the page: one pane, or two in step for a comparison, with legend, tooltip, buttons and keys. */

import { Onward, Pairs } from "./onward";
import type { Payload, Run } from "../payload";
import { el, fill } from "../shell/dom";
import { addShortcuts } from "../shell/keys";
import { hitsOf, matcher } from "../shell/search";
import { onTheme, themeOf } from "../shell/theme";
import { samePlace, type Place, type Side, type State, type Store } from "../state";
import { digits, quantity } from "../units";
import type { Camera } from "./camera";
import { hasInside } from "./draw";
import { Legend } from "./legend";
import type { Scenery } from "./look";
import { firstOpened } from "./opening";
import { overlayOf, readingOf, type Overlay } from "./overlay";
import { Pane, type PaneListener } from "./pane";
import { locate, type Hit } from "./scene";
import type { Member } from "./tree";

const STEP = 1.3; // of a zoom by key or button
const LATE = 140; // milliseconds before a tooltip appears

export class Graph implements PaneListener {
  readonly element = el("div", { class: "graph" });
  readonly panes: Pane[];
  private readonly legend: Legend;
  private readonly tip = el("div", { class: "graph-tip", hidden: true });
  private readonly pairs: Pairs | null;
  private readonly onward: (Onward | null)[];
  private readonly findings: Overlay[];
  private readonly overlays: (Overlay | null)[] = [];
  private anchor: { pane: Pane; at: Member } | null = null;
  private own = false; // the selection is being changed from here: nothing is brought into sight
  private tipTimer = 0;

  constructor(private readonly payload: Payload, private readonly store: Store) {
    const { comparison } = payload;
    this.pairs = comparison ? new Pairs(payload) : null;
    this.onward = payload.runs.map((_, side) => (comparison ? new Onward(payload, side as Side) : null));
    this.findings = payload.runs.map((_, side) => overlayOf("findings", payload, side as Side, matcher)!);
    this.legend = new Legend(store);
    this.readOverlays(store.get());
    this.panes = payload.runs.map((run, side) => new Pane(run, this.scenery(side as Side), this));
    if (payload.runs.length > 1) this.panes.forEach((pane, side) => pane.element.prepend(this.nameOf(payload.runs[side]!, side)));
    this.element.append(...this.panes.map((pane) => pane.element), this.buttons(), this.legend.element, this.tip);
    for (const pane of this.panes) pane.canvas.addEventListener("keydown", (event) => this.key(pane, event));
    this.legend.show(this.overlays[this.side] ?? null, themeOf(store));
    store.subscribe((now, before) => this.changed(now, before));
    onTheme(store, () => this.renew());
    this.follow(store.get());
    this.listKeys();
  }

  private get side(): Side {
    return this.store.get().compareSide;
  }

  get active(): Pane {
    return this.panes[this.side] ?? this.panes[0]!;
  }

  /** Where the runs of a comparison part ways, on the side that is looked at. */
  get guilty(): Place | null {
    return this.onward[this.side]?.guilty ?? null;
  }

  private nameOf(run: Run, side: number): HTMLElement {
    return el("div", { class: "graph-name" }, el("b", null, side ? "b" : "a"), ` ${run.data.folder || run.data.model}`);
  }

  private scenery(side: Side): Scenery {
    const run = this.payload.runs[side]!, { filter, query } = this.store.get();
    return {
      run, theme: themeOf(this.store), overlay: this.overlays[side] ?? null, filter, hits: query.trim() ? hitsOf(run, query) : null,
      findings: this.findings[side]!, onward: this.onward[side] ?? null,
    };
  }

  private readOverlays({ overlay }: State): void {
    this.payload.runs.forEach((_, side) => {
      if (this.overlays[side]?.id !== overlay) this.overlays[side] = overlayOf(overlay, this.payload, side as Side, matcher);
    });
  }

  // What the state says ------------------------------------------------------------------------------

  private changed(now: State, before: State): void {
    if (now.compareSide !== before.compareSide && now.open === before.open && this.pairs) return this.store.set({ open: this.openOf(now.compareSide, before.open, before.compareSide) });
    const shown = now.overlay !== before.overlay || now.filter !== before.filter || now.query !== before.query || now.compareSide !== before.compareSide;
    if (now.overlay !== before.overlay) this.readOverlays(now);
    if (shown) this.renew();
    if (now.open !== before.open || now.compareSide !== before.compareSide || !samePlace(now.selected, before.selected)) this.follow(now);
    if (now.view !== before.view && now.view === "graph") for (const pane of this.panes) pane.redraw();
  }

  private renew(): void {
    this.panes.forEach((pane, side) => pane.renew(this.scenery(side as Side)));
    this.legend.show(this.overlays[this.side] ?? null, themeOf(this.store));
  }

  /** Open what is open, show the members of repeats that the selection is in, and bring it into sight. */
  private follow(state: State): void {
    const { selected, open } = state, missing = selected ? this.closedAround(selected, open) : [];
    if (missing.length) {
      this.store.set({ open: new Set([...open, ...missing]) });
      return;
    }
    this.panes.forEach((pane, side) => {
      const anchor = this.anchor?.pane === pane ? this.anchor.at : this.anchor ? this.partner(this.anchor.pane, this.anchor.at, pane) : pane.selected;
      pane.setOpen(side === this.side ? open : this.openOf(side as Side, open, this.side), anchor);
    });
    this.anchor = null;
    this.choose(selected);
  }

  private choose(selected: Place | null): void {
    const main = this.active, at = selected && main.tree.find(selected, true);
    if (!selected) for (const pane of this.panes) pane.tree.turns.clear();
    main.looks.forget();
    main.choose(at, selected !== null && at === null);
    if (at && !this.own) main.bring(at);
    for (const [side, pane] of this.panes.entries()) if (pane !== main) this.chooseIn(pane, side as Side, selected, at);
    this.own = false;
  }

  /** The partners in the other pane, the first of them at the same height. */
  private chooseIn(pane: Pane, side: Side, selected: Place | null, at: Member | null): void {
    const others = selected ? this.pairs!.of((1 - side) as Side, this.active.run.normal(selected)) : [];
    const [found, ...more] = others.map((place, i) => pane.tree.find(place, i === 0)).filter((one) => one !== null);
    pane.looks.forget();
    pane.choose(found ?? null, false, more);
    if (!found || !at) return;
    const goal = this.active.goal, spot = locate(this.active.tree.visible(at));
    pane.bring(found, goal.y + spot.y * goal.scale);
  }

  /** Calls around a place whose boxes are closed now. */
  private closedAround(place: Place, open: ReadonlySet<number>): number[] {
    const { run, tree } = this.active, keys = tree.openKeys(open), closed: number[] = [];
    for (let call = place.item < 0 ? run.parent(place.call) : place.call; call > 0; call = run.parent(call)) {
      const at = tree.find({ call, item: -1 }, false);
      if (at && !open.has(call) && !this.isOpen(keys, at)) closed.push(call);
    }
    return closed;
  }

  private isOpen(keys: ReadonlySet<string>, { box, index }: Member): boolean {
    return keys.has(box.key ? `${box.key}.${index}` : `${index}`);
  }

  /** The calls of one side that are open where those of the other are. */
  private openOf(side: Side, open: ReadonlySet<number>, from: Side): Set<number> {
    const found = new Set([0]);
    for (const call of open) for (const place of this.pairs!.of(from, { call, item: -1 })) if (place.item < 0) found.add(place.call);
    return side === from ? new Set(open) : found;
  }

  private partner(from: Pane, at: Member, to: Pane): Member | null {
    const side = this.panes.indexOf(from) as Side, place = this.pairs?.of(side, from.run.normal(at.box.shownPlace(at.index)))[0];
    return place && to !== from ? to.tree.find(place, false) : null;
  }

  // What is done in a pane -----------------------------------------------------------------------------

  chosen(pane: Pane, place: Place, bring = false): void {
    const side = this.panes.indexOf(pane) as Side;
    this.own = !bring;
    if (samePlace(this.store.get().selected, place) && side === this.side) this.own = false;
    else if (side === this.side) this.store.set({ selected: place });
    else this.store.set({ selected: place, compareSide: side, open: this.openOf(side, this.store.get().open, this.side) });
  }

  toggled(pane: Pane, at: Member): void {
    const side = this.panes.indexOf(pane) as Side, inner = at.box.inside(at.index);
    if (!inner) return;
    const open = side === this.side ? new Set(this.store.get().open) : this.openOf(side, this.store.get().open, this.side);
    if (at.box.child(at.index)) for (const call of inner.calls) open.delete(call);
    else open.add(at.box.shownPlace(at.index).call);
    this.anchor = { pane, at };
    this.own = true;
    const { selected } = this.store.get(), isInside = selected && !at.box.child(at.index) ? false : selected !== null && this.isWithin(pane, selected, inner.calls);
    this.store.set({ open, compareSide: side, ...(isInside || side !== this.side ? { selected: at.box.shownPlace(at.index) } : {}) });
    this.own = false;
  }

  /** Is a place inside one of these calls? Closing them then chooses the closed box. */
  private isWithin(pane: Pane, place: Place, calls: Int32Array): boolean {
    const around = new Set(calls);
    for (let call = place.item < 0 ? pane.run.parent(place.call) : place.call; call >= 0; call = pane.run.parent(call)) if (around.has(call)) return true;
    return false;
  }

  moved(pane: Pane, before: Camera, now: Camera): void {
    const factor = now.scale / before.scale;
    for (const other of this.panes) {
      if (other === pane) continue;
      const { camera } = other;
      // The same step: what the mouse moved here moves there.
      other.setCamera({ scale: camera.scale * factor, x: camera.x * factor + now.x - before.x * factor, y: camera.y * factor + now.y - before.y * factor });
    }
    this.hideTip();
  }

  placed(): void {
    const { selected } = this.store.get();
    if (selected && this.panes.every((pane) => pane.width)) this.choose(selected);
  }

  hovered(pane: Pane, hit: Hit | null, x: number, y: number): void {
    clearTimeout(this.tipTimer);
    if (!hit?.spot) return this.hideTip();
    const at = { box: hit.spot.box, index: hit.spot.index }, cell = hit.part === "strip" ? hit.cell : -1;
    const show = (): void => this.showTip(pane, at, cell, x, y);
    if (this.tip.hidden) this.tipTimer = window.setTimeout(show, LATE);
    else show();
  }

  // Tooltip ------------------------------------------------------------------------------------------

  private hideTip(): void {
    clearTimeout(this.tipTimer);
    this.tip.hidden = true;
  }

  private showTip(pane: Pane, { box, index }: Member, cell: number, x: number, y: number): void {
    const item = box.item(index), side = this.panes.indexOf(pane) as Side, overlay = this.overlays[side] ?? null, look = pane.looks.of(box, index);
    const place = cell < 0 ? box.shownPlace(index) : box.placeAt(index, Math.floor((cell * box.count(index)) / (look.strip?.length ?? 1)));
    const row = (name: string, text: string): HTMLElement => el("div", { class: "tip-row" }, el("span", { class: "dim" }, name), el("span", null, text));
    const written = (n: number): string => (overlay?.unit ? quantity(n, overlay.unit) : digits(n, 4));
    const rows: (HTMLElement | null)[] = [item.shape ? row("shape", item.shape) : null];
    if (overlay) {
      const reading = readingOf(overlay, place, box.child(index) !== null), { pool } = look;
      if (pool && cell < 0 && overlay.scale) {
        if (!Number.isNaN(pool.median)) for (const name of ["min", "median", "max"] as const) rows.push(row(`${overlay.title}, ${name} of ${pool.count}`, written(pool[name])));
        if (pool.nan) rows.push(row("not finite", String(pool.nan)));
        if (look.odd >= 0) rows.push(row("stands out", pane.run.path(box.placeAt(index, look.odd).call)));
      } else rows.push(row(overlay.title, reading === undefined ? "not measured" : overlay.scale ? written(reading) : overlay.classes[reading]?.name ?? ""));
    }
    const reason = place.item < 0 ? pane.run.reason(place.call) : "", failure = place.item < 0 ? pane.run.failure(place.call) : null;
    const heading = cell < 0 ? item.label : pane.run.path(place.call) || item.label;
    fill(this.tip, el("div", null, el("b", null, heading), item.type && el("span", { class: "dim" }, ` ${item.type}`), item.times > 1 && cell < 0 && el("span", { class: "dim" }, ` ×${item.times}`)), ...rows,
      failure?.here && el("div", null, `${failure.type}: ${failure.message}`), reason && el("div", { class: "dim" }, `${pane.run.status(place.call)}: ${reason}`));
    this.tip.hidden = false;
    const left = pane.element.offsetLeft + x, width = this.tip.offsetWidth, height = this.tip.offsetHeight, { clientWidth, clientHeight } = this.element;
    this.tip.style.left = `${Math.max(4, left + 16 + width > clientWidth ? left - width - 12 : left + 16)}px`;
    this.tip.style.top = `${Math.max(4, y + 18 + height > clientHeight ? y - height - 10 : y + 18)}px`;
  }

  // Buttons and keys -----------------------------------------------------------------------------------

  private each(act: (pane: Pane) => void): void {
    this.panes.forEach(act);
  }

  private buttons(): HTMLElement {
    const button = (text: string, label: string, act: (pane: Pane) => void): HTMLElement =>
      el("button", { type: "button", title: label, "aria-label": label, click: () => this.each(act) }, text);
    return el("div", { class: "graph-buttons", role: "group", "aria-label": "Zoom" },
      button("+", "Enlarge (+)", (pane) => pane.zoom(STEP)), button("−", "Make smaller (−)", (pane) => pane.zoom(1 / STEP)),
      button("⤢", "Show all (0)", (pane) => pane.fit(true)));
  }

  private key(pane: Pane, event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.act(pane, event)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  private act(pane: Pane, { key, shiftKey }: KeyboardEvent): boolean {
    const arrow = ({ ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" } as const)[key];
    if (arrow && shiftKey) {
      const [dx, dy] = { up: [0, 80], down: [0, -80], left: [80, 0], right: [-80, 0] }[arrow] as [number, number];
      this.each((one) => one.fly({ ...one.goal, x: one.goal.x + dx, y: one.goal.y + dy }));
      return true;
    }
    if (arrow) {
      const next = pane.neighbour(arrow);
      if (next) this.chosen(pane, next, true);
      return true;
    }
    const at = pane.selected;
    switch (key) {
      case "Enter": case " ": if (at && hasInside(at.box.item(at.index))) this.toggled(pane, at); return true;
      case "Escape": return this.leave(pane, at);
      case "+": case "=": this.each((one) => one.zoom(STEP)); return true;
      case "-": case "_": this.each((one) => one.zoom(1 / STEP)); return true;
      case "0": this.each((one) => one.fit(true)); return true;
      case "Home": this.each((one) => one.fit(false)); return true;
      case "f": if (at) pane.fitTo(at); return true;
      case "u": this.unfold(pane, at); return true;
      case ",": case ".": this.turn(pane, at, key === "." ? 1 : -1); return true;
      default: return false;
    }
  }

  /** Out of a box: the one around it becomes the chosen one. */
  private leave(pane: Pane, at: Member | null): boolean {
    if (!at) return false;
    const around = at.box.isGroup ? at.box.parent : at.box;
    if (around?.parent) this.chosen(pane, around.parent.shownPlace(around.index), true);
    else this.store.set({ selected: null });
    return true;
  }

  /** The next turn of the repeat around what is chosen. */
  private turn(pane: Pane, at: Member | null, step: number): void {
    for (let one = at; one; one = one.box.parent && { box: one.box.parent, index: one.box.index }) {
      const { times } = one.box.item(one.index);
      if (times < 2) continue;
      one.box.setTurn(one.index, (one.box.turn(one.index) + step + times) % times);
      return this.chosen(pane, at!.box.shownPlace(at!.index));
    }
  }

  private unfold(pane: Pane, at: Member | null): void {
    const box = at ? at.box.child(at.index) ?? (at.box.isGroup ? at.box.parent! : at.box) : pane.tree.root;
    pane.unfold(box);
    this.follow(this.store.get());
  }

  private listKeys(): void {
    const group = "In the graph";
    addShortcuts(
      { keys: ["g"], does: "Go to the graph", group: "Page", run: () => this.active.canvas.focus() },
      { keys: ["ArrowUp", "ArrowDown"], does: "To the producer, to the reader", group },
      { keys: ["ArrowLeft", "ArrowRight"], does: "To the box beside", group },
      { keys: ["Enter"], does: "Open or close a box", group },
      { keys: ["Escape"], does: "To the box around", group },
      { keys: ["f"], does: "Enlarge the chosen box", group },
      { keys: ["0"], does: "Show all", group },
      { keys: ["Home"], does: "Back to the start", group },
      { keys: ["+", "-"], does: "Zoom (with the wheel: Ctrl)", group },
      { keys: [",", "."], does: "Previous, next of a repeat", group },
      { keys: ["u"], does: "Draw repeats one by one, or once", group },
    );
  }
}

/** The calls that are open in a page that says nothing else. */
export function openAtFirst(graph: Graph): ReadonlySet<number> {
  return firstOpened(graph.active.tree);
}
