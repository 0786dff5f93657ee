/** Ridge regression on sufficient statistics (docs/protocol.md, "Learning"). */
import { dot, invert, times } from "./matrix.js";
import { EXACT, type Slack, type Sums, add, zeroSums } from "./sums.js";

const REFRESH_EVERY = 256; // rank-one updates after which the inverse is computed afresh: bounds rounding

/** A part of a model: which arms it scores, and their entries that are its own. Scores of several parts add up. */
export interface Part {
  arms: number[];
  X: Float64Array[];
  model: RidgeModel;
}

/** What a machine and a policy ask of a model, of whatever parts; `Stored` is how it is kept. */
export interface Model<Stored = unknown> {
  readonly n: number;
  readonly own: number;
  readonly pendingN: number;
  readonly logdet: number;
  readonly sharedLogdet: number;
  readonly version: number;
  readonly theta: ArrayLike<number>;
  /** Whether nothing is to be exchanged yet. */
  readonly silent: boolean;
  parts(arms: Float64Array[]): Part[];
  observe(x: Float64Array, y: number): void;
  pending(): Sums;
  markSent(): void;
  adopt(sums: Sums, slack: Slack, version: number): void;
  dump(): Stored;
  load(stored: Stored): void;
}

export interface StoredModel {
  n: number;
  own: number;
  version: number;
  sharedLogdet: number;
  slack: number[];
  V: number[];
  b: number[];
  pendingN: number;
  pendingV: number[];
  pendingB: number[];
}

export class RidgeModel implements Model<StoredModel> {
  readonly silent = false;
  inverse: Float64Array;
  theta: Float64Array;
  logdet = 0;
  sharedLogdet = 0;
  slack: Slack = EXACT;
  version = 0;
  /** Observations learnt from, own and received. */
  n = 0;
  /** Own observations, pending or not. */
  own = 0;
  private shared: Sums;
  private waiting: Sums;
  private updates = 0;
  private readonly u: Float64Array;

  constructor(
    readonly d: number,
    readonly ridge: number,
  ) {
    this.shared = zeroSums(d);
    this.waiting = zeroSums(d);
    this.inverse = new Float64Array(d * d);
    for (let i = 0; i < d; i++) this.inverse[i * d + i] = 1 / ridge;
    this.theta = new Float64Array(d);
    this.u = new Float64Array(d);
  }

  get pendingN(): number {
    return this.waiting.n;
  }

  parts(arms: Float64Array[]): Part[] {
    return [{ arms: arms.map((_, k) => k), X: arms, model: this }];
  }

  get b(): Float64Array {
    return this.shared.b.map((x, i) => x + this.waiting.b[i]);
  }

  get V(): Float64Array {
    return this.shared.V.map((x, i) => x + this.waiting.V[i]);
  }

  observe(x: Float64Array, y: number): void {
    const { d, u } = this;
    const { V, b } = this.waiting;
    for (let i = 0; i < d; i++) {
      b[i] += y * x[i];
      for (let j = 0; j < d; j++) V[i * d + j] += x[i] * x[j];
    }
    this.waiting.n++;
    this.own++;
    this.n++;
    times(this.inverse, x, d, u);
    const growth = 1 + dot(x, u);
    const step = (y - dot(x, this.theta)) / growth;
    for (let i = 0; i < d; i++) {
      this.theta[i] += step * u[i];
      const scaled = u[i] / growth;
      for (let j = 0; j < d; j++) this.inverse[i * d + j] -= scaled * u[j];
    }
    this.logdet += Math.log(growth);
    if (++this.updates >= REFRESH_EVERY) this.recompute();
  }

  /** Add the statistics of several observations of one's own at once. */
  observeSums(sums: Sums): void {
    this.waiting = add(this.waiting, sums);
    this.own += sums.n;
    this.n += sums.n;
    this.recompute();
  }

  /** Whether these are the statistics in common with the coordinator, and nothing is pending. */
  holds(sums: Sums): boolean {
    const same = (one: Float64Array, other: Float64Array) => one.every((x, i) => x === other[i]);
    return this.waiting.n === 0 && same(this.shared.b, sums.b) && same(this.shared.V, sums.V);
  }

  /** A copy of what has been observed and not uploaded. */
  pending(): Sums {
    return { n: this.waiting.n, b: this.waiting.b.slice(), V: this.waiting.V.slice() };
  }

  /** What was pending is now in common with the coordinator. */
  markSent(): void {
    for (let i = 0; i < this.d; i++) this.shared.b[i] += this.waiting.b[i];
    for (let i = 0; i < this.d ** 2; i++) this.shared.V[i] += this.waiting.V[i];
    this.waiting = zeroSums(this.d);
    this.sharedLogdet = this.logdet;
  }

  /** Replace what is in common with the coordinator; pending observations stay on top. */
  adopt(sums: Sums, slack: Slack, version: number): void {
    this.shared = { n: sums.n, b: sums.b.slice(), V: sums.V.slice() };
    [this.slack, this.version] = [slack, version];
    this.n = sums.n + this.waiting.n;
    const [offset, , , , headstart] = slack;
    this.sharedLogdet = this.solve(sums.V).logdet + offset - headstart;
    this.recompute();
  }

  private solve(V: Float64Array): { inverse: Float64Array; logdet: number } {
    const A = V.slice();
    for (let i = 0; i < this.d; i++) A[i * this.d + i] += this.ridge;
    const { inverse, logdet } = invert(A, this.d);
    return { inverse, logdet: logdet - this.d * Math.log(this.ridge) };
  }

  private recompute(): void {
    const { inverse, logdet } = this.solve(this.V);
    this.inverse = inverse;
    this.theta = times(inverse, this.b, this.d);
    this.logdet = logdet + this.slack[0];
    this.updates = 0;
  }

  dump(): StoredModel {
    return {
      n: this.n,
      own: this.own,
      version: this.version,
      sharedLogdet: this.sharedLogdet,
      slack: [...this.slack],
      V: Array.from(this.shared.V),
      b: Array.from(this.shared.b),
      pendingN: this.waiting.n,
      pendingV: Array.from(this.waiting.V),
      pendingB: Array.from(this.waiting.b),
    };
  }

  load(stored: StoredModel): void {
    [this.n, this.own, this.version, this.sharedLogdet] = [stored.n, stored.own, stored.version, stored.sharedLogdet];
    this.slack = stored.slack as unknown as Slack;
    this.shared = { n: stored.n - stored.pendingN, b: Float64Array.from(stored.b), V: Float64Array.from(stored.V) };
    this.waiting = { n: stored.pendingN, b: Float64Array.from(stored.pendingB), V: Float64Array.from(stored.pendingV) };
    this.recompute();
  }
}
