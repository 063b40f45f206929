/** For the tests in Python: what does not hold in the layout of a run, from its bodies as JSON text. */

import { bodiesOf, type BodyLists } from "../src/picture/bodies";
import { broken } from "./invariants";

export function check(text: string): string {
  const bodies = bodiesOf(JSON.parse(text) as BodyLists);
  return JSON.stringify(bodies.root < 0 ? [] : broken(bodies));
}
