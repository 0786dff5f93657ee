/**
 * A machine with a journal, and what it says on a connection; no network, no clock.
 *
 * What happens is written as lines, each whole or not there; a snapshot takes their place now and then. An upload is
 * sent only after its line is durable, and unchanged until it is acknowledged.
 */
import { FedbanditError, Refused } from "./errors.js";
import { type Choice, type Entry, Machine, type StoredMachine } from "./machine.js";
import { type Message, decode, encode, fromHex, seal, toHex } from "./messages.js";
import type { Store } from "./store.js";
import { type Terms, readInvitation } from "./terms.js";

export const FORMAT = 1;
const COMPACT_AFTER = 2 ** 18; // characters of lines after which a snapshot is written

export interface Entropy {
  /** A random number of 64 bits. */
  (): bigint;
}

interface Snapshot {
  format: number;
  invitation: unknown;
  incarnation: string;
  opened: number;
  machine: StoredMachine | null;
}

export class DurableClient {
  readonly machine: Machine;
  /** The upload whose receipt is awaited; 0: any receipt; null: nothing is awaited, or nobody is connected. */
  awaits: number | null = null;
  connected = false;
  private incarnation = 0n;
  private opened = 0;
  private nonce = 0n;
  private safe = 0; // uploads up to this number are durable
  private unwritten: Entry[] = [];
  private size = 0;
  private complete = true; // the last greeting was sent with an empty outbox
  private restating = false;
  private stated = Infinity;
  private applied = 0; // uploads that the coordinator has, as far as it said so since the last greeting
  private writing: Promise<void> = Promise.resolve();

  private constructor(
    private readonly store: Store,
    private invitation: unknown,
    public terms: Terms,
    private readonly entropy: Entropy,
  ) {
    this.machine = new Machine(terms);
  }

  /** Go on where the store left off, or begin with an invitation, which is asked for only then. */
  static async open(
    store: Store,
    invite: () => Promise<unknown>,
    entropy: Entropy,
    decline: () => Promise<unknown> = async () => {},
  ): Promise<DurableClient> {
    const { snapshot, lines } = await store.read();
    const kept = snapshot === null ? null : parse(snapshot);
    const invitation = kept ? kept.invitation : await invite();
    let terms: Terms;
    try {
      terms = readInvitation(invitation);
    } catch (error) {
      if (!kept) await decline().catch(() => {}); // nothing is written yet; a coordinator that cannot be asked keeps the place
      throw error;
    }
    const client = new DurableClient(store, invitation, terms, entropy);
    if (kept) {
      client.incarnation = BigInt(`0x${kept.incarnation}`);
      client.opened = kept.opened;
      if (kept.machine) client.machine.load(kept.machine);
      lines.forEach((line, i) => {
        const entries = checkedLine(line);
        if (entries) entries.forEach((entry) => client.machine.apply(entry));
        else if (i < lines.length - 1) throw new FedbanditError(`Line ${i + 1} of the stored state is damaged.`);
      });
    } else client.incarnation = entropy() | 1n; // zero stands for none
    client.opened++;
    client.nonce = entropy();
    await client.compact();
    return client;
  }

  /** The federation's terms have changed: go on under the new ones, if nothing means something else by that. */
  async renew(invitation: unknown): Promise<void> {
    const terms = readInvitation(invitation);
    this.machine.renew(terms);
    [this.invitation, this.terms] = [invitation, terms];
    await this.compact();
  }

  // Choosing and learning

  select(arms: unknown, explore = 0): Choice {
    const { choice, entry } = this.machine.select(arms, this.entropy().toString(16).padStart(16, "0"), explore);
    this.unwritten.push(entry);
    return choice;
  }

  async observe(id: string, reward: unknown): Promise<void> {
    this.unwritten.push(...this.machine.observe(id, reward));
    await this.flush();
  }

  forget(id: string): void {
    this.unwritten.push(this.machine.forget(id));
  }

  /** Write what waits in memory. */
  async flush(durable = false): Promise<void> {
    await this.inTurn(async () => {
      const entries = [...this.unwritten]; // more may come while this is written
      const made = this.machine.sequence;
      if (entries.length === 0 && !durable) return;
      const line = lineOf(entries);
      await this.store.append(line, durable);
      this.unwritten.splice(0, entries.length);
      this.size += line.length;
      if (durable) this.safe = made;
    });
    if (this.size > COMPACT_AFTER) await this.compact();
  }

  private async compact(): Promise<void> {
    await this.inTurn(async () => {
      const covered = this.unwritten.length;
      const made = this.machine.sequence;
      const { invitation, opened } = this;
      const incarnation = this.incarnation.toString(16);
      const snapshot: Snapshot = { format: FORMAT, invitation, incarnation, opened, machine: this.machine.dump() };
      await this.store.replace(JSON.stringify(snapshot));
      this.unwritten.splice(0, covered);
      this.size = 0;
      this.safe = made;
    });
  }

  /** One write after the other; one that fails does not stop the next. */
  private inTurn(write: () => Promise<void>): Promise<void> {
    this.writing = this.writing.catch(() => {}).then(write);
    return this.writing;
  }

  // Talking

  /** A connection has begun: the frame to send. */
  connect(): Uint8Array[] {
    this.connected = true;
    this.restating = false;
    this.awaits = null;
    if (this.terms.says === "nothing") return [];
    this.awaits = 0;
    return [this.greeting()];
  }

  disconnect(): void {
    this.connected = false;
    this.awaits = null;
  }

  /** The frames to send now; those of uploads only after they are durable. */
  async next(): Promise<Uint8Array[]> {
    const frames: Uint8Array[] = [];
    while (this.connected && this.awaits === null) {
      const following = await this.following();
      if (!following || !this.connected) break;
      frames.push(following.frame);
      this.awaits = following.awaits;
    }
    return frames;
  }

  private async following(): Promise<{ frame: Uint8Array; awaits: number | null } | null> {
    const { machine } = this;
    if (this.restating) {
      if (machine.sequence > this.safe) await this.flush(true);
      this.stated = machine.sequence;
      return { frame: this.sealed(machine.chain, machine.restate()), awaits: machine.sequence };
    }
    const first = [...machine.outbox.keys()].find((n) => n >= this.applied);
    if (first !== undefined) {
      if (first > this.safe) await this.flush(true);
      const made = machine.outbox.get(first);
      return made ? { frame: this.sealed(made.before, made.bytes), awaits: first } : null;
    }
    if (!this.complete) return { frame: this.greeting(), awaits: 0 }; // what was missed is sent after this
    if (machine.asking === null) return null;
    const growth = machine.asking;
    machine.asking = null; // one that gets lost is made again when the trigger fires again
    return { frame: this.sealed(machine.chain, encode({ kind: "Request", member: this.terms.member, growth })), awaits: null };
  }

  private greeting(): Uint8Array {
    this.complete = this.machine.outbox.size === 0;
    this.applied = 0;
    return this.sealed(this.machine.chain, this.machine.join());
  }

  private sealed(chain: Uint8Array, message: Uint8Array): Uint8Array {
    const { opened: epoch, incarnation, nonce } = this;
    return seal({ epoch, incarnation, nonce, sequence: this.machine.sequence, chain, terms: this.terms.digest }, message);
  }

  /** Take what came: a message, or in text a refusal, which is thrown. */
  async take(data: Uint8Array | string): Promise<void> {
    if (typeof data === "string") throw refusalOf(data);
    const message = decode(data);
    if (message.kind === "Recall") this.recall(message);
    else this.unwritten.push(...this.machine.receive(message));
    if (message.kind === "Receipt") {
      if (message.sequence >= this.stated) this.restating = false;
      if (this.awaits !== null && message.sequence >= this.awaits) this.awaits = null;
    }
    if (this.unwritten.length) await this.flush();
  }

  private recall(message: Message & { kind: "Recall" }): void {
    const first = (this.machine.outbox.keys().next().value as number | undefined) ?? this.machine.sequence + 1;
    this.restating = message.sequence < first - 1;
    this.stated = Infinity;
    this.applied = Math.min(message.sequence, this.machine.sequence);
  }

  async close(): Promise<void> {
    await this.flush();
    await this.store.close();
  }
}

export function refusalOf(text: string): Refused {
  try {
    const said = JSON.parse(text);
    if (typeof said.error === "string" && typeof said.kind === "string") {
      return new Refused(said.error, said.kind, typeof said.owner === "string" ? said.owner : "");
    }
  } catch {
    // no JSON
  }
  return new Refused("The coordinator sent a text that is no refusal.", "malformed");
}

/** A line has a checksum before it: one that was cut or damaged is not taken for another. */
function lineOf(entries: Entry[]): string {
  const text = JSON.stringify(entries);
  return `${checksum(text)} ${text}`;
}

function checkedLine(line: string): Entry[] | null {
  const text = line.slice(9);
  return line.slice(0, 8) === checksum(text) ? (JSON.parse(text) as Entry[]) : null;
}

function checksum(text: string): string {
  let hash = 0x811c9dc5; // FNV-1a
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return (hash >>> 0).toString(16).padStart(8, "0");
}

function parse(text: string): Snapshot {
  let snapshot: Snapshot;
  try {
    snapshot = JSON.parse(text) as Snapshot;
  } catch {
    throw new FedbanditError("The stored state cannot be read: it is damaged. Keep it, and ask for help.");
  }
  if (snapshot.format !== FORMAT) {
    throw new FedbanditError(`The stored state is of format ${snapshot.format}, and this client reads ${FORMAT}; install a newer one.`);
  }
  return snapshot;
}

export { fromHex, toHex };
