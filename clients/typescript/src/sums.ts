/** Sufficient statistics as they travel: b = Σ x y, V = Σ x xᵀ (dense), and how many observations. */
export interface Sums {
  n: number;
  b: Float64Array;
  V: Float64Array;
  /** Where each action has a θ of its own: of which actions these are, ascending, one block after the other; `of` so many. */
  blocks?: { actions: number[]; of: number };
}

/** No statistics of length d; with `of` actions, of none of them. */
export function zeroSums(d: number, of = 0): Sums {
  if (of > 0) return { n: 0, b: new Float64Array(0), V: new Float64Array(0), blocks: { actions: [], of } };
  return { n: 0, b: new Float64Array(d), V: new Float64Array(d * d) };
}

export function add(one: Sums, other: Sums): Sums {
  if (one.blocks) return addBlocks(one, other);
  return { n: one.n + other.n, b: one.b.map((x, i) => x + other.b[i]), V: one.V.map((x, i) => x + other.V[i]) };
}

function addBlocks(one: Sums, other: Sums): Sums {
  const blocks = blocksOf(one);
  for (const [action, block] of blocksOf(other)) {
    const before = blocks.get(action);
    blocks.set(action, before ? add(before, block) : block);
  }
  return joinBlocks(blocks, one.n + other.n, one.blocks!.of);
}

/** The statistics of each action. */
export function blocksOf(sums: Sums): Map<number, Sums> {
  const { actions } = sums.blocks!;
  const d = actions.length ? sums.b.length / actions.length : 0;
  const cut = (k: number) => ({ n: 0, b: sums.b.slice(k * d, (k + 1) * d), V: sums.V.slice(k * d * d, (k + 1) * d * d) });
  return new Map(actions.map((action, k) => [action, cut(k)]));
}

/** The statistics of some of `of` actions, put together. */
export function joinBlocks(blocks: Map<number, Sums>, n: number, of: number): Sums {
  const actions = [...blocks.keys()].sort((a, b) => a - b);
  const all = actions.map((action) => blocks.get(action)!);
  const joined = (parts: Float64Array[]) => {
    const whole = new Float64Array(parts.reduce((size, part) => size + part.length, 0));
    let at = 0;
    for (const part of parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  };
  return { n, b: joined(all.map((block) => block.b)), V: joined(all.map((block) => block.V)), blocks: { actions, of } };
}

/** What shared statistics do not show: offset, bias, inflation, noise, headstart, spectrum. */
export type Slack = readonly [number, number, number, number, number, number];
export const EXACT: Slack = [0, 0, 0, 0, 0, 0];

/** The lower triangle of V row by row, and back. */
export function triangle(V: Float64Array, d: number): Float64Array {
  const lower = new Float64Array((d * (d + 1)) / 2);
  for (let i = 0, at = 0; i < d; i++) for (let j = 0; j <= i; j++) lower[at++] = V[i * d + j];
  return lower;
}

export function square(lower: ArrayLike<number>, d: number): Float64Array {
  const V = new Float64Array(d * d);
  for (let i = 0, at = 0; i < d; i++) for (let j = 0; j <= i; j++) V[i * d + j] = V[j * d + i] = lower[at++];
  return V;
}
