/** Sufficient statistics as they travel: b = Σ x y, V = Σ x xᵀ (dense), and how many observations. */
export interface Sums {
  n: number;
  b: Float64Array;
  V: Float64Array;
}

export function zeroSums(d: number): Sums {
  return { n: 0, b: new Float64Array(d), V: new Float64Array(d * d) };
}

export function add(one: Sums, other: Sums): Sums {
  return { n: one.n + other.n, b: one.b.map((x, i) => x + other.b[i]), V: one.V.map((x, i) => x + other.V[i]) };
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
