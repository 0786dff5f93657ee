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
import { entropy, invited, type Platform, type Socket } from "./platform.js";
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

export interface SelectOptions {
  /** Where each action has a θ of its own: the arms' actions, by number or by name. */
  actions?: (number | string)[];
  /** With this probability any arm is chosen instead, all equally likely: a log then tells about other policies. */
  explore?: number;
}

export class Client {
  /** A sentence if a person has to do something; being offline is well. */
  problem: string | null = null;
  private socket: Socket | null = null;
  private pause = FIRST_PAUSE;
  private tried = 0; // coordinators, since the last pause
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
    const durable = await DurableClient.open(store, () => invited(platform), entropy, () => platform.decline());
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

  /**
   * Choose one of the arms: lists of features, as many as the federation's dimension (one fewer with an intercept).
   * Where each action has a θ of its own, `actions` says which they are; a single list is for all of them.
   */
  select(arms: ArrayLike<number>[], { actions, explore = 0 }: SelectOptions = {}): Choice {
    this.checkOpen();
    const choice = this.durable.select(ofActions(encoded(arms, this.terms), actions, this.terms), explore);
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
    const { address } = this.platform;
    let over = false;
    let owner = "";
    this.tried++;
    const ended = () => {
      if (over) return;
      over = true;
      this.durable.disconnect();
      this.cancel("answer");
      if (this.closed) return;
      if (Date.now() - begun > SETTLED) [this.pause, this.tried] = [FIRST_PAUSE, 0];
      // The owner, at once; unless they send each other's clients round and round.
      if (address.follow(owner) && this.tried <= 2 * address.urls.length) return this.later("reconnect", 0, () => this.connect());
      address.turn();
      if (this.tried < address.urls.length) return this.later("reconnect", 0, () => this.connect());
      this.tried = 0;
      this.later("reconnect", this.pause * (0.5 + 0.5 * Math.random()), () => this.connect());
      this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
    };
    const refused = async (error: FedbanditError) => {
      owner = error instanceof Refused ? error.owner : "";
      if (error instanceof Refused && error.kind === "terms") await this.renew();
      else this.trouble(error);
    };
    const mine = (what: () => Promise<void>) =>
      this.work(async () => {
        if (over || this.closed) return;
        try {
          await what();
        } catch (error) {
          if (!(error instanceof FedbanditError)) throw error;
          await refused(error);
          this.socket?.close();
          ended();
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
      refused: (why) => mine(() => Promise.reject(why)),
      ended: () => this.work(async () => ended()),
    });
  }

  /** Ask for the invitation again: the federation's terms have changed. */
  private async renew(): Promise<void> {
    try {
      await this.durable.renew(await this.platform.invitation());
      this.problem = null;
    } catch (error) {
      if (!(error instanceof FedbanditError)) throw error;
      this.trouble(new FedbanditError(`The terms of the federation have changed: ${error.message}`));
    }
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

/** Rows (action, features), where each action has a θ of its own. */
function ofActions(arms: unknown, given: (number | string)[] | undefined, { model }: Terms): unknown {
  if (model.actions === 0) {
    require(given === undefined, "actions", given, "left out: all arms of this federation share one θ");
    return arms;
  }
  require(Array.isArray(arms), "arms", arms, "a list of lists of numbers");
  require(given === undefined || Array.isArray(given), "actions", given, "a list, one for each arm");
  const actions = (given ?? Array.from({ length: model.actions }, (_, a) => a)).map((action) => {
    if (typeof action === "number") return action;
    const number = model.names?.indexOf(action) ?? -1;
    if (number < 0) throw new FedbanditError(`There is no action '${action}': the terms have ${model.names?.slice(0, 20).join(", ") ?? "numbers"}.`);
    return number;
  });
  const one = arms.length === 1;
  require(one || arms.length === actions.length, "The number of lists of features", arms.length, `1 or ${actions.length}, one for each action`);
  return actions.map((action, k) => {
    const row = arms[one ? 0 : k];
    return Array.isArray(row) || ArrayBuffer.isView(row) ? [action, ...Array.from(row as ArrayLike<number>)] : row;
  });
}

export { refusalOf };
