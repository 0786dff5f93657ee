/** What a client needs of its surroundings: an address, a socket, random numbers. Browsers and Node each have one. */
export interface Address {
  /** http:// or https:// of the coordinator. */
  url: string;
  federation: string;
  /** The client's token; without keys its name alone. */
  token?: string;
  name?: string;
}

export interface Socket {
  send(frame: Uint8Array): void;
  close(): void;
}

export interface Handlers {
  opened(): void;
  received(data: Uint8Array | string): void;
  /** The connection is over, or never came to be. */
  ended(reason: string): void;
}

export interface Platform {
  /** The invitation as JSON, or a refusal thrown. */
  invitation(): Promise<unknown>;
  connect(handlers: Handlers): Socket;
}

export function invitationPath(address: Address): string {
  return `${address.url.replace(/\/+$/, "")}/v1/${encodeURIComponent(address.federation)}/invitation`;
}

export function streamPath(address: Address): string {
  return `${address.url.replace(/\/+$/, "").replace(/^http/, "ws")}/v1/${encodeURIComponent(address.federation)}/stream`;
}

export function headersOf(address: Address): Record<string, string> {
  if (address.token !== undefined) return { Authorization: `Bearer ${address.token.trim()}` };
  return address.name === undefined ? {} : { "X-Fedbandit-Name": address.name };
}

export function entropy(): bigint {
  return crypto.getRandomValues(new BigUint64Array(1))[0];
}
