/** Named numbers, booleans, categories and ids as bounded vectors (docs/protocol.md, "Features"): the same bits as in Python. */
import { FedbanditError, require, shown } from "./errors.js";
import { sha256 } from "./sha256.js";

export type Declaration = "boolean" | { number: [number, number] } | { category: string[]; other?: boolean } | { hash: number };
export type Value = number | string | boolean | null | (string | number)[];
export type Values = Record<string, Value>;

export interface Encoding {
  context?: Record<string, Declaration>;
  action?: Record<string, Declaration>;
  interactions?: [string, string][];
  intercept?: boolean;
}

export class Features {
  /** The length of a context. */
  readonly length: number;
  private readonly context: [string, Declaration][];
  private readonly action: [string, Declaration][];
  private readonly interactions: [string, string][];
  private readonly intercept: boolean;

  constructor(encoding: Encoding) {
    this.context = sorted(encoding.context ?? {});
    this.action = sorted(encoding.action ?? {});
    this.interactions = encoding.interactions ?? [];
    this.intercept = encoding.intercept ?? true;
    const sizes = new Map([...this.context, ...this.action].map(([name, declared]) => [name, sizeOf(declared)]));
    for (const name of this.interactions.flat()) require(sizes.has(name), "a column of an interaction", name, "declared");
    const size = (name: string) => sizes.get(name)!;
    const own = [...sizes.values()].reduce((sum, n) => sum + n, 0);
    this.length = this.interactions.reduce((sum, [a, b]) => sum + size(a) * size(b), own) + Number(this.intercept);
  }

  /** A context for each action in a situation, to be given to `client.select`. */
  transform(actions: Values[], context: Values = {}): number[][] {
    require(Array.isArray(actions) && actions.length > 0, "actions", actions, "a list with an action");
    const situation = encoded("context", this.context, context);
    const blocks = this.context.length + this.action.length + this.interactions.length + Number(this.intercept);
    const scale = 1 / Math.sqrt(blocks);
    return actions.map((action) => {
      const parts = new Map([...situation, ...encoded("action", this.action, action)]);
      const products = this.interactions.flatMap(([a, b]) => parts.get(a)!.flatMap((x) => parts.get(b)!.map((y) => x * y)));
      return [...[...parts.values()].flat(), ...products, ...(this.intercept ? [1] : [])].map((x) => x * scale);
    });
  }
}

function encoded(part: string, columns: [string, Declaration][], given: Values): Map<string, number[]> {
  require(typeof given === "object" && given !== null && !Array.isArray(given), `the ${part}`, given, "an object with a value for each column");
  for (const name of Object.keys(given)) {
    if (!columns.some(([known]) => known === name)) {
      throw new FedbanditError(`There is no column of the ${part} '${name}'; there are: ${columns.map(([known]) => known).join(", ")}.`);
    }
  }
  return new Map(columns.map(([name, declared]) => {
    if (!Object.hasOwn(given, name)) {
      throw new FedbanditError(`Column '${name}' of the ${part} is missing; give null if it is not known.`);
    }
    const value = given[name];
    return [name, value === null ? new Array<number>(sizeOf(declared)).fill(0) : entries(name, declared, value)];
  }));
}

function entries(name: string, declared: Declaration, value: Value): number[] {
  const column = `column '${name}'`;
  if (declared === "boolean") {
    require(typeof value === "boolean", column, value, "true or false");
    return [value ? 1 : -1];
  }
  if ("number" in declared) {
    require(typeof value === "number" && Number.isFinite(value), column, value, "a finite number");
    const [low, high] = declared.number;
    return [2 * ((Math.min(Math.max(value, low), high) - low) / (high - low)) - 1];
  }
  if ("category" in declared) {
    require(typeof value === "string", column, value, "a text");
    const place = declared.category.indexOf(value);
    if (place < 0 && !declared.other) {
      throw new FedbanditError(`There is no value of ${column} ${shown(value)}; there are: ${declared.category.join(", ")}.`);
    }
    const x = new Array<number>(sizeOf(declared)).fill(0);
    x[place < 0 ? x.length - 1 : place] = 1;
    return x;
  }
  const x = new Array<number>(declared.hash).fill(0);
  for (const one of Array.isArray(value) ? value : [value]) {
    const fits = typeof one === "string" || (typeof one === "number" && Number.isSafeInteger(one));
    require(fits, column, one, "a text, a whole number within ±2⁵³, or a list of them");
    const digest = sha256(new TextEncoder().encode(`${name}\0${one}`));
    const place = new DataView(digest.buffer, digest.byteOffset).getBigUint64(0) % BigInt(declared.hash);
    x[Number(place)] += digest[8] & 1 ? -1 : 1;
  }
  const norm = Math.sqrt(x.reduce((sum, y) => sum + y * y, 0));
  return norm > 1 ? x.map((y) => y / norm) : x;
}

function sizeOf(declared: Declaration): number {
  if (declared === "boolean" || "number" in declared) return 1;
  return "hash" in declared ? declared.hash : declared.category.length + Number(declared.other ?? false);
}

/** Columns by name, compared by code points. */
function sorted(columns: Record<string, Declaration>): [string, Declaration][] {
  const points = (name: string) => Array.from(name, (character) => character.codePointAt(0)!);
  const before = (a: number[], b: number[]): number => {
    const k = a.findIndex((x, i) => x !== b[i]);
    return k < 0 ? a.length - b.length : k >= b.length ? 1 : a[k] - b[k];
  };
  return Object.entries(columns).sort(([a], [b]) => before(points(a), points(b)));
}
