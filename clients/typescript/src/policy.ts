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
  const parts = model.parts(arms).map((part) => ({ ...part, ...widthsOf(policy, part.model, partialNoise) }));
  if (policy.kind === "igw") return inverseGap(policy, model.n, parts, K, draw);
  if (policy.kind === "lints" || policy.kind === "linphe") return sampled(policy.kind, parts, K, draw);
  const scores = policy.kind === "widest" ? new Array<number>(K).fill(0) : meansOf(parts, K);
  if (policy.kind !== "greedy") {
    for (const part of parts) for (let i = 0; i < part.arms.length; i++) scores[part.arms[i]] += bonus(policy.kind, part, part.X[i]);
  }
  const arm = best(policy.kind === "widest" ? scores.map(Math.sqrt) : scores);
  return { arm, propensities: arms.map((_, k) => Number(k === arm)) };
}

function bonus(kind: string, { model, alpha, noise }: Part & Widths, x: Float64Array): number {
  const squared = Math.max(quadratic(model.inverse, x, model.d), 0);
  if (kind === "widest") return squared;
  if (kind === "squared") return alpha * squared;
  return alpha * Math.sqrt(squared) + (noise === 0 ? 0 : noise * length(times(model.inverse, x, model.d)));
}

export function best(scores: number[]): number {
  const largest = Math.max(...scores);
  return scores.findIndex((score) => score >= largest - TIE);
}

function widthsOf(policy: PolicyTerms, model: RidgeModel, partialNoise: number): Widths {
  if (policy.alpha !== null) return { alpha: policy.alpha, noise: 0, spread: () => policy.alpha! };
  const [, bias, inflation, noise] = model.slack;
  const deviation = (policy.noise + partialNoise) * Math.sqrt(Math.max(model.logdet, 0) + 2 * Math.log(1 / policy.confidence));
  const alpha = (1 + inflation) * deviation + Math.sqrt(model.ridge) + bias;
  const spread = () => (noise === 0 ? alpha : alpha + noise * Math.sqrt(extremeEigenvalues(model.inverse, model.d)[1]));
  return { alpha, noise, spread };
}

function inverseGap(policy: PolicyTerms, n: number, parts: (Part & Widths)[], K: number, draw: Draw): Chosen {
  const means = meansOf(parts, K);
  const first = best(means);
  const error = parts.reduce((sum, part) => sum + part.spread() ** 2, 0);
  const gamma = policy.gamma ?? policy.scale * Math.sqrt((K * n) / Math.max(error, 1e-300));
  const p = means.map((mean) => 1 / (K + gamma * Math.max(means[first] - mean, 0)));
  p[first] = 0;
  p[first] = 1 - p.reduce((sum, x) => sum + x, 0);
  const u = draw.uniform();
  let cumulative = 0;
  const arm = p.findIndex((x) => (cumulative += x) > u);
  return { arm: arm < 0 ? K - 1 : arm, propensities: p };
}

/** The best arm of a sampled parameter: scores are means + G z of each part, z standard normal. */
function sampled(kind: string, parts: (Part & Widths)[], K: number, draw: Draw): Chosen {
  const means = meansOf(parts, K);
  const rows = parts.map(({ model, arms, X, spread }) => {
    const { d, inverse } = model;
    const L = kind === "lints" ? cholesky(inverse, d) : cholesky(model.V, d, 1e-12 * largestDiagonal(model.V, d));
    const scale = spread();
    // xᵀ(scale · R z) = (scale · Rᵀx)ᵀz, with R = L or V(λ)⁻¹ L
    const G = X.map((x) => transposed(L, kind === "lints" ? x : times(inverse, x, d), d).map((g) => scale * g));
    return { d, arms, G };
  });
  const scores = (normal: (count: number) => ArrayLike<number>) => {
    const found = [...means];
    for (const { d, arms, G } of rows) {
      const z = normal(d);
      arms.forEach((k, i) => (found[k] += dot(G[i], z)));
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

function meansOf(parts: Part[], K: number): number[] {
  const means = new Array<number>(K).fill(0);
  for (const { arms, X, model } of parts) for (let i = 0; i < arms.length; i++) means[arms[i]] += dot(X[i], model.theta);
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
