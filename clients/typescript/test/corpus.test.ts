/** The corpus that every client runs (tests/vectors), and its sabotage. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { Machine } from "../src/machine.js";
import { sha256 } from "../src/sha256.js";
import { readInvitation } from "../src/terms.js";
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

test("a changed digit of any message, or of the chain, is noticed", async () => {
  for (const [name, rows, cells] of [["messages.json", "messages", ["hex"]], ["blocks.json", "messages", ["hex"]], ["chain.json", "uploads", ["upload", "chain"]]] as const) {
    const vector = read(name);
    for (const row of vector[rows]) {
      for (const cell of cells) {
        const right: string = row[cell];
        for (let k = 0; k < right.length; k++) {
          row[cell] = right.slice(0, k) + (parseInt(right[k], 16) ^ 1).toString(16) + right.slice(k + 1);
          await assert.rejects(run(vector), `${name}: digit ${k}`);
        }
        row[cell] = right;
      }
    }
  }
});

test("what an invitation asks for and this client cannot do is named", () => {
  const changes: [(said: any) => void, RegExp][] = [
    [(said) => (said.versions = [2, 3]), /speaks versions \[2,3\] of the protocol; this client, 1/],
    [(said) => said.client.capabilities.push("quantum"), /needs 'quantum', which this client cannot do; it stays offline/],
    [(said) => (said.client.trigger.kind = "full-moon"), /trigger is 'full-moon', but must be one of growth/],
    [(said) => (said.client.model.kind = "forest"), /model is 'forest', but must be one of ridge/],
    [(said) => (said.client.policy.kind = "oracle"), /policy is 'oracle', but must be one of ucb/],
    [(said) => (said.client.privacy = { kind: "noisy-rewards", scale: 1 }), /The federation is private \(noisy-rewards\)/],
    [(said) => (said.client.contexts.length = "three"), /contexts.length is 'three', but must be a number/],
    [(said) => delete said.client, /client is undefined, but must be an object/],
  ];
  for (const [change, sentence] of changes) {
    const { invitation } = read("async-ucb.json");
    change(invitation);
    assert.throws(() => readInvitation(invitation), { name: "Error", message: sentence });
  }
});

test("propensities of sampled choices are estimated, and say so", () => {
  for (const name of ["async-lints.json", "actions-linphe.json", "two-part-lints.json"]) {
    const machine = new Machine(readInvitation(read(name).invitation));
    const { arms } = read(name).events.find((event: any) => event.do === "select");
    const { choice } = machine.select(arms, "a", 0.2);
    assert(choice.estimated && choice.propensity > 0.2 / arms.length - 1e-9 && choice.propensity < 1, name);
    assert.equal(choice.propensity, choice.propensity);
    const copies = machine.select([arms[0], arms[0]], "b").choice;
    assert(copies.arm === 0 && copies.propensity > 0.99, "the lowest index of equal scores, for sure");
  }
});

test("SHA-256 is the platform's", () => {
  for (const size of [0, 1, 55, 56, 63, 64, 65, 1000]) {
    const data = randomBytes(size);
    assert.equal(toHex(sha256(data)), createHash("sha256").update(data).digest("hex"));
  }
});
