/** A disk that is full: what was cut off in the middle of a line, or is written again, does not damage the file. */
import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { FedbanditError } from "../src/errors.js";
import { FileStore } from "../src/node.js";

for (const [what, fails] of [
  ["a write that ends in the middle of a line", "appendFile"],
  ["a line that is written, but not known to be on disk", "sync"],
] as const) {
  test(`${what} leaves nothing behind`, async () => {
    const store = await FileStore.open(join(mkdtempSync(join(tmpdir(), "fedbandit-")), "state"));
    await store.replace("snapshot ü");
    await store.append("first", true);
    const { file } = store as unknown as { file: FileHandle };
    const right = file[fails].bind(file) as (data?: unknown) => Promise<void>;
    (file as unknown as Record<string, unknown>)[fails] = async (data?: Buffer) => {
      if (data !== undefined) await right(data.subarray(0, 3));
      throw new Error("ENOSPC: no space left on device");
    };
    await assert.rejects(store.append("second", true), (error: Error) => error instanceof FedbanditError && /cannot be written: ENOSPC/.test(error.message));
    (file as unknown as Record<string, unknown>)[fails] = right;
    await store.append("second", true);
    await store.append("third", false);
    assert.deepEqual(await store.read(), { snapshot: "snapshot ü", lines: ["first", "second", "third"] });
    await store.close();
  });
}
