/** Assertions for Node and browsers alike. */
export function ok(condition: unknown, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

export function equal(found: unknown, expected: unknown, what = ""): void {
  const [one, other] = [found, expected].map((value) => JSON.stringify(sorted(value)));
  ok(one === other, `${what}: found ${one}, expected ${other}`);
}

export function near(found: ArrayLike<number>, expected: ArrayLike<number>, what: string): void {
  equal(found.length, expected.length, what);
  for (let i = 0; i < found.length; i++) {
    ok(Math.abs(found[i] - expected[i]) <= 1e-12 + 1e-9 * Math.abs(expected[i]), `${what}: ${found[i]} is not ${expected[i]}`);
  }
}

export function throws(call: () => unknown, kind: new (...args: any[]) => Error, what: string): void {
  try {
    call();
  } catch (error) {
    ok(error instanceof kind, `${what}: ${error}`);
    return;
  }
  throw new Error(`${what} was not refused`);
}

/** Objects with their keys in order, so that they compare. */
function sorted(value: any): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}
