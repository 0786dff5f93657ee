/** The corpus that every client runs (tests/vectors), and its sabotage. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { sha256 } from "../src/sha256.js";
import { toHex } from "../src/messages.js";
import { run, skipped } from "./corpus.js";

const FOLDER = fileURLToPath(new URL("../../../../tests/vectors/", import.meta.url));
const VECTORS = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));
const read = (name: string) => JSON.parse(readFileSync(FOLDER + name, "utf8"));

assert(VECTORS.length > 10, "the corpus is there");

for (const name of VECTORS) {
  const vector = read(name);
  test(name, { skip: skipped(vector) ?? false }, () => run(vector));
}

test("a changed byte in what is expected is noticed", async () => {
  for (const name of VECTORS) {
    const vector = read(name);
    if (skipped(vector) !== null || vector.kind !== "life") continue;
    const sending = vector.events.filter((event: any) => event.sends?.length);
    assert(sending.length > 0 || name === "ties.json", name);
    if (!sending.length) continue;
    const event = sending[sending.length - 1];
    const frame: string = event.sends[0];
    const at = frame.length - 3;
    event.sends[0] = frame.slice(0, at) + (frame[at] === "0" ? "1" : "0") + frame.slice(at + 1);
    await assert.rejects(run(vector), name);
  }
});

test("SHA-256 is the platform's", () => {
  for (const size of [0, 1, 55, 56, 63, 64, 65, 1000]) {
    const data = randomBytes(size);
    assert.equal(toHex(sha256(data)), createHash("sha256").update(data).digest("hex"));
  }
});
