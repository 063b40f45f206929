// Follows a run that `fxdebug serve` shows: when its files change, the page is loaded again. The address keeps the state.

import type { Payload } from "./payload";

const EVERY = 2000; // milliseconds

/** Ask for the revision of the run now and then, and load the page again when it is another one. */
export function follow(payload: Payload): void {
  const live = payload.data.live;
  if (!live) return;
  const every = payload.run.data.charts.length ? 5 * EVERY : EVERY; // a training changes at each step
  const ask = async (): Promise<void> => {
    let next = every;
    try {
      const answer = await fetch(live.url, { cache: "no-store", credentials: "same-origin" });
      if (answer.ok && (await answer.text()) !== live.revision) return location.reload();
    } catch {
      next = 5 * every; // the server has been stopped: the page stays as it is
    }
    setTimeout(ask, next);
  };
  setTimeout(ask, every);
}
