/** The page: reads its data, builds its frame, draws its graph. */

import { Graph, openAtFirst } from "./canvas/graph";
import { installHooks } from "./canvas/hooks";
import { follow } from "./live";
import { readPayload } from "./payload";
import { buildFrame } from "./shell/frame";
import { openFirst, stateOf } from "./shell/hash";
import { shellHooks } from "./shell/hooks";
import { applyTheme } from "./shell/theme";
import { START, Store } from "./state";

async function start(): Promise<void> {
  const theme = applyTheme();
  const payload = await readPayload(document.getElementById("payload")!.textContent!);
  const given = stateOf(payload, location.hash), store = new Store({ ...given, theme });
  if (!location.hash && payload.run.data.charts.length && !payload.run.data.hasGraphs) store.set({ view: "training" });
  const frame = buildFrame(payload, store);
  const graph = new Graph(payload, store);
  frame.stage.append(graph.element);
  openFirst(openAtFirst(graph));
  if (store.get().open === START.open) store.set({ open: openAtFirst(graph) });
  const raised = payload.run.raisedIn(0);
  if (!location.hash) store.set({ selected: raised < 0 || payload.comparison ? graph.guilty : { call: raised, item: -1 } });
  follow(payload);
  installHooks(payload, store, graph, performance.now(), shellHooks(frame));
}

start().catch((error: unknown) => {
  console.error(error);
  const text = document.createElement("pre");
  text.textContent = `This page cannot be shown: ${error instanceof Error ? error.message : String(error)}`;
  document.body.replaceChildren(text);
});
