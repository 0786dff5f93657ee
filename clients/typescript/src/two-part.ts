/** A model in two parts, one shared by all clients and one of the client's own (docs/protocol.md, "A model in two parts"). */
import { block, dot, extremeEigenvalues, invert, quadratic, times } from "./matrix.js";
import { type Model, type Part, RidgeModel, type StoredModel } from "./model.js";
import { type Slack, type Sums } from "./sums.js";

const FULL_RANK = 1e-6;

export interface Cut {
  /** Entries of the shared part: the first ones of a context. */
  length: number;
  /** The personal part: `size` entries from `first` on, padded with zeros to `own`. */
  first: number;
  size: number;
  own: number;
  starting: boolean;
}

export interface StoredTwoPart {
  shared: StoredModel;
  personal: StoredModel;
  whole: StoredModel;
  starting: boolean;
  looked: number;
}

export class TwoPartModel implements Model<StoredTwoPart> {
  private readonly shared: RidgeModel;
  private readonly personal: RidgeModel;
  private readonly whole: RidgeModel; // chooses and learns at first
  private starting: boolean;
  private looked = 0; // the version of the download at which rank was last looked at

  constructor(
    private readonly cut: Cut,
    private readonly dim: number,
    private readonly ridge: number,
  ) {
    this.shared = new RidgeModel(cut.length, ridge);
    this.personal = new RidgeModel(Math.max(cut.own, 1), ridge);
    this.whole = new RidgeModel(dim, ridge);
    this.starting = cut.starting;
  }

  parts(arms: Float64Array[]): Part[] {
    if (this.starting) return this.whole.parts(arms.map((x) => this.masked(x)));
    const shared = this.shared.parts(arms.map((x) => x.slice(0, this.cut.length)));
    return this.cut.own === 0 ? shared : [...shared, ...this.personal.parts(arms.map((x) => this.local(x)))];
  }

  private local(x: Float64Array): Float64Array {
    const { first, size, own } = this.cut;
    const found = new Float64Array(own);
    found.set(x.subarray(first, first + size));
    return found;
  }

  /** A context without the entries that this client does not use. */
  private masked(x: Float64Array): Float64Array {
    return x.slice().fill(0, Math.max(this.cut.first + this.cut.size, this.cut.length));
  }

  get silent(): boolean {
    return this.starting;
  }

  get n(): number {
    return this.starting ? this.whole.n : this.shared.n;
  }

  get own(): number {
    return this.starting ? this.whole.own : this.shared.own;
  }

  get pendingN(): number {
    return this.shared.pendingN;
  }

  get logdet(): number {
    return this.shared.logdet;
  }

  get sharedLogdet(): number {
    return this.shared.sharedLogdet;
  }

  get version(): number {
    return this.shared.version;
  }

  get theta(): Float64Array {
    return this.shared.theta;
  }

  observe(x: Float64Array, y: number): void {
    if (this.starting) return this.start(x, y);
    const [g, l] = [x.slice(0, this.cut.length), this.local(x)];
    if (this.cut.own === 0) return this.shared.observe(g, y);
    const [pg, pl] = [dot(g, this.shared.theta), dot(l, this.personal.theta)];
    const [qg, ql] = [quadratic(this.shared.inverse, g, this.shared.d), quadratic(this.personal.inverse, l, this.personal.d)];
    const r = (y - pg - pl) / (1 + qg + ql);
    this.shared.observe(g, pg + (1 + qg) * r);
    this.personal.observe(l, pl + (1 + ql) * r);
  }

  private start(x: Float64Array, y: number): void {
    this.whole.observe(this.masked(x), y);
    if (this.shared.version === this.looked && this.whole.own < this.cut.length) return;
    if (this.mayBegin()) {
      this.begin();
      this.starting = false;
    } else this.looked = this.shared.version;
  }

  /** Its own data, or what it was sent, have full rank. */
  private mayBegin(): boolean {
    if (this.shared.version > 0 && fullRank(this.shared.V, this.shared.d)) return true;
    const used = [...new Set([...range(0, this.cut.length), ...range(this.cut.first, this.cut.size)])].sort((a, b) => a - b);
    return this.whole.own >= used.length && fullRank(block(this.whole.V, this.dim, used), used.length);
  }

  /** Split the data of the start into both parts; the shared one has them pending. */
  private begin(): void {
    const { length: g, first, size: l, own } = this.cut;
    const { V: S, b: s, n } = this.whole.pending();
    const [G, L] = [range(0, g), range(first, l)];
    const d = g + l;
    const joint = block(S, this.dim, [...G, ...L]);
    const V = this.shared.V;
    for (const i of G) for (const j of G) joint[i * d + j] += V[i * g + j];
    for (let i = 0; i < d; i++) joint[i * d + i] += this.ridge;
    const b = this.shared.b;
    const right = [...G.map((i) => b[i] + s[i]), ...L.map((i) => s[i])];
    const theta = times(invert(joint, d).inverse, right, d);
    const rest = (rows: number[], columns: number[], of: Float64Array) =>
      Float64Array.from(rows, (i) => s[i] - columns.reduce((sum, j, k) => sum + S[i * this.dim + j] * of[k], 0));
    this.shared.observeSums({ n, V: block(S, this.dim, G), b: rest(G, L, theta.subarray(g)) });
    const padded: Sums = { n, V: new Float64Array(own * own), b: new Float64Array(own) };
    padded.b.set(rest(L, G, theta.subarray(0, g)));
    L.forEach((i, row) => L.forEach((j, column) => (padded.V[row * own + column] = S[i * this.dim + j])));
    this.personal.observeSums(padded);
  }

  pending(): Sums {
    return this.shared.pending();
  }

  markSent(): void {
    this.shared.markSent();
  }

  adopt(sums: Sums, slack: Slack, version: number): void {
    this.shared.adopt(sums, slack, version);
  }

  dump(): StoredTwoPart {
    const [shared, personal, whole] = [this.shared.dump(), this.personal.dump(), this.whole.dump()];
    return { shared, personal, whole, starting: this.starting, looked: this.looked };
  }

  load(stored: StoredTwoPart): void {
    this.shared.load(stored.shared);
    this.personal.load(stored.personal);
    this.whole.load(stored.whole);
    [this.starting, this.looked] = [stored.starting, stored.looked];
  }
}

function range(first: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => first + i);
}

function fullRank(V: Float64Array, d: number): boolean {
  const [smallest, largest] = extremeEigenvalues(V, d);
  return smallest > FULL_RANK * largest;
}
