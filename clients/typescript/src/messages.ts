/** Messages and frames as bytes (docs/protocol.md, "Frames and messages"). */
import { FedbanditError } from "./errors.js";
import { sha256 } from "./sha256.js";
import { type Slack, type Sums, blocksOf, joinBlocks, square, triangle } from "./sums.js";

/** `length` is the number of features where statistics are in blocks. */
export type Message = { length?: number } & (
  | { kind: "Join"; member: number; version: number; epoch: number }
  | { kind: "Upload"; member: number; sequence: number; sums: Sums; known: number }
  | { kind: "Receipt"; member: number; sequence: number }
  | { kind: "Download"; member: number; version: number; acknowledged: number; sums: Sums; slack: Slack; own: boolean }
  | { kind: "Request"; member: number; growth: number }
  | { kind: "Collect"; member: number; epoch: number; included: number }
  | { kind: "Threshold"; member: number; threshold: number }
  | { kind: "Recall"; member: number; sequence: number }
  | { kind: "Restate"; member: number; sequence: number; releases: number; sums: Sums; known: number }
);

const KINDS: Record<Message["kind"], number> = {
  Join: 1,
  Upload: 2,
  Receipt: 3,
  Download: 4,
  Request: 5,
  Collect: 6,
  Threshold: 9,
  Recall: 20,
  Restate: 21,
};
const CARRY = [KINDS.Upload, KINDS.Download, KINDS.Restate];
const NAMES = new Map(Object.entries(KINDS).map(([name, kind]) => [kind, name as Message["kind"]]));
const IN_BLOCKS = 32; // added to the kind: statistics of some actions, each with a θ of its own
const HEADER = 40;
const FORMAT = 3;
const SLACK = 6;

/** `known` to the nearest multiple of 2⁻³⁰: log-determinants differ in last bits, whole uploads should not. */
export function onGrid(known: number): number {
  return Math.abs(known) < 2 ** 20 ? Math.round(known * 2 ** 30) / 2 ** 30 : known;
}

export function encode(message: Message): Uint8Array {
  switch (message.kind) {
    case "Join":
      return pack(message, message.version, message.epoch);
    case "Upload":
      return pack(message, message.sequence, 0, onGrid(message.known), message.sums);
    case "Receipt":
    case "Recall":
      return pack(message, message.sequence);
    case "Download":
      return pack(message, message.version, message.acknowledged, Number(message.own), message.sums, message.slack);
    case "Request":
      return pack(message, 0, 0, message.growth);
    case "Collect":
      return pack(message, message.epoch, message.included);
    case "Threshold":
      return pack(message, 0, 0, message.threshold);
    case "Restate":
      return pack(message, message.sequence, message.releases, onGrid(message.known), message.sums);
  }
}

function pack(message: Message, first: number, second = 0, real = 0, sums?: Sums, slack?: Slack): Uint8Array {
  const blocks = sums?.blocks;
  const parts = !sums ? [] : blocks ? [...blocksOf(sums).values()] : [sums];
  const d = blocks ? message.length! : sums ? sums.b.length : 0;
  const view = new DataView(new ArrayBuffer(sizeOf(KINDS[message.kind], d, blocks?.actions.length)));
  view.setUint16(0, 0x4642); // "FB"
  view.setUint8(2, FORMAT);
  view.setUint8(3, KINDS[message.kind] + (blocks ? IN_BLOCKS : 0));
  view.setUint32(4, d, true);
  view.setBigUint64(8, BigInt(message.member), true);
  view.setBigUint64(16, BigInt(first), true);
  view.setBigUint64(24, BigInt(second), true);
  view.setFloat64(32, real, true);
  if (sums) {
    view.setBigUint64(HEADER, BigInt(sums.n), true);
    let at = HEADER + 8;
    if (blocks) {
      view.setUint32(at, blocks.of, true);
      view.setUint32(at + 4, blocks.actions.length, true);
      blocks.actions.forEach((action, k) => view.setBigUint64(at + 8 + 8 * k, BigInt(action), true));
      at += 8 + 8 * blocks.actions.length;
    }
    for (const numbers of [...parts.map((part) => part.b), ...parts.map((part) => triangle(part.V, d)), slack ?? []]) {
      for (const x of numbers) {
        view.setFloat64(at, x, true);
        at += 8;
      }
    }
  }
  return new Uint8Array(view.buffer);
}

/** Bytes of a message; in blocks, of so many. */
function sizeOf(kind: number, d: number, blocks?: number): number {
  const sums = 8 * (d + (d * (d + 1)) / 2);
  const statistics = 8 + (blocks === undefined ? sums : 8 + blocks * (8 + sums));
  return HEADER + (CARRY.includes(kind) ? statistics : 0) + (kind === KINDS.Download ? 8 * SLACK : 0);
}

export function decode(data: Uint8Array): Message {
  if (data.length < HEADER) throw new FedbanditError(`The message has ${data.length} bytes, but a header has ${HEADER}.`);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const [format, number, d] = [view.getUint8(2), view.getUint8(3), view.getUint32(4, true)];
  if (view.getUint16(0) !== 0x4642 || format !== FORMAT) {
    throw new FedbanditError(`The message is of format ${format}, but must be 'FB' of format ${FORMAT}.`);
  }
  const inBlocks = CARRY.includes(number - IN_BLOCKS);
  const plain = inBlocks ? number - IN_BLOCKS : number;
  const kind = NAMES.get(plain);
  if (!kind) throw new FedbanditError(`The message is of kind ${number}, which this client does not know.`);
  const m = inBlocks && data.length >= HEADER + 16 ? view.getUint32(HEADER + 12, true) : undefined;
  if (m === 0 && d > 2 ** 16) throw new FedbanditError(`The message has blocks of ${d} features, but at most 65536 are taken.`);
  const size = sizeOf(plain, d, inBlocks ? (m ?? 0) : undefined);
  if (data.length !== size) throw new FedbanditError(`A ${kind} of dimension ${d} has ${size} bytes, got ${data.length}.`);
  const [member, first, second] = [8, 16, 24].map((at) => whole(view, at));
  const real = finite(view, 32);
  const sums = (): Sums => {
    const read = (at: number, count: number) => Float64Array.from({ length: count }, (_, i) => finite(view, at + 8 * i));
    const [n, triangular] = [whole(view, HEADER), (d * (d + 1)) / 2];
    if (m === undefined) return { n, b: read(HEADER + 8, d), V: square(read(HEADER + 8 + 8 * d, triangular), d) };
    const of = view.getUint32(HEADER + 8, true);
    const actions = Array.from({ length: m }, (_, k) => whole(view, HEADER + 16 + 8 * k));
    if (actions.some((action, k) => action >= of || (k > 0 && action <= actions[k - 1]))) {
      throw new FedbanditError(`The message has statistics of actions that are not ascending numbers below ${of}.`);
    }
    const at = HEADER + 16 + 8 * m;
    const V = (k: number) => square(read(at + 8 * (m * d + k * triangular), triangular), d);
    return joinBlocks(new Map(actions.map((action, k) => [action, { n: 0, b: read(at + 8 * k * d, d), V: V(k) }])), n, of);
  };
  const length = m === undefined ? {} : { length: d };
  switch (kind) {
    case "Join":
      return { kind, member, version: first, epoch: second };
    case "Upload":
      return { kind, member, sequence: first, sums: sums(), known: real, ...length };
    case "Receipt":
    case "Recall":
      return { kind, member, sequence: first };
    case "Download": {
      const at = data.length - 8 * SLACK;
      const slack = Array.from({ length: SLACK }, (_, i) => finite(view, at + 8 * i)) as unknown as Slack;
      return { kind, member, version: first, acknowledged: second, sums: sums(), slack, own: real === 1, ...length };
    }
    case "Request":
      return { kind, member, growth: real };
    case "Collect":
      return { kind, member, epoch: first, included: second };
    case "Threshold":
      return { kind, member, threshold: real };
    case "Restate":
      return { kind, member, sequence: first, releases: second, sums: sums(), known: real, ...length };
  }
}

function whole(view: DataView, at: number): number {
  const value = Number(view.getBigUint64(at, true));
  if (!Number.isSafeInteger(value)) throw new FedbanditError(`The message has a number of ${value}, beyond 2⁵³.`);
  return value;
}

function finite(view: DataView, at: number): number {
  const value = view.getFloat64(at, true);
  if (!Number.isFinite(value)) throw new FedbanditError(`The message carries the number ${value}, which is not finite.`);
  return value;
}

export const NO_CHAIN = new Uint8Array(16);

/** The chain after an upload. */
export function extend(chain: Uint8Array, upload: Uint8Array): Uint8Array {
  return sha256(joined(chain, upload)).slice(0, 16);
}

export interface Envelope {
  epoch: number;
  incarnation: bigint;
  nonce: bigint;
  sequence: number;
  chain: Uint8Array;
  terms: Uint8Array;
}

/** A frame: an envelope and a message. */
export function seal(envelope: Envelope, message: Uint8Array): Uint8Array {
  const view = new DataView(new ArrayBuffer(64));
  view.setUint16(0, 0x4645); // "FE"
  view.setUint8(2, 2);
  view.setUint32(4, envelope.epoch, true);
  view.setBigUint64(8, envelope.incarnation, true);
  view.setBigUint64(16, envelope.nonce, true);
  view.setBigUint64(24, BigInt(envelope.sequence), true);
  const head = new Uint8Array(view.buffer);
  head.set(envelope.chain, 32);
  head.set(envelope.terms, 48);
  return joined(head, message);
}

export function joined(...parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export function toHex(data: Uint8Array): string {
  return Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text: string): Uint8Array {
  if (text.length % 2 || /[^0-9a-f]/i.test(text)) throw new FedbanditError(`'${text.slice(0, 20)}' is not hexadecimal.`);
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}
