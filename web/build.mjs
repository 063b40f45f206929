/* Builds the page's code: `node build.mjs` writes what the package ships, `--check` compares, `--tests` builds tests. */
import * as esbuild from "esbuild";
import { existsSync, readdirSync, readFileSync, writeFileSync, mkdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const built = resolve(here, "../src/fxdebug/exports/page/built");
const shared = { absWorkingDir: here, bundle: true, target: "es2022", charset: "ascii", legalComments: "none", logLevel: "warning" };
const shipped = [
  { file: "page.js", entry: "src/main.ts", options: { format: "iife" } },
  { file: "page.css", entry: "src/page.css", options: {} },
  { file: "picture.js", entry: "src/picture.ts", options: { format: "iife", globalName: "fxdebugPicture" } },
  { file: "../../../../../tests/exports/picture/invariants.js", entry: "test/zoo.ts", options: { format: "iife", globalName: "invariants" } },
];

/**
 * Names of private members, which are shortened: those that nothing else is called, in particular no data from Python and
 * nothing of the browser.
 */
function privateNames() {
  const files = readdirSync(join(here, "src"), { recursive: true }).filter((name) => name.endsWith(".ts"));
  const text = files.map((name) => readFileSync(join(here, "src", name), "utf8")).join("\n");
  const declaration = /\bprivate (?:readonly |async |get )*(\w+)/g;
  const names = (source, pattern) => [...source.matchAll(pattern)].map((match) => match[1]);
  const taken = new Set([
    ...names(text, /(?<!\bthis)[?!]?\.(\w+)/g), // a member of something else
    ...names(text.replace(declaration, ""), /(\w+)\??:/g), // a key
    ...names(text, /["'`](\w+)["'`]/g),
  ]);
  return [...new Set(names(text, declaration))].filter((name) => name.length > 2 && !taken.has(name)).sort();
}

const mangleProps = new RegExp(`^(?:${privateNames().join("|")})$`);

async function bundle({ file, entry, options }) {
  const result = await esbuild.build({ ...shared, ...options, entryPoints: [entry], minify: true, mangleProps, write: false, outfile: file.split("/").at(-1) });
  return result.outputFiles[0].contents;
}

async function buildTests() {
  const tests = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts"));
  await esbuild.build({
    ...shared,
    entryPoints: tests.map((name) => join("test", name)),
    outdir: ".tests",
    outExtension: { ".js": ".mjs" },
    format: "esm",
    platform: "node",
  });
}

if (process.argv.includes("--tests")) {
  await buildTests();
} else {
  mkdirSync(built, { recursive: true });
  let stale = false;
  for (const one of shipped) {
    if (!existsSync(join(here, one.entry))) continue;
    const contents = await bundle(one);
    const path = join(built, one.file);
    if (process.argv.includes("--check")) {
      if (!existsSync(path) || !readFileSync(path).equals(Buffer.from(contents))) {
        console.error(`${one.file} is not what web/src builds: run \`make page\``);
        stale = true;
      }
    } else {
      writeFileSync(path, contents);
      console.log(`${one.file} ${(contents.length / 1024).toFixed(1)} KB`);
    }
  }
  process.exitCode = stale ? 1 : 0;
}
