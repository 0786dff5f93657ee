/** Bad input, or something that a person has to look at: one sentence that names the value and what was expected. */
export class FedbanditError extends Error {}

/** The coordinator has refused something; `transient` says whether trying again may help. */
export class Refused extends FedbanditError {
  constructor(
    sentence: string,
    readonly kind: string,
    /** Elsewhere: the address of the coordinator to ask instead, "" if it is not known. */
    readonly owner = "",
  ) {
    super(sentence);
  }

  get transient(): boolean {
    return ["order", "rate", "weight", "unavailable", "elsewhere"].includes(this.kind);
  }
}

export function require(condition: boolean, what: string, value: unknown, expected: string): asserts condition {
  if (!condition) throw new FedbanditError(`${what} is ${shown(value)}, but must be ${expected}.`);
}

export function shown(value: unknown): string {
  const text = typeof value === "string" ? `'${value}'` : (JSON.stringify(value) ?? String(value));
  return text.length <= 80 ? text : `${text.slice(0, 60)} …`;
}
