/** Tracks: the heights at which lines run across in the gap between two rows, ordered so that few of them cross. */

/** The lines that run across in one gap and belong together: one value or bundle on its way. */
export interface Crossing {
  key: number;
  low: number;
  high: number;
  /** Where it comes from above, and where it goes on below. */
  above: number[];
  below: number[];
  track: number;
}

const MOST_ORDERED = 48; // with more lines in one gap their order is that of their left ends

/** Give each crossing its track, 0 at the top; return how many tracks there are. */
export function assignTracks(crossings: Crossing[]): number {
  if (crossings.length < 2) return crossings.length; // most gaps; the one track is 0 already
  const byLeft = [...crossings].sort((a, b) => a.low - b.low || b.high - a.high || a.key - b.key);
  if (crossings.length > MOST_ORDERED) return firstFit(byLeft);
  const order: Crossing[] = [];
  for (const one of byLeft) order.splice(bestPlace(order, one), 0, one);
  let tracks = 0;
  order.forEach((one, index) => {
    one.track = 0;
    for (let before = 0; before < index; before++) {
      const other = order[before]!;
      if (overlap(one, other)) one.track = Math.max(one.track, other.track + 1);
    }
    tracks = Math.max(tracks, one.track + 1);
  });
  return tracks;
}

/** Return where a line is inserted into an order from top to bottom, so that it crosses the fewest of the others. */
function bestPlace(order: Crossing[], one: Crossing): number {
  let cost = 0; // of standing below all others
  for (const other of order) cost += crossed(other, one);
  let [best, least] = [order.length, cost];
  for (let place = order.length - 1; place >= 0; place--) {
    const other = order[place]!;
    cost += crossed(one, other) - crossed(other, one);
    if (cost < least) [best, least] = [place, cost];
  }
  return best;
}

/** Return how often two lines cross if the first runs above the second. */
function crossed(upper: Crossing, lower: Crossing): number {
  if (!overlap(upper, lower)) return 0;
  let count = 0;
  for (const x of lower.above) if (x > upper.low && x < upper.high) count++;
  for (const x of upper.below) if (x > lower.low && x < lower.high) count++;
  return count;
}

const overlap = (one: Crossing, two: Crossing): boolean => one.low < two.high + 4 && two.low < one.high + 4;

function firstFit(byLeft: Crossing[]): number {
  const ends: number[] = [];
  for (const one of byLeft) {
    let track = 0;
    while (track < ends.length && ends[track]! > one.low - 4) track++;
    ends[track] = one.high;
    one.track = track;
  }
  return ends.length;
}
