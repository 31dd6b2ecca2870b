// Pictures with the official Node clients.

import assert from "node:assert/strict";
import test from "node:test";
import { GoogleGenAI } from "@google/genai";
import OpenAI, { toFile } from "openai";
import { KEY, TIMEOUT, URL_, gather } from "./cells.mjs";

const client = new OpenAI({
  baseURL: `${URL_}/v1`, apiKey: KEY, maxRetries: 0, timeout: TIMEOUT,
});
const gemini = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: URL_, timeout: TIMEOUT } });

// The size stands at the same place in every PNG.
function size(data) {
  const file = Buffer.from(data, "base64");
  assert.equal(file.subarray(1, 4).toString(), "PNG");
  return [file.readUInt32BE(16), file.readUInt32BE(20)];
}

for (const model of ["demo-image", "simulated-image"]) {
  test(`${model}: a picture is made, and edited`, async () => {
    const made = await client.images.generate({ model, prompt: "A lighthouse", size: "256x128" });
    assert.deepEqual(size(made.data[0].b64_json), [256, 128]);
    assert.equal(made.output_format, "png");
    assert.ok(made.usage.output_tokens > 0);
    const image = await toFile(Buffer.from(made.data[0].b64_json, "base64"), "a.png", {
      type: "image/png",
    });
    const edited = await client.images.edit({
      model, image: [image, image], prompt: "At night", size: "128x128",
    });
    assert.deepEqual(size(edited.data[0].b64_json), [128, 128]);
    assert.ok(edited.usage.input_tokens_details.image_tokens > 0);
  });

  test(`${model}: a stream ends with the picture`, async () => {
    const stream = await client.images.generate({
      model, prompt: "A gull", size: "128x128", stream: true, partial_images: 1,
    });
    const events = await gather(stream);
    assert.deepEqual(events.map((event) => event.type), [
      "image_generation.partial_image", "image_generation.completed",
    ]);
    assert.deepEqual(size(events.at(-1).b64_json), [128, 128]);
  });
}

test("a size that is not made is refused by name", async () => {
  const failed = client.images.generate({ model: "demo-image", prompt: "x", size: "100x100" });
  await assert.rejects(failed, (error) => error.status === 400 && error.param === "size");
});

test("native image output", async () => {
  const config = { responseModalities: ["TEXT", "IMAGE"], imageConfig: { aspectRatio: "16:9" } };
  const ask = { model: "demo-image-native", contents: "A red boat", config };
  const parts = (await gemini.models.generateContent(ask)).candidates[0].content.parts;
  assert.deepEqual(size(parts.find((part) => part.inlineData).inlineData.data), [1376, 768]);
  const pieces = await gather(await gemini.models.generateContentStream(ask));
  const drawn = pieces.flatMap((piece) => piece.candidates?.[0].content?.parts ?? [])
    .filter((part) => part.inlineData);
  assert.equal(drawn.length, 1);
});
