#!/usr/bin/env node
// Starts the program: the one in this package, or the one that PORTUNUS_BINARY names.
"use strict";
const { spawn } = require("node:child_process");
const { existsSync } = require("node:fs");
const path = require("node:path");

const names = { x64: "portunus-x86_64", arm64: "portunus-aarch64" };
const carried = path.join(__dirname, names[process.arch] || "none");
const program = process.env.PORTUNUS_BINARY || carried;
if (!existsSync(program)) {
  console.error(
    `portunus: no program for ${process.platform} ${process.arch} at ${program}; ` +
      "install another package of Portunus and set PORTUNUS_BINARY to its path",
  );
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// Signals go to the program, which finishes running calls.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`portunus: ${program} cannot be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(signal ? 1 : code));
