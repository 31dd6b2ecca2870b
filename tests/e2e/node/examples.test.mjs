// The JavaScript examples of the reference pages, run as they stand there.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { KEY, URL_ } from "./cells.mjs";

const EXAMPLE = /<code id="javascript-(\w+)">(.*?)<\/code>/gs;
const PLAIN = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&amp;": "&" };
// Beside the packages, so that an example finds them.
const folder = await mkdtemp(join(import.meta.dirname, "example-"));
after(() => rm(folder, { recursive: true }));
process.chdir(folder);
process.env.PORTUNUS_KEY = KEY;

const { data } = await (await fetch(`${URL_}/api/models`)).json();
for (const { id, model_type } of data.filter(({ id }) => id.startsWith("demo-"))) {
  const page = await (await fetch(`${URL_}/models/${id}`)).text();
  const examples = [...page.matchAll(EXAMPLE)];
  test(`${id}: the page has examples`, () => assert.ok(examples.length > 0));
  for (const [, format, text] of examples) {
    test(`${id}: the ${format} example runs`, async (context) => {
      const file = join(folder, `${id}-${format}.mjs`);
      await writeFile(file, text.replace(/&(lt|gt|quot|amp);/g, (escaped) => PLAIN[escaped]));
      const log = context.mock.method(console, "log", () => {});
      await import(pathToFileURL(file));
      if (model_type === "image") {
        assert.equal((await readFile("picture.png")).subarray(1, 4).toString(), "PNG");
        await rm("picture.png");
      } else {
        assert.ok(log.mock.callCount() > 0);
      }
    });
  }
}
