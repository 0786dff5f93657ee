/** The random numbers of one choice: Philox 4×32, ten rounds (docs/protocol.md, "Random numbers"). */
const TWO32 = 4294967296;

const EXPLORATION = 4001 * 2 ** 20; // the block from which on it is drawn whether to explore

export class Draw {
  private words: number[] = [];
  private normals: number[] = [];

  constructor(
    private readonly key: readonly [number, number],
    private readonly client: number,
    private readonly step: number,
    private next = 0,
  ) {}

  /** Other numbers for the same choice: those that decide whether to explore. */
  exploration(): Draw {
    return new Draw(this.key, this.client, this.step, EXPLORATION);
  }

  /** A number of {0, …, count − 1}. */
  index(count: number): number {
    return Number((BigInt(this.word()) * BigInt(count)) >> 32n);
  }

  /** A number in (0, 1). */
  uniform(): number {
    return (this.word() + 0.5) / TWO32;
  }

  /** Independent standard normals (Box–Muller). */
  normal(count: number): Float64Array {
    while (this.normals.length < count) {
      const w = this.block();
      for (const [first, second] of [[w[0], w[1]], [w[2], w[3]]]) {
        const radius = Math.sqrt(-2 * Math.log((first + 0.5) / TWO32));
        const angle = (2 * Math.PI * (second + 0.5)) / TWO32;
        this.normals.push(radius * Math.cos(angle), radius * Math.sin(angle));
      }
    }
    return Float64Array.from(this.normals.splice(0, count));
  }

  private word(): number {
    if (this.words.length === 0) this.words = this.block().reverse();
    return this.words.pop()!;
  }

  private block(): number[] {
    let [c0, c1, c2, c3] = [this.next++, this.step % TWO32, Math.floor(this.step / TWO32), this.client].map((c) => c >>> 0);
    let [k0, k1] = this.key;
    for (let round = 0; round < 10; round++) {
      const [high0, low0] = multiply(0xd2511f53, c0);
      const [high1, low1] = multiply(0xcd9e8d57, c2);
      [c0, c1, c2, c3] = [(high1 ^ c1 ^ k0) >>> 0, low1, (high0 ^ c3 ^ k1) >>> 0, low0];
      k0 = (k0 + 0x9e3779b9) >>> 0;
      k1 = (k1 + 0xbb67ae85) >>> 0;
    }
    return [c0, c1, c2, c3];
  }
}

/** High and low 32 bits of a product, in halves: numbers are exact up to 2⁵³ only. */
function multiply(a: number, b: number): [number, number] {
  const [a1, a0, b1, b0] = [a >>> 16, a & 0xffff, b >>> 16, b & 0xffff];
  const low = a0 * b0;
  const middle = a1 * b0 + (low >>> 16);
  const other = a0 * b1 + (middle & 0xffff);
  const high = a1 * b1 + Math.floor(middle / 65536) + Math.floor(other / 65536);
  return [high >>> 0, Math.imul(a, b) >>> 0];
}
