/** What a client was invited to: resolved numbers (docs/protocol.md, "Invitation"), checked before anything is done with them. */
import { FedbanditError, require } from "./errors.js";
import type { Encoding } from "./features.js";
import { fromHex } from "./messages.js";

export interface PolicyTerms {
  kind: string;
  alpha: number | null;
  noise: number;
  confidence: number;
  scale: number;
  gamma: number | null;
}

export interface Terms {
  federation: string;
  name: string;
  member: number;
  digest: Uint8Array;
  length: number;
  norm: number;
  features: { names: string[] | null; intercept: boolean; longest: number | null; encoding: Encoding | null } | null;
  rewards: { bound: number; low: number; high: number; outside: "clip" | "refuse" };
  model: {
    kind: "ridge" | "two-part" | "per-action";
    /** Of the statistics that are exchanged. */
    length: number;
    ridge: number;
    partialNoise: number;
    /** How many actions have a θ of their own, and their names if they have any; 0: one θ. */
    actions: number;
    names: string[] | null;
    first: number;
    size: number;
    own: number;
    starting: boolean;
  };
  policy: PolicyTerms;
  explorer: PolicyTerms;
  exploring: boolean;
  draws: { key: [number, number]; client: number };
  trigger: { kind: string; threshold: number; batch: number };
  says: "upload" | "request" | "nothing";
  oneByOne: boolean;
  known: "log-det" | "log-count" | "nothing";
  prior: { n: number; b: number[]; V: number[]; slack: number[] } | null;
}

export const CAPABILITIES = new Set([
  ...["ridge", "two-part", "per-action"],
  ...["growth", "timed-growth", "count-growth", "silence", "upload", "request", "one-by-one", "exploring"],
  ...["ucb", "squared", "greedy", "widest", "lints", "linphe", "uniform", "igw"],
]);

/** The terms of an invitation; what this client cannot do is refused with its name. */
export function readInvitation(invitation: unknown): Terms {
  const said = table(invitation, "The invitation");
  if (!list(said.versions, "versions").includes(1)) {
    throw new FedbanditError(`The coordinator speaks versions ${JSON.stringify(said.versions)} of the protocol; this client, 1.`);
  }
  const client = table(said.client, "client");
  for (const name of list(client.capabilities, "capabilities")) {
    if (!CAPABILITIES.has(String(name))) {
      throw new FedbanditError(`The federation needs '${name}', which this client cannot do; it stays offline.`);
    }
  }
  const contexts = table(client.contexts, "contexts");
  const rewards = table(client.rewards, "rewards");
  const model = table(client.model, "model");
  const trigger = table(client.trigger, "trigger");
  const draws = table(client.draws, "draws");
  const privacy = table(client.privacy, "privacy");
  if (privacy.kind !== "none") {
    throw new FedbanditError(`The federation is private (${privacy.kind}), and this client draws no noise yet; it stays offline.`);
  }
  const features = client.features === null ? null : table(client.features, "features");
  return {
    federation: String(said.federation),
    name: String(said.name),
    member: number(said.member, "member"),
    digest: fromHex(String(said.digest)),
    length: number(contexts.length, "contexts.length"),
    norm: number(contexts.norm, "contexts.norm"),
    features: features && {
      names: features.features === null ? null : list(features.features, "features").map(String),
      intercept: Boolean(features.intercept),
      longest: features.longest === null ? null : number(features.longest, "features.longest"),
      encoding: features.encoding == null ? null : (table(features.encoding, "features.encoding") as Encoding),
    },
    rewards: {
      bound: number(rewards.bound, "rewards.bound"),
      low: number(rewards.low, "rewards.low"),
      high: number(rewards.high, "rewards.high"),
      outside: oneOf(rewards.outside, "rewards.outside", ["clip", "refuse"]),
    },
    model: {
      kind: oneOf(model.kind, "model", ["ridge", "two-part", "per-action"]),
      length: number(model.length, "model.length"),
      ridge: number(model.ridge, "model.ridge"),
      partialNoise: number(model.partial_noise, "model.partial_noise"),
      actions: maybe(model.actions, "model.actions"),
      names: model.names == null ? null : list(model.names, "model.names").map(String),
      first: maybe(model.first, "model.first"),
      size: maybe(model.size, "model.size"),
      own: maybe(model.own, "model.own"),
      starting: Boolean(model.starting),
    },
    policy: policy(client.policy, "policy"),
    explorer: policy(client.explorer, "explorer"),
    exploring: Boolean(client.exploring),
    draws: {
      key: list(draws.key, "draws.key").map((k) => number(k, "draws.key")) as [number, number],
      client: number(draws.client, "draws.client"),
    },
    trigger: {
      kind: oneOf(trigger.kind, "trigger", ["growth", "timed-growth", "count-growth", "silence"]),
      threshold: trigger.threshold === undefined ? Infinity : number(trigger.threshold, "trigger.threshold"),
      batch: trigger.batch === undefined ? 1 : number(trigger.batch, "trigger.batch"),
    },
    says: oneOf(client.says, "says", ["upload", "request", "nothing"]),
    oneByOne: Boolean(client.one_by_one),
    known: oneOf(client.known, "known", ["log-det", "log-count", "nothing"]),
    prior: client.prior as Terms["prior"],
  };
}

function maybe(value: unknown, where: string): number {
  return value === undefined ? 0 : number(value, where);
}

function policy(value: unknown, where: string): PolicyTerms {
  const said = table(value, where);
  const maybe = (name: string) => (said[name] == null ? null : number(said[name], `${where}.${name}`));
  return {
    kind: oneOf(said.kind, where, ["ucb", "squared", "greedy", "widest", "lints", "linphe", "uniform", "igw"]),
    alpha: maybe("alpha"),
    noise: maybe("noise") ?? 0,
    confidence: maybe("confidence") ?? 0.1,
    scale: maybe("scale") ?? 1,
    gamma: maybe("gamma"),
  };
}

function table(value: unknown, where: string): Record<string, any> {
  require(typeof value === "object" && value !== null && !Array.isArray(value), where, value, "an object");
  return value as Record<string, any>;
}

function list(value: unknown, where: string): unknown[] {
  require(Array.isArray(value), where, value, "a list");
  return value;
}

/** A number; infinities are texts, as JSON has none. */
function number(value: unknown, where: string): number {
  const read = value === "inf" ? Infinity : value === "-inf" ? -Infinity : value;
  require(typeof read === "number" && !Number.isNaN(read), where, value, "a number");
  return read;
}

function oneOf<T extends string>(value: unknown, where: string, known: readonly T[]): T {
  require(known.includes(value as T), where, value, `one of ${known.join(", ")}`);
  return value as T;
}
