/** One θ for each action (docs/protocol.md, "One model for each action"): a ridge model for each that was ever seen. */
import { FedbanditError } from "./errors.js";
import { type Model, type Part, RidgeModel, type StoredModel } from "./model.js";
import { EXACT, type Slack, type Sums, blocksOf, joinBlocks, zeroSums } from "./sums.js";

export interface StoredActions {
  n: number;
  own: number;
  pendingN: number;
  version: number;
  blocks: [action: number, block: StoredModel][];
}

/** Contexts are (action, features). */
export class ActionModel implements Model<StoredActions> {
  readonly silent = false;
  n = 0;
  own = 0;
  pendingN = 0;
  version = 0;
  private readonly blocks = new Map<number, RidgeModel>();
  private readonly fresh: RidgeModel; // of all actions that nobody has observed

  constructor(
    private readonly d: number,
    private readonly actions: number,
    private readonly ridge: number,
  ) {
    this.fresh = new RidgeModel(d, ridge);
  }

  /** One for each action that is offered, in the order of their first arms. */
  parts(arms: Float64Array[]): Part[] {
    const parts = new Map<number, Part>();
    arms.forEach((x, k) => {
      let part = parts.get(x[0]);
      if (!part) parts.set(x[0], (part = { arms: [], X: [], model: this.blocks.get(x[0]) ?? this.fresh }));
      part.arms.push(k);
      part.X.push(x.subarray(1));
    });
    return [...parts.values()];
  }

  get logdet(): number {
    return this.total((block) => block.logdet);
  }

  get sharedLogdet(): number {
    return this.total((block) => block.sharedLogdet);
  }

  private total(of: (block: RidgeModel) => number): number {
    let sum = 0;
    for (const block of this.blocks.values()) sum += of(block);
    return sum;
  }

  /** θ̂ of each action, one after the other. */
  get theta(): Float64Array {
    const all = new Float64Array(this.actions * this.d);
    for (const [action, block] of this.blocks) all.set(block.theta, action * this.d);
    return all;
  }

  private of(action: number): RidgeModel {
    let block = this.blocks.get(action);
    if (!block) this.blocks.set(action, (block = new RidgeModel(this.d, this.ridge)));
    return block;
  }

  observe(x: Float64Array, y: number): void {
    this.of(x[0]).observe(x.slice(1), y);
    this.n++;
    this.own++;
    this.pendingN++;
  }

  pending(): Sums {
    const observed = [...this.blocks].filter(([, block]) => block.pendingN > 0);
    return joinBlocks(new Map(observed.map(([action, block]) => [action, block.pending()])), this.pendingN, this.actions);
  }

  markSent(): void {
    for (const block of this.blocks.values()) if (block.pendingN > 0) block.markSent();
    this.pendingN = 0;
  }

  adopt(sums: Sums, slack: Slack, version: number): void {
    if (slack.some((x) => x !== 0)) throw new FedbanditError("A model with one θ for each action takes exact statistics only.");
    const sent = blocksOf(sums);
    for (const action of new Set([...sent.keys(), ...this.blocks.keys()])) {
      const block = this.of(action);
      const statistics = sent.get(action) ?? zeroSums(this.d);
      if (!block.holds(statistics)) block.adopt(statistics, EXACT, version);
    }
    [this.n, this.version] = [sums.n + this.pendingN, version];
  }

  dump(): StoredActions {
    const { n, own, pendingN, version } = this;
    return { n, own, pendingN, version, blocks: [...this.blocks].map(([action, block]) => [action, block.dump()]) };
  }

  load(stored: StoredActions): void {
    ({ n: this.n, own: this.own, pendingN: this.pendingN, version: this.version } = stored);
    for (const [action, block] of stored.blocks) this.of(action).load(block);
  }
}
