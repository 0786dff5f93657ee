/** Symmetric positive definite matrices, dense and row by row in a Float64Array of d · d numbers. */

/** The lower Cholesky factor; a pivot of at most `least` leaves a zero column, for semi-definite matrices. */
export function cholesky(A: Float64Array, d: number, least = 0): Float64Array {
  const L = new Float64Array(d * d);
  for (let j = 0; j < d; j++) {
    let pivot = A[j * d + j];
    for (let k = 0; k < j; k++) pivot -= L[j * d + k] ** 2;
    if (!(pivot > least)) continue;
    const root = Math.sqrt(pivot);
    L[j * d + j] = root;
    for (let i = j + 1; i < d; i++) {
      let sum = A[i * d + j];
      for (let k = 0; k < j; k++) sum -= L[i * d + k] * L[j * d + k];
      L[i * d + j] = sum / root;
    }
  }
  return L;
}

/** The inverse and the log-determinant of a positive definite matrix. */
export function invert(A: Float64Array, d: number): { inverse: Float64Array; logdet: number } {
  const L = cholesky(A, d);
  let logdet = 0;
  const M = new Float64Array(d * d); // L⁻¹
  for (let j = 0; j < d; j++) {
    logdet += 2 * Math.log(L[j * d + j]);
    M[j * d + j] = 1 / L[j * d + j];
    for (let i = j + 1; i < d; i++) {
      let sum = 0;
      for (let k = j; k < i; k++) sum -= L[i * d + k] * M[k * d + j];
      M[i * d + j] = sum / L[i * d + i];
    }
  }
  const inverse = new Float64Array(d * d);
  for (let i = 0; i < d; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (let k = i; k < d; k++) sum += M[k * d + i] * M[k * d + j];
      inverse[i * d + j] = inverse[j * d + i] = sum;
    }
  }
  return { inverse, logdet };
}

export function times(A: Float64Array, x: ArrayLike<number>, d: number, out = new Float64Array(d)): Float64Array {
  for (let i = 0; i < d; i++) {
    let sum = 0;
    for (let j = 0, at = i * d; j < d; j++, at++) sum += A[at] * x[j];
    out[i] = sum;
  }
  return out;
}

/** xᵀAx of a symmetric A, from its lower triangle: half of the products. */
export function quadratic(A: Float64Array, x: Float64Array, d: number): number {
  let sum = 0;
  let i = 0;
  for (; i + 1 < d; i += 2) { // two rows at once, as neither waits for the other's sum: a third less time
    let row = 0;
    let next = 0;
    const at = i * d;
    for (let j = 0; j < i; j++) {
      row += A[at + j] * x[j];
      next += A[at + d + j] * x[j];
    }
    next += A[at + d + i] * x[i];
    sum += x[i] * (2 * row + A[at + i] * x[i]);
    sum += x[i + 1] * (2 * next + A[at + d + i + 1] * x[i + 1]);
  }
  if (i < d) {
    let row = 0;
    for (let j = 0, at = i * d; j < i; j++, at++) row += A[at] * x[j];
    sum += x[i] * (2 * row + A[i * d + i] * x[i]);
  }
  return sum;
}

export function allFinite(x: Float64Array): boolean {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += 0 * x[i]; // 0, or NaN if any is not finite
  return sum === 0;
}

export function dot(x: ArrayLike<number>, y: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
  return sum;
}

/** The smallest and the largest eigenvalue of a symmetric matrix, by Jacobi's rotations. */
export function extremeEigenvalues(A: Float64Array, d: number): [number, number] {
  const B = A.slice();
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0;
    for (let p = 0; p < d; p++) {
      for (let q = p + 1; q < d; q++) {
        off += B[p * d + q] ** 2;
        if (Math.abs(B[p * d + q]) < 1e-300) continue;
        const tau = (B[q * d + q] - B[p * d + p]) / (2 * B[p * d + q]);
        const t = Math.sign(tau || 1) / (Math.abs(tau) + Math.hypot(1, tau));
        const c = 1 / Math.hypot(1, t);
        const s = t * c;
        for (let k = 0; k < d; k++) {
          const [kp, kq] = [B[k * d + p], B[k * d + q]];
          B[k * d + p] = c * kp - s * kq;
          B[k * d + q] = s * kp + c * kq;
        }
        for (let k = 0; k < d; k++) {
          const [pk, qk] = [B[p * d + k], B[q * d + k]];
          B[p * d + k] = c * pk - s * qk;
          B[q * d + k] = s * pk + c * qk;
        }
      }
    }
    if (off < 1e-28) break;
  }
  const values = Array.from({ length: d }, (_, i) => B[i * d + i]);
  return [Math.min(...values), Math.max(...values)];
}

/** Some rows and columns of a matrix of d · d numbers. */
export function block(A: Float64Array, d: number, rows: number[], columns = rows): Float64Array {
  return Float64Array.from(rows.flatMap((i) => columns.map((j) => A[i * d + j])));
}
