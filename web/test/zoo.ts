/** For the tests in Python: what does not hold in the layout of a run, from its bodies as JSON text. */

import { bodiesOf, type BodyLists } from "../src/picture/bodies";
import { broken } from "./invariants";
import { brokenPicture } from "./picture";

export function check(text: string): string {
  const bodies = bodiesOf(JSON.parse(text) as BodyLists);
  return JSON.stringify(bodies.root < 0 ? [] : broken(bodies));
}

/** The same for the SVG text of a picture. */
export function picture(svg: string): string {
  return JSON.stringify(brokenPicture(svg));
}
