/**
 * One client without I/O: it chooses, learns, makes uploads, and takes messages. Whatever has to survive a crash is an
 * entry; `apply` repeats entries after one. Uploads are on record as they were made, and never made again.
 */
import { Draw } from "./draw.js";
import { FedbanditError, require, shown } from "./errors.js";
import { allFinite, dot } from "./matrix.js";
import { type Message, NO_CHAIN, decode, encode, extend, fromHex, toHex } from "./messages.js";
import { type Model, RidgeModel } from "./model.js";
import { ActionModel } from "./per-action.js";
import { type Chosen, TIE, choose } from "./policy.js";
import { type Slack, type Sums, add, square, zeroSums } from "./sums.js";
import type { Terms } from "./terms.js";
import { TwoPartModel } from "./two-part.js";

const ON_TOP = 8; // acknowledged uploads that are kept by themselves until a download contains them
const WAITING = 10_000; // choices without a reward that are kept

/** What has happened: a choice, a reward as it was learnt, a choice forgotten, an upload made, a message taken. */
export type Entry =
  | { c: [id: string, steps: number, x: number[]] }
  | { r: [id: string, y: number] }
  | { f: string }
  | { u: string }
  | { m: string };

export class Choice {
  constructor(
    /** The index of the arm. */
    readonly arm: number,
    /** By which its reward is told, now or later. */
    readonly id: string,
    private propensities: Chosen["propensities"],
    private readonly explore: number,
  ) {
    this.estimated = typeof propensities === "function";
  }

  /** Whether `propensity` has no formula, and is estimated (Thompson sampling, perturbed history). */
  readonly estimated: boolean;

  /** The probability with which it was chosen. An estimate takes some milliseconds, the first time it is asked for. */
  get propensity(): number {
    if (typeof this.propensities === "function") this.propensities = this.propensities();
    return this.explore / this.propensities.length + (1 - this.explore) * this.propensities[this.arm];
  }
}

interface Made {
  bytes: Uint8Array;
  before: Uint8Array;
  sums: Sums;
}

export class Machine {
  readonly model: Model;
  /** Uploads that were not acknowledged, by number. */
  readonly outbox = new Map<number, Made>();
  sequence = 0;
  chain: Uint8Array = NO_CHAIN;
  steps = 0;
  epoch = 0;
  exploring: boolean;
  threshold: number;
  uploaded: Sums;
  releases = 0;
  /** A request to be sent: its growth. */
  asking: number | null = null;
  private agreed: number;
  private onTop = new Map<number, Sums>(); // uploads that no download has contained yet
  private settled: Sums; // the sum of earlier ones
  private settledTo = 0;
  private waiting = new Map<string, Float64Array>();

  constructor(public terms: Terms) {
    this.model = modelOf(terms);
    this.exploring = terms.exploring;
    this.threshold = this.agreed = terms.trigger.threshold;
    this.uploaded = this.zero();
    this.settled = this.zero();
    if (terms.prior) {
      const { n, b, V, slack } = terms.prior;
      this.model.adopt({ n, b: Float64Array.from(b), V: square(V, terms.model.length) }, slack as unknown as Slack, 0);
    }
  }

  private zero(): Sums {
    return zeroSums(this.terms.model.length, this.terms.model.actions);
  }

  /** Go on under new terms, if what was learnt and sent means the same by them. */
  renew(terms: Terms): void {
    const { terms: old } = this;
    require(terms.member === old.member, "The member", terms.member, `${old.member}, as it was`);
    for (const name of ["length", "norm", "model", "features", "says"] as const) {
      const [one, other] = [terms[name], old[name]].map((value) => JSON.stringify(value));
      require(one === other, `The federation's ${name}`, terms[name], "as it was: begin with a new state");
    }
    if (terms.trigger.threshold !== old.trigger.threshold) this.threshold = this.agreed = terms.trigger.threshold;
    this.terms = terms;
  }

  // Choosing and learning

  /** Choose; with probability `explore` any arm instead, all equally likely. */
  select(arms: unknown, id: string, explore = 0): { choice: Choice; entry: Entry } {
    const X = this.checked(arms);
    require(isNumber(explore) && 0 <= explore && explore <= 1, "explore", explore, "a probability");
    const policy = this.exploring ? this.terms.explorer : this.terms.policy;
    const draw = new Draw(this.terms.draws.key, this.terms.draws.client, this.steps);
    const chosen = choose(policy, this.model, X, draw, this.terms.model.partialNoise);
    let { arm } = chosen;
    if (explore > 0) {
      const again = draw.exploration();
      if (again.uniform() < explore) arm = again.index(X.length);
    }
    this.steps++;
    this.await(id, X[arm].slice()); // the caller may change it
    return { choice: new Choice(arm, id, chosen.propensities, explore), entry: { c: [id, this.steps, Array.from(X[arm])] } };
  }

  private checked(arms: unknown): Float64Array[] {
    const { actions } = this.terms.model;
    const d = this.terms.length + Number(actions > 0);
    const rows = Array.isArray(arms) ? arms : [];
    const X = rows.map((row) => numbersOf(row));
    if (!X.length || X.includes(null)) throw new FedbanditError(`arms is ${shown(arms)}, but must be at least one list of ${d} numbers.`);
    for (const x of X as Float64Array[]) {
      require(x.length === d, "The length of a context", x.length, `${d}`);
      if (actions > 0 && !(Number.isInteger(x[0]) && 0 <= x[0] && x[0] < actions)) {
        throw new FedbanditError(`There is no action ${x[0]}: the terms have actions 0, …, ${actions - 1}.`);
      }
      const features = actions > 0 ? x.subarray(1) : x;
      const norm = Math.sqrt(dot(features, features));
      if (!(norm <= this.terms.norm * (1 + 1e-9))) require(false, "The norm of a context", norm, `at most ${this.terms.norm}`);
    }
    return X as Float64Array[];
  }

  private await(id: string, x: Float64Array): void {
    this.waiting.set(id, x);
    for (const oldest of this.waiting.keys()) {
      if (this.waiting.size <= WAITING) break;
      this.waiting.delete(oldest);
    }
  }

  observe(id: string, reward: unknown): Entry[] {
    const { bound, low, high, outside } = this.terms.rewards;
    require(isNumber(reward), "reward", reward, "a finite number");
    require(Math.abs(reward) <= bound, "reward", reward, `within ±${bound}, the reward_bound of this federation`);
    require(outside === "clip" || (low <= reward && reward <= high), "reward", reward, `between ${low} and ${high}`);
    const x = this.waiting.get(id);
    if (!x) throw new FedbanditError(`Choice ${shown(id)} is not waiting for a reward.`);
    const y = Math.min(Math.max(reward, low), high);
    this.waiting.delete(id);
    this.model.observe(x, y);
    return [{ r: [id, y] }, ...this.speak()];
  }

  forget(id: string): Entry {
    this.waiting.delete(id);
    return { f: id };
  }

  private speak(): Entry[] {
    const { says, oneByOne, trigger } = this.terms;
    if (this.exploring || this.model.silent || !this.fires(trigger.kind)) return [];
    if (says === "upload") return [this.upload()];
    const growth = this.timedGrowth();
    this.asking = oneByOne ? growth : 0;
    if (oneByOne) this.threshold = 2 * growth;
    return [];
  }

  private fires(kind: string): boolean {
    const { logdet, sharedLogdet, own, pendingN } = this.model;
    switch (kind) {
      case "growth":
        return logdet - sharedLogdet > this.threshold + TIE;
      case "timed-growth":
        return this.timedGrowth() > this.threshold + TIE;
      case "count-growth":
        if (pendingN < this.terms.trigger.batch || !Number.isFinite(this.threshold)) return false;
        return own >= this.threshold * (own - pendingN) - TIE;
      default:
        return false;
    }
  }

  private timedGrowth(): number {
    return this.model.pendingN * (this.model.logdet - this.model.sharedLogdet);
  }

  private known(): number {
    const { logdet, n } = this.model;
    if (this.terms.known === "log-det") return logdet;
    return this.terms.known === "log-count" ? (n > 0 ? Math.log(n) : -1e300) : 0;
  }

  private upload(): Entry {
    const sums = this.model.pending();
    this.model.markSent();
    const { member, model } = this.terms;
    const bytes = encode({ kind: "Upload", member, length: model.length, sequence: this.sequence + 1, sums, known: this.known() });
    this.record(bytes, sums);
    return { u: toHex(bytes) };
  }

  private record(bytes: Uint8Array, sums: Sums): void {
    this.sequence++;
    this.outbox.set(this.sequence, { bytes, before: this.chain, sums });
    this.onTop.set(this.sequence, sums);
    this.chain = extend(this.chain, bytes);
    this.uploaded = add(this.uploaded, sums);
    this.releases += Number(sums.n > 0);
    this.asking = null;
  }

  // Messages

  /** Take a message; what has changed, if anything has. */
  receive(message: Message): Entry[] {
    const { member, model } = this.terms;
    require(message.member === member, "The addressee", message.member, `client ${member}`);
    switch (message.kind) {
      case "Receipt": {
        const open = this.outbox.size;
        this.acknowledge(message.sequence);
        return open === this.outbox.size ? [] : [taken(message)];
      }
      case "Threshold":
        this.threshold = this.agreed = message.threshold;
        return [taken(message)];
      case "Download": {
        require(message.sums.blocks?.of === (model.actions || undefined), "The number of actions", message.sums.blocks?.of, `${model.actions}`);
        const d = message.length ?? message.sums.b.length;
        require(d === model.length, "The dimension", d, `${model.length}`);
        if (!message.own) throw new FedbanditError("The download has the others' statistics alone, which this client cannot weigh.");
        return this.download(message);
      }
      case "Collect": {
        if (message.epoch <= this.epoch) return [];
        this.epoch = message.epoch;
        this.exploring = false;
        this.threshold = this.agreed;
        return [taken(message), this.upload()];
      }
      default:
        throw new FedbanditError(`A client does not take a ${message.kind}.`);
    }
  }

  private download(message: Message & { kind: "Download" }): Entry[] {
    if (message.acknowledged < this.settledTo) return []; // what it lacks cannot be told apart any more
    this.threshold = this.agreed;
    this.acknowledge(message.acknowledged);
    if (message.version <= this.model.version) return [];
    for (const number of this.onTop.keys()) if (number <= message.acknowledged) this.onTop.delete(number);
    this.settled = this.zero();
    let sums = message.sums;
    for (const own of this.onTop.values()) sums = add(sums, own);
    this.model.adopt(sums, message.slack, message.version);
    this.asking = null;
    return [taken(message)];
  }

  private acknowledge(sequence: number): void {
    for (const number of [...this.outbox.keys()]) if (number <= sequence) this.outbox.delete(number);
    while (this.onTop.size - this.outbox.size > ON_TOP) {
      const first = this.onTop.keys().next().value as number;
      this.settled = add(this.settled, this.onTop.get(first)!);
      this.onTop.delete(first);
      this.settledTo = first;
    }
  }

  join(): Uint8Array {
    return encode({ kind: "Join", member: this.terms.member, version: this.model.version, epoch: this.epoch });
  }

  restate(): Uint8Array {
    const { sequence, releases, uploaded: sums } = this;
    const { member, model } = this.terms;
    return encode({ kind: "Restate", member, length: model.length, sequence, releases, sums, known: this.known() });
  }

  // How it is kept

  /** Repeat what is on record. */
  apply(entry: Entry): void {
    if ("c" in entry) {
      this.steps = entry.c[1];
      this.await(entry.c[0], Float64Array.from(entry.c[2]));
    } else if ("r" in entry) {
      const x = this.waiting.get(entry.r[0]);
      this.waiting.delete(entry.r[0]);
      if (x) this.model.observe(x, entry.r[1]);
    } else if ("f" in entry) {
      this.waiting.delete(entry.f);
    } else if ("u" in entry) {
      const upload = decode(fromHex(entry.u));
      if (upload.kind !== "Upload") throw new FedbanditError("The stored state has no upload where one is expected.");
      this.model.markSent();
      this.record(fromHex(entry.u), upload.sums);
    } else {
      const message = decode(fromHex(entry.m));
      if (message.kind === "Collect") {
        this.epoch = message.epoch;
        this.exploring = false;
        this.threshold = this.agreed;
      } else this.receive(message);
    }
  }

  dump(): StoredMachine {
    return {
      model: this.model.dump(),
      outbox: [...this.outbox].map(([number, { bytes, before }]) => [number, toHex(bytes), toHex(before)]),
      onTop: [...this.onTop].map(([number, sums]) => [number, stored(sums)]),
      settled: [this.settledTo, stored(this.settled)],
      uploaded: stored(this.uploaded),
      releases: this.releases,
      sequence: this.sequence,
      chain: toHex(this.chain),
      steps: this.steps,
      epoch: this.epoch,
      exploring: this.exploring,
      thresholds: [written(this.threshold), written(this.agreed)],
      waiting: [...this.waiting].map(([id, x]) => [id, Array.from(x)]),
    };
  }

  load(from: StoredMachine): void {
    this.model.load(from.model);
    this.onTop = new Map(from.onTop.map(([number, sums]) => [number, read(sums)]));
    this.outbox.clear();
    for (const [number, bytes, before] of from.outbox) {
      const sums = (decode(fromHex(bytes)) as Message & { kind: "Upload" }).sums;
      this.outbox.set(number, { bytes: fromHex(bytes), before: fromHex(before), sums });
    }
    [this.settledTo, this.settled] = [from.settled[0], read(from.settled[1])];
    this.uploaded = read(from.uploaded);
    ({ releases: this.releases, sequence: this.sequence, steps: this.steps } = from);
    ({ epoch: this.epoch, exploring: this.exploring } = from);
    this.chain = fromHex(from.chain);
    [this.threshold, this.agreed] = from.thresholds.map(Number);
    this.waiting = new Map(from.waiting.map(([id, x]) => [id, Float64Array.from(x)]));
  }
}

type StoredSums = { n: number; b: number[]; V: number[]; blocks?: Sums["blocks"] };

function modelOf({ model, length }: Terms): Model {
  if (model.kind === "per-action") return new ActionModel(model.length, model.actions, model.ridge);
  if (model.kind === "two-part") return new TwoPartModel(model, length, model.ridge);
  return new RidgeModel(model.length, model.ridge);
}

export interface StoredMachine {
  model: unknown;
  outbox: [number, string, string][];
  onTop: [number, StoredSums][];
  settled: [number, StoredSums];
  uploaded: StoredSums;
  releases: number;
  sequence: number;
  chain: string;
  steps: number;
  epoch: number;
  exploring: boolean;
  thresholds: (number | string)[];
  waiting: [string, number[]][];
}

function stored(sums: Sums): StoredSums {
  return { n: sums.n, b: Array.from(sums.b), V: Array.from(sums.V), blocks: sums.blocks };
}

function read(sums: StoredSums): Sums {
  const blocks = sums.blocks ? { blocks: sums.blocks } : {};
  return { n: sums.n, b: Float64Array.from(sums.b), V: Float64Array.from(sums.V), ...blocks };
}

function written(value: number): number | string {
  return Number.isFinite(value) ? value : String(value); // JSON has no infinities
}

function taken(message: Message): Entry {
  return { m: toHex(encode(message)) };
}

/** A copy of a list of finite numbers; null if it is none. */
function numbersOf(row: unknown): Float64Array | null {
  if (!Array.isArray(row) && !(ArrayBuffer.isView(row) && !(row instanceof DataView))) return null;
  if (row instanceof Float64Array) return allFinite(row) ? row : null; // not copied: the chosen one is
  const given = row as ArrayLike<unknown>;
  const x = new Float64Array(given.length);
  for (let i = 0; i < x.length; i++) {
    const value = given[i];
    if (!isNumber(value)) return null;
    x[i] = value;
  }
  return x;
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}
