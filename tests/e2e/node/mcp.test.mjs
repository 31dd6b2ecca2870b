// The tools of the operator's MCP servers with the official client and a server of the official SDK.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { SHAPE, TOOL } from "./cells.mjs";

const BINARY = process.env.GATEWAY_BINARY;
const stage = { folder: mkdtempSync(join(tmpdir(), "portunus-mcp-")) };

/** A server with one tool. It keeps no session, so every request has a server of its own. */
function weatherServer() {
  const server = new Server({ name: "wx", version: "1.0.0" }, { capabilities: { tools: {} } });
  const tool = { name: TOOL, description: "Tells the weather of a city", inputSchema: SHAPE };
  server.setRequestHandler(ListToolsRequestSchema, async () => ({ tools: [tool] }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }) => {
    if (params.name !== TOOL) throw new Error("there is no such tool");
    const { city } = params.arguments;
    const isError = city === "Atlantis";
    const text = isError ? "there is no such city" : `21 degrees in ${city}`;
    return { content: [{ type: "text", text }], isError };
  });
  return server;
}

const listening = (server) =>
  new Promise((done) => server.listen(0, "127.0.0.1", () => done(server.address().port)));

async function serve(request, response) {
  const server = weatherServer();
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  response.on("close", () => {
    transport.close();
    server.close();
  });
  await server.connect(transport);
  await transport.handleRequest(request, response);
}

before(async () => {
  stage.upstream = createServer((request, response) => void serve(request, response));
  const port = await listening(stage.upstream);
  const spare = createServer();
  const own = await listening(spare);
  await new Promise((done) => spare.close(done));
  const config = join(stage.folder, "gateway.toml");
  const url = `http://127.0.0.1:${port}/mcp`;
  writeFileSync(config, `[mcp.servers.wx]\nurl = "${url}"\nprice = "0.002"\n`);
  const data = ["--data", stage.folder];
  const create = ["keys", "create", "--name", "mcp", "--cap", "0.005", "--json", ...data];
  stage.key = JSON.parse(execFileSync(BINARY, create)).key;
  stage.url = `http://127.0.0.1:${own}`;
  const listen = ["--listen", `127.0.0.1:${own}`];
  stage.gateway = spawn(BINARY, ["serve", "--config", config, ...listen, ...data], { stdio: "ignore" });
  for (let tries = 0; ; tries += 1) {
    const ready = await fetch(`${stage.url}/readyz`).catch(() => undefined);
    if (ready?.ok) break;
    assert.ok(tries < 600 && stage.gateway.exitCode === null, "the gateway becomes ready");
    await sleep(50);
  }
});

after(async () => {
  const ended = new Promise((done) => stage.gateway.once("exit", done));
  stage.gateway.kill();
  assert.equal(await ended, 0);
  stage.upstream.closeAllConnections();
  stage.upstream.close();
  rmSync(stage.folder, { recursive: true });
});

async function connect(path, key = stage.key) {
  const client = new Client({ name: "e2e", version: "1.0.0" });
  const headers = { Authorization: `Bearer ${key}` };
  const transport = new StreamableHTTPClientTransport(new URL(`${stage.url}${path}`), {
    requestInit: { headers },
  });
  await client.connect(transport);
  return client;
}

const ask = (client, name, city) =>
  client.callTool({ name, arguments: { city, unit: "celsius" } });
const spent = async () => {
  const headers = { Authorization: `Bearer ${stage.key}` };
  return (await (await fetch(`${stage.url}/v1/key`, { headers })).json()).spent_usd;
};

test("a client lists and calls the tools of a server, and pays for calls that work", async () => {
  const client = await connect("/mcp");
  assert.equal(client.getServerVersion().name, "portunus");
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name), [`wx__${TOOL}`]);
  assert.deepEqual(tools[0].inputSchema.required, SHAPE.required);
  const good = await ask(client, `wx__${TOOL}`, "Paris");
  assert.equal(good.content[0].text, "21 degrees in Paris");
  const bad = await ask(client, `wx__${TOOL}`, "Atlantis");
  assert.equal(bad.isError, true);
  await assert.rejects(ask(client, "wx__nothing", "Paris"));
  const alone = await connect("/mcp/wx");
  assert.equal((await ask(alone, TOOL, "Oslo")).content[0].text, "21 degrees in Oslo");
  assert.equal(await spent(), "0.004000000");
  await assert.rejects(ask(alone, TOOL, "Oslo"), /spending cap/);
  await client.close();
  await alone.close();
});

test("a client with a wrong key is refused", async () => {
  await assert.rejects(connect("/mcp", "sk-pt-wrong"));
});
