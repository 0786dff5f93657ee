/** Which arm (docs/protocol.md, "Choosing"): the lowest index whose score is within 1e-9 of the largest. */
import type { Draw } from "./draw.js";
import { cholesky, dot, largestEigenvalue, quadratic, times } from "./matrix.js";
import type { RidgeModel } from "./model.js";
import type { PolicyTerms } from "./terms.js";

export const TIE = 1e-9;

/** The arm, and the probability with which it was chosen; null where that has no formula. */
export interface Chosen {
  arm: number;
  propensity: number | null;
}

export function choose(policy: PolicyTerms, model: RidgeModel, arms: Float64Array[], draw: Draw, partialNoise = 0): Chosen {
  const K = arms.length;
  if (policy.kind === "uniform") return { arm: draw.index(K), propensity: 1 / K };
  const { d, theta, inverse } = model;
  const alpha = widthOf(policy, model, partialNoise);
  const noise = policy.alpha === null ? model.slack[3] : 0;
  const spread = () => (noise === 0 ? alpha : alpha + noise * Math.sqrt(largestEigenvalue(inverse, d)));
  if (policy.kind === "igw") return inverseGap(policy, model, arms, spread(), draw);
  if (policy.kind === "lints" || policy.kind === "linphe") {
    const L = policy.kind === "lints" ? cholesky(inverse, d) : cholesky(model.V, d, 1e-12 * largestDiagonal(model.V, d));
    let z = times(L, draw.normal(d), d);
    if (policy.kind === "linphe") z = times(inverse, z, d);
    const scale = spread();
    const sampled = theta.map((value, i) => value + scale * z[i]);
    return { arm: best(arms.map((x) => dot(x, sampled))), propensity: null };
  }
  const scores = arms.map((x) => {
    const mean = dot(x, theta);
    if (policy.kind === "greedy") return mean;
    const norm = Math.sqrt(Math.max(quadratic(inverse, x, d), 0));
    if (policy.kind === "widest") return norm;
    if (policy.kind === "squared") return mean + alpha * norm * norm;
    return mean + alpha * norm + (noise === 0 ? 0 : noise * length(times(inverse, x, d)));
  });
  return { arm: best(scores), propensity: 1 };
}

export function best(scores: number[]): number {
  const largest = Math.max(...scores);
  return scores.findIndex((score) => score >= largest - TIE);
}

function widthOf(policy: PolicyTerms, model: RidgeModel, partialNoise: number): number {
  if (policy.alpha !== null) return policy.alpha;
  const [, bias, inflation] = model.slack;
  const deviation = (policy.noise + partialNoise) * Math.sqrt(Math.max(model.logdet, 0) + 2 * Math.log(1 / policy.confidence));
  return (1 + inflation) * deviation + Math.sqrt(model.ridge) + bias;
}

function inverseGap(policy: PolicyTerms, model: RidgeModel, arms: Float64Array[], spread: number, draw: Draw): Chosen {
  const means = arms.map((x) => dot(x, model.theta));
  const first = best(means);
  const error = Math.max(spread * spread, 1e-300);
  const gamma = policy.gamma ?? policy.scale * Math.sqrt((arms.length * model.n) / error);
  const p = means.map((mean) => 1 / (arms.length + gamma * Math.max(means[first] - mean, 0)));
  p[first] = 0;
  p[first] = 1 - p.reduce((sum, x) => sum + x, 0);
  const u = draw.uniform();
  let cumulative = 0;
  let arm = p.findIndex((x) => (cumulative += x) > u);
  if (arm < 0) arm = arms.length - 1;
  return { arm, propensity: p[arm] };
}

function length(x: Float64Array): number {
  return Math.sqrt(dot(x, x));
}

function largestDiagonal(V: Float64Array, d: number): number {
  let largest = 0;
  for (let i = 0; i < d; i++) largest = Math.max(largest, V[i * d + i]);
  return largest;
}
