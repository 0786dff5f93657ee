/** Which arm (docs/protocol.md, "Choosing"): the lowest index whose score is within 1e-9 of the largest. */
import type { Draw } from "./draw.js";
import { cholesky, dot, extremeEigenvalues, quadratic, times } from "./matrix.js";
import type { Model, Part, RidgeModel } from "./model.js";
import type { PolicyTerms } from "./terms.js";

export const TIE = 1e-9;
const SAMPLES = 1000; // by which propensities without a formula are estimated

/** The arm, and the probability of each arm; a function where that has no formula: it estimates them. */
export interface Chosen {
  arm: number;
  propensities: number[] | (() => number[]);
}

/** How a part of a model spreads: its width, the noise in what was sent, and both for policies that sample. */
interface Widths {
  alpha: number;
  noise: number;
  spread: () => number;
}

export function choose(policy: PolicyTerms, model: Model, arms: Float64Array[], draw: Draw, partialNoise = 0): Chosen {
  const K = arms.length;
  if (policy.kind === "uniform") return { arm: draw.index(K), propensities: new Array(K).fill(1 / K) };
  const parts = model.parts(arms);
  const widths = (block: RidgeModel) => widthsOf(policy, block, partialNoise);
  if (policy.kind === "igw") return inverseGap(policy, model, parts, K, widths, draw);
  if (policy.kind === "lints" || policy.kind === "linphe") return sampled(policy.kind, parts, K, widths, draw);
  const scores = new Array<number>(K).fill(0);
  for (const part of parts) {
    let shared: Widths | null = null;
    for (let k = 0; k < K; k++) {
      const block = part.block(k);
      const x = part.X[k];
      if (policy.kind !== "widest") scores[k] += dot(x, block.theta);
      if (policy.kind === "greedy") continue;
      const squared = Math.max(quadratic(block.inverse, x, block.d), 0);
      if (policy.kind === "widest") {
        scores[k] += squared;
        continue;
      }
      const { alpha, noise }: Widths = part.stacked ? widths(block) : (shared ??= widths(block));
      if (policy.kind === "squared") scores[k] += alpha * squared;
      else scores[k] += alpha * Math.sqrt(squared) + (noise === 0 ? 0 : noise * length(times(block.inverse, x, block.d)));
    }
  }
  const arm = best(policy.kind === "widest" ? scores.map(Math.sqrt) : scores);
  return { arm, propensities: arms.map((_, k) => Number(k === arm)) };
}

export function best(scores: number[]): number {
  const largest = Math.max(...scores);
  return scores.findIndex((score) => score >= largest - TIE);
}

function widthsOf(policy: PolicyTerms, block: RidgeModel, partialNoise: number): Widths {
  if (policy.alpha !== null) return { alpha: policy.alpha, noise: 0, spread: () => policy.alpha! };
  const [, bias, inflation, noise] = block.slack;
  const deviation = (policy.noise + partialNoise) * Math.sqrt(Math.max(block.logdet, 0) + 2 * Math.log(1 / policy.confidence));
  const alpha = (1 + inflation) * deviation + Math.sqrt(block.ridge) + bias;
  const spread = () => (noise === 0 ? alpha : alpha + noise * Math.sqrt(extremeEigenvalues(block.inverse, block.d)[1]));
  return { alpha, noise, spread };
}

function inverseGap(
  policy: PolicyTerms,
  model: Model,
  parts: Part[],
  K: number,
  widths: (block: RidgeModel) => Widths,
  draw: Draw,
): Chosen {
  const means = meansOf(parts, K);
  const first = best(means);
  let error = 0;
  for (const part of parts) for (let k = 0; k < (part.stacked ? K : 1); k++) error += widths(part.block(k)).spread() ** 2;
  const gamma = policy.gamma ?? policy.scale * Math.sqrt((K * model.n) / Math.max(error, 1e-300));
  const p = means.map((mean) => 1 / (K + gamma * Math.max(means[first] - mean, 0)));
  p[first] = 0;
  p[first] = 1 - p.reduce((sum, x) => sum + x, 0);
  const u = draw.uniform();
  let cumulative = 0;
  const arm = p.findIndex((x) => (cumulative += x) > u);
  return { arm: arm < 0 ? K - 1 : arm, propensities: p };
}

/** The best arm of a sampled parameter: scores are means + G z of each part, z standard normal. */
function sampled(kind: string, parts: Part[], K: number, widths: (block: RidgeModel) => Widths, draw: Draw): Chosen {
  const means = meansOf(parts, K);
  const rows = parts.map((part) => {
    if (part.stacked) {
      const deviations = part.X.map((x, k) => widths(part.block(k)).spread() * deviation(kind, part.block(k), x));
      return { size: K, row: (k: number, z: ArrayLike<number>) => deviations[k] * z[k] };
    }
    const block = part.block(0);
    const { d } = block;
    const L = kind === "lints" ? cholesky(block.inverse, d) : cholesky(block.V, d, 1e-12 * largestDiagonal(block.V, d));
    const scale = widths(block).spread();
    // xᵀ(scale · R z) = (scale · Rᵀx)ᵀz, with R = L or V(λ)⁻¹ L
    const G = part.X.map((x) => transposed(L, kind === "lints" ? x : times(block.inverse, x, d), d).map((g) => scale * g));
    return { size: d, row: (k: number, z: ArrayLike<number>) => dot(G[k], z) };
  });
  const scores = (normal: (count: number) => ArrayLike<number>) => {
    const found = [...means];
    for (const { size, row } of rows) {
      const z = normal(size);
      for (let k = 0; k < K; k++) found[k] += row(k, z);
    }
    return found;
  };
  const estimate = () => {
    const counts = new Array<number>(K).fill(1 / K); // one further choice, divided among all: none has zero
    for (let s = 0; s < SAMPLES; s++) counts[best(scores(anyNormals))]++;
    return counts.map((count) => count / (SAMPLES + 1));
  };
  return { arm: best(scores((count) => draw.normal(count))), propensities: estimate };
}

function deviation(kind: string, block: RidgeModel, x: Float64Array): number {
  const squared = Math.max(quadratic(block.inverse, x, block.d), 0);
  if (kind === "lints") return Math.sqrt(squared);
  const u = times(block.inverse, x, block.d);
  return Math.sqrt(Math.max(squared - block.ridge * dot(u, u), 0));
}

function meansOf(parts: Part[], K: number): number[] {
  const means = new Array<number>(K).fill(0);
  for (const part of parts) for (let k = 0; k < K; k++) means[k] += dot(part.X[k], part.block(k).theta);
  return means;
}

/** Standard normals that need not be the same everywhere: of estimates. */
function anyNormals(count: number): Float64Array {
  return Float64Array.from({ length: count }, () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random()));
}

/** Lᵀx of a lower triangular L. */
function transposed(L: Float64Array, x: ArrayLike<number>, d: number): Float64Array {
  const found = new Float64Array(d);
  for (let i = 0; i < d; i++) for (let j = 0; j <= i; j++) found[j] += L[i * d + j] * x[i];
  return found;
}

function length(x: Float64Array): number {
  return Math.sqrt(dot(x, x));
}

function largestDiagonal(V: Float64Array, d: number): number {
  let largest = 0;
  for (let i = 0; i < d; i++) largest = Math.max(largest, V[i * d + i]);
  return largest;
}
