/** How long a choice takes at d = K = 25: node dist/test/speed.js (from clients/typescript, after `npm run build`). */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { Machine } from "../src/machine.js";
import { readInvitation } from "../src/terms.js";

const D = 25;
const FILE = fileURLToPath(new URL("../../../../tests/vectors/async-ucb.json", import.meta.url));
for (const kind of ["ucb", "greedy", "igw", "lints"]) {
  const { invitation } = JSON.parse(readFileSync(FILE, "utf8"));
  invitation.client.contexts.length = invitation.client.model.length = D;
  invitation.client.policy.kind = kind;
  const machine = new Machine(readInvitation(invitation));
  const arms = Array.from({ length: D }, () => Float64Array.from({ length: D }, () => (Math.random() - 0.5) / 6));
  const times: number[] = [];
  for (let t = 0; t < 20_000; t++) {
    const begun = process.hrtime.bigint();
    machine.select(arms, String(t));
    times.push(Number(process.hrtime.bigint() - begun) / 1000);
    if (t < 200) machine.observe(String(t), 0.1);
    else machine.forget(String(t));
  }
  times.sort((a, b) => a - b);
  console.log(`${kind}: median ${times[10_000].toFixed(1)} µs, p99 ${times[19_800].toFixed(1)} µs`);
}
