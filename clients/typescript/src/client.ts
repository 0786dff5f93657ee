/**
 * A member of a federation: it chooses at once, keeps everything in its store, and talks in the background.
 *
 *     const client = await Client.open({ url, federation: "shops", token, state: "client.journal" });
 *     const choice = client.select(arms);           // never waits for the network
 *     await client.observe(1, choice);              // later, out of order, after a restart: choice.id
 */
import { DurableClient, refusalOf } from "./durable.js";
import { FedbanditError, Refused, require } from "./errors.js";
import { Features } from "./features.js";
import type { Choice } from "./machine.js";
import { entropy, type Platform, type Socket } from "./platform.js";
import type { Store } from "./store.js";
import type { Terms } from "./terms.js";

const FIRST_PAUSE = 100;
const LONGEST_PAUSE = 30_000;
const PATIENCE = 30_000; // for an answer
const SETTLED = 30_000; // of connection after which pauses begin anew
const LAZY_WRITE = 1000; // choices are written within this time

export interface Status {
  member: number;
  observed: number;
  pending: number;
  unacknowledged: number;
  uploads: number;
  version: number;
  connected: boolean;
  problem: string | null;
}

export class Client {
  /** A sentence if a person has to do something; being offline is well. */
  problem: string | null = null;
  private socket: Socket | null = null;
  private pause = FIRST_PAUSE;
  private closed = false;
  private working: Promise<void> = Promise.resolve(); // one thing after the other
  private timers = new Map<string, ReturnType<typeof setTimeout>>();
  private settled: (() => void)[] = [];

  private constructor(
    private readonly durable: DurableClient,
    private readonly platform: Platform,
  ) {}

  /** Open the store; only the very first time the coordinator has to be reached. */
  static async start(platform: Platform, store: Store): Promise<Client> {
    const durable = await DurableClient.open(store, () => platform.invitation(), entropy);
    const client = new Client(durable, platform);
    if (durable.terms.says !== "nothing") client.connect();
    return client;
  }

  get terms(): Terms {
    return this.durable.terms;
  }

  /** How named values become features, if the federation has agreed on that. */
  get features(): Features | null {
    const encoding = this.terms.features?.encoding;
    return encoding == null ? null : new Features(encoding);
  }

  /** Choose one of the arms: lists of features, as many as the federation's dimension (one fewer with an intercept). */
  select(arms: ArrayLike<number>[]): Choice {
    this.checkOpen();
    const choice = this.durable.select(encoded(arms, this.terms));
    this.later("write", LAZY_WRITE, () => this.work(() => this.durable.flush()));
    return choice;
  }

  /** Learn the reward of a choice; it is in the store when the promise is fulfilled. */
  async observe(reward: number, choice: Choice | string): Promise<void> {
    this.checkOpen();
    await this.durable.observe(typeof choice === "string" ? choice : choice.id, reward);
    this.work(() => this.sendWhatIsDue());
  }

  /** The reward of this choice will never come. */
  forget(choice: Choice | string): void {
    this.checkOpen();
    this.durable.forget(typeof choice === "string" ? choice : choice.id);
  }

  status(): Status {
    const { model, outbox, sequence } = this.durable.machine;
    return {
      member: this.terms.member,
      observed: model.own,
      pending: model.pendingN,
      unacknowledged: outbox.size,
      uploads: sequence,
      version: model.version,
      connected: this.durable.connected,
      problem: this.problem,
    };
  }

  /** θ̂ now. */
  get theta(): number[] {
    return Array.from(this.durable.machine.model.theta);
  }

  /** Wait until everything that was to be sent has been acknowledged; false if it takes longer than `timeout` ms. */
  async flush(timeout = 10_000): Promise<boolean> {
    this.checkOpen();
    await this.durable.flush();
    if (this.durable.machine.outbox.size === 0) return true;
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), timeout);
      this.settled.push(() => {
        clearTimeout(timer);
        resolve(true);
      });
    });
  }

  /** Stop talking and close the store; what was not sent is sent when it is opened again. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    for (const timer of this.timers.values()) clearTimeout(timer);
    this.durable.disconnect();
    this.socket?.close();
    await this.working;
    await this.durable.close();
  }

  private checkOpen(): void {
    if (this.closed) throw new FedbanditError("The client has been closed.");
  }

  // The connection

  private connect(): void {
    const begun = Date.now();
    let over = false;
    const ended = (reason: string) => {
      if (over) return;
      over = true;
      this.durable.disconnect();
      this.cancel("answer");
      if (this.closed) return;
      if (Date.now() - begun > SETTLED) this.pause = FIRST_PAUSE;
      void reason;
      this.later("reconnect", this.pause * (0.5 + 0.5 * Math.random()), () => this.connect());
      this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
    };
    const mine = (what: () => Promise<void>) =>
      this.work(async () => {
        if (over || this.closed) return;
        try {
          await what();
        } catch (error) {
          if (!(error instanceof FedbanditError)) throw error;
          this.trouble(error);
          this.socket?.close();
          ended(error.message);
        }
      });
    this.socket = this.platform.connect({
      opened: () =>
        mine(async () => {
          this.send(this.durable.connect());
          await this.sendWhatIsDue();
        }),
      received: (data) =>
        mine(async () => {
          await this.durable.take(data);
          this.problem = null;
          if (this.durable.awaits === null) this.cancel("answer");
          await this.sendWhatIsDue();
        }),
      ended,
    });
  }

  private trouble(error: FedbanditError): void {
    if (error instanceof Refused && error.transient) return;
    this.problem = error.message;
    this.pause = LONGEST_PAUSE; // it goes on trying, slowly
  }

  private async sendWhatIsDue(): Promise<void> {
    this.send(await this.durable.next());
    if (this.durable.machine.outbox.size === 0) this.settled.splice(0).forEach((done) => done());
  }

  private send(frames: Uint8Array[]): void {
    for (const frame of frames) this.socket?.send(frame);
    if (frames.length && this.durable.awaits !== null) {
      this.later("answer", PATIENCE, () => this.socket?.close());
    }
  }

  /** Do one thing after the other; a fault is a problem, not silence. */
  private work(what: () => Promise<void>): void {
    this.working = this.working.then(what).catch((error: unknown) => {
      this.problem = error instanceof Error ? error.message : String(error);
    });
  }

  private later(name: string, milliseconds: number, what: () => void): void {
    if (name === "write" && this.timers.has(name)) return;
    this.cancel(name);
    const timer = setTimeout(() => {
      this.timers.delete(name);
      what();
    }, milliseconds);
    (timer as { unref?: () => void }).unref?.(); // a program that has nothing else to do may end
    this.timers.set(name, timer);
  }

  private cancel(name: string): void {
    clearTimeout(this.timers.get(name));
    this.timers.delete(name);
  }
}

/** Contexts from features (docs/protocol.md, "Features"). */
function encoded(arms: ArrayLike<number>[], terms: Terms): unknown {
  if (!terms.features) return arms;
  require(Array.isArray(arms), "arms", arms, "a list of lists of numbers");
  const { intercept, longest } = terms.features;
  const most = longest ?? (intercept ? terms.norm / Math.SQRT2 : terms.norm);
  const scale = intercept ? terms.norm / (Math.SQRT2 * most) : terms.norm / most;
  return arms.map((row) => [...Array.from(row), ...(intercept ? [most] : [])].map((x) => (typeof x === "number" ? scale * x : x)));
}

export { refusalOf };
