/** States of every format that was ever written are opened, and go on. `node formats.test.js make` wrote the newest. */
import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { DurableClient, FORMAT } from "../src/durable.js";
import { toHex } from "../src/messages.js";
import { FileStore } from "../src/node.js";

const TESTS = fileURLToPath(new URL("../../../../tests/", import.meta.url));
const fixture = (format: number, end: string) => `${TESTS}fixtures/formats/typescript-${format}.${end}`;
const KINDS = ["async-ucb", "actions-ucb", "two-part"]; // of models: each is a life of the corpus

function facts({ machine }: DurableClient): Record<string, unknown> {
  const { model, sequence, outbox, steps, chain } = machine;
  const counts = { observed: model.own, pending: model.pendingN, sequence, steps, version: model.version };
  return { ...counts, outbox: [...outbox.keys()], chain: toHex(chain), theta: Array.from(model.theta) };
}

/** Clients with uploads that nobody acknowledged, choices without a reward, and lines since their snapshots. */
async function make(): Promise<void> {
  const told: Record<string, unknown> = {};
  for (const kind of KINDS) {
    const { invitation, events } = JSON.parse(readFileSync(`${TESTS}vectors/${kind}.json`, "utf8"));
    const path = fixture(FORMAT, `${kind}.journal`);
    let drawn = 0n;
    const client = await DurableClient.open(await FileStore.open(path), async () => invitation, () => ++drawn);
    const lives = events.filter((event: any) => event.do === "select" && !event.refused).slice(0, 14);
    const waiting: string[] = [];
    for (const [k, event] of lives.entries()) {
      const { id } = client.select(event.arms);
      if (k % 4 === 3) waiting.push(id);
      else await client.observe(id, (k % 5) / 5);
    }
    await client.flush();
    told[kind] = { ...facts(client), waiting };
  }
  writeFileSync(fixture(FORMAT, "json"), `${JSON.stringify(told, null, 1)}\n`);
  process.exit(0);
}

if (process.argv[2] === "make") await make();

for (let format = 1; format <= FORMAT; format++) {
  for (const kind of KINDS) {
    test(`format ${format}, ${kind}`, async () => {
      assert(existsSync(fixture(format, "json")), "there is a file of every format");
      const { waiting, theta, ...expected } = JSON.parse(readFileSync(fixture(format, "json"), "utf8"))[kind];
      const path = join(mkdtempSync(join(tmpdir(), "fedbandit-")), "state");
      copyFileSync(fixture(format, `${kind}.journal`), path);
      const opened = async () => DurableClient.open(await FileStore.open(path), () => Promise.reject(), () => 7n);
      const client = await opened();
      const { theta: found, ...counts } = facts(client) as any;
      assert.deepEqual(counts, expected);
      theta.forEach((value: number, i: number) => assert(Math.abs(value - found[i]) < 1e-9));
      for (const id of waiting) await client.observe(id, 0.5);
      await client.close();
      const again = await opened();
      assert.equal(again.machine.model.own, expected.observed + waiting.length);
      await again.close();
    });
  }
}
