/** Runs tests/vectors against this client: events in order, each with what has to come of it. */
import { DurableClient } from "../src/durable.js";
import { FedbanditError, Refused } from "../src/errors.js";
import { Draw } from "../src/draw.js";
import { Features } from "../src/features.js";
import { decode, encode, extend, fromHex, NO_CHAIN, toHex } from "../src/messages.js";
import { MemoryStore } from "../src/store.js";
import { blocksOf, triangle } from "../src/sums.js";
import { equal, near, ok, throws } from "./check.js";

/** Capabilities of the corpus that this client skips, each with the reason. */
export const CANNOT: Record<string, string> = {
  "local-server": "a local server serves many users with FCLUB, which is in Python only; its invitations are refused with a sentence",
  relay: "a relay adds up what other clients upload; it is in Python only",
  forgetting: "models that forget are refused with a sentence",
  factors: "an option: uploads are sent as matrices, which every coordinator takes",
};

export function skipped(vector: any): string | null {
  const need = (vector.needs as string[]).find((name) => name in CANNOT);
  return need === undefined ? null : `${need}: ${CANNOT[need]}`;
}

export async function run(vector: any): Promise<void> {
  const kinds: Record<string, (vector: any) => void | Promise<void>> = { life, messages, draws, chain, features };
  await kinds[vector.kind](vector);
}

async function life(vector: any): Promise<void> {
  const store = new MemoryStore();
  const ids = new Map<string, string>();
  let client!: DurableClient;
  let drawn = 0n;
  const sends = async () => (await client.next()).map(toHex);
  const doing: Record<string, (event: any) => Promise<Record<string, unknown>>> = {
    open: async (event) => {
      const numbers = [BigInt(`0x${event.nonce}`)];
      if ((await store.read()).snapshot === null) numbers.unshift(BigInt(`0x${event.incarnation}`));
      const entropy = () => numbers.shift() ?? ++drawn;
      client = await DurableClient.open(store, async () => vector.invitation, entropy);
      return {};
    },
    connect: async () => ({ sends: [...client.connect().map(toHex), ...(await sends())] }),
    disconnect: async () => (client.disconnect(), {}),
    select: async (event) => {
      const choice = client.select(event.arms, event.explore);
      ids.set(event.as, choice.id);
      return { arm: choice.arm, propensity: choice.propensity };
    },
    observe: async (event) => (await client.observe(ids.get(event.of)!, event.reward), { sends: await sends() }),
    forget: async (event) => (client.forget(ids.get(event.of)!), {}),
    flush: async () => (await client.flush(), {}),
    receive: async (event) => (await client.take(fromHex(event.message)), { sends: await sends() }),
    refusal: async (event) => {
      try {
        await client.take(event.text as string);
      } catch (error) {
        ok(error instanceof Refused, String(error));
        client.disconnect();
        return { kind: error.kind, transient: error.transient, ...(error.owner ? { owner: error.owner } : {}) };
      }
      throw new Error("a text was not taken as a refusal");
    },
    check: async () => {
      const { model, sequence, outbox } = client.machine;
      const counts = { observed: model.own, pending: model.pendingN, uploads: sequence, unacknowledged: outbox.size };
      return { ...counts, version: model.version, theta: Array.from(model.theta) };
    },
  };
  const sent = new Sent();
  for (const [k, event] of vector.events.entries()) {
    const what = `${vector.name}, event ${k} (${event.do})`;
    let found: Record<string, unknown>;
    try {
      found = await doing[event.do](event);
    } catch (error) {
      if (error instanceof FedbanditError && event.refused) continue;
      throw new Error(`${what}: ${error instanceof Error ? error.stack : error}`);
    }
    ok(!event.refused, `${what} was not refused`);
    for (const [name, value] of Object.entries(found)) {
      if (!(name in event)) continue;
      if (name === "theta") near(value as number[], event.theta, what);
      else if (name === "propensity") near([value as number], [event.propensity], what);
      else if (name === "sends" && !vector.exact) sent.check(what, value as string[], event.sends);
      else equal(value, event[name], `${what}: ${name}`);
    }
  }
}

/** Frames whose statistics may differ in last bits: whole numbers are compared, and the chain of what was sent. */
class Sent {
  private after = new Map<bigint, string>([[0n, toHex(NO_CHAIN)]]);

  check(what: string, found: string[], expected: string[]): void {
    equal(found.length, expected.length, `${what}: frames`);
    found.forEach((hex, i) => {
      const [ours, theirs] = [fromHex(hex), fromHex(expected[i])];
      equal(ours.length, theirs.length, `${what}: bytes`);
      for (const [from, to] of [[0, 32], [48, 96]]) equal(toHex(ours.slice(from, to)), toHex(theirs.slice(from, to)), `${what}: heads`);
      const [view, other] = [ours, theirs].map((frame) => new DataView(frame.buffer));
      const reals = [96, ...Array.from({ length: Math.max(0, (ours.length - 112) / 8) }, (_, k) => 112 + 8 * k)];
      near(reals.map((at) => view.getFloat64(at, true)), reals.map((at) => other.getFloat64(at, true)), what);
      const [sequence, chain] = [view.getBigUint64(24, true), toHex(ours.slice(32, 48))];
      if (ours[67] !== 2) return equal(chain, this.after.get(sequence), `${what}: the chain`);
      const number = view.getBigUint64(64 + 16, true);
      equal(chain, this.after.get(number - 1n), `${what}: the chain`);
      this.after.set(number, toHex(extend(ours.slice(32, 48), ours.slice(64))));
    });
  }
}

function messages(vector: any): void {
  for (const entry of vector.messages) {
    const message = decode(fromHex(entry.hex));
    equal(message.kind, entry.kind);
    equal(toHex(encode(message)), entry.hex);
    const { kind: _, ...fields } = message as any;
    if (fields.sums) {
      const { n, b, V, blocks } = fields.sums;
      const parts = blocks ? [...blocksOf(fields.sums).values()] : [];
      const triangles = parts.map((part) => Array.from(triangle(part.V, part.b.length)));
      if (blocks) Object.assign(fields, { n, of: blocks.of, blocks: blocks.actions, b: parts.map((part) => Array.from(part.b)), V: triangles });
      else Object.assign(fields, { n, b: Array.from(b), V: Array.from(triangle(V, b.length)) });
      delete fields.sums;
    }
    equal(fields, entry.fields);
  }
  for (const entry of vector.refused) throws(() => decode(fromHex(entry.hex)), FedbanditError, entry.why);
}

function draws(vector: any): void {
  for (const entry of vector.draws) {
    const draw = new Draw(vector.key, entry.client, entry.step);
    for (const call of entry.calls) {
      if ("index" in call) equal(draw.index(call.index), call.is);
      else if ("uniform" in call) equal(draw.uniform(), call.is);
      else near(Array.from(draw.normal(call.normal)), call.is, "normals");
    }
  }
}

function features(vector: any): void {
  const encoder = new Features(vector.features);
  for (const entry of vector.contexts) {
    const what = JSON.stringify(entry.actions);
    if (entry.refused) throws(() => encoder.transform(entry.actions, entry.context), FedbanditError, what);
    else equal(JSON.stringify(encoder.transform(entry.actions, entry.context)), JSON.stringify(entry.is), what);
  }
}

function chain(vector: any): void {
  let after: Uint8Array = NO_CHAIN;
  for (const entry of vector.uploads) {
    after = extend(after, fromHex(entry.upload));
    equal(toHex(after), entry.chain);
  }
}
