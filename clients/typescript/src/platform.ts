/** What a client needs of its surroundings: an address, a socket, random numbers. Browsers and Node each have one. */
import { FedbanditError, Refused, require } from "./errors.js";

export interface Options {
  /** http:// or https:// of the coordinator, or of several that stand side by side. */
  url: string | string[];
  federation: string;
  /** The client's token; without keys its name alone. */
  token?: string;
  name?: string;
}

/**
 * Which coordinator to ask now: one of those that were given, or the owner of the federation that one of them named.
 * Whoever cannot be reached, or does not know, is followed by the next (`turn`).
 */
export class Address {
  readonly urls: string[];
  url: string;
  private at = 0;

  constructor(private readonly options: Options) {
    this.urls = (Array.isArray(options.url) ? options.url : [options.url]).map((url) => this.checked(url));
    if (this.urls.length === 0) throw new FedbanditError("A client needs the URL of a coordinator, or several of them.");
    this.url = this.urls[0];
  }

  private checked(url: unknown): string {
    const ok = typeof url === "string" && /^https?:\/\/[^/?#]+/.test(url);
    require(ok, "The coordinator's URL", url, "like https://host:port");
    const plain = /^http:\/\/(?!(localhost|127\.[\d.]+|\[::1\])(:|\/|$))/.test(url as string);
    if (plain && this.options.token !== undefined) throw new FedbanditError(`A token is not sent to '${url}' in the clear: use https.`);
    return (url as string).replace(/\/+$/, "");
  }

  turn(): void {
    this.at = (this.at + 1) % this.urls.length;
    this.url = this.urls[this.at];
  }

  /** Ask the owner that was named; false if it must not (a token never leaves TLS) or need not be asked. */
  follow(owner: string): boolean {
    const secure = (url: string) => url.startsWith("https:");
    const usable = /^https?:\/\/[^/?#]+/.test(owner) && secure(owner) === secure(this.urls[0]);
    if (!usable || owner.replace(/\/+$/, "") === this.url) return false;
    this.url = owner.replace(/\/+$/, "");
    return true;
  }

  get invitation(): string {
    return `${this.url}/v1/${encodeURIComponent(this.options.federation)}/invitation`;
  }

  get stream(): string {
    return `${this.url.replace(/^http/, "ws")}/v1/${encodeURIComponent(this.options.federation)}/stream`;
  }

  get headers(): Record<string, string> {
    const { token, name } = this.options;
    if (token !== undefined) return { Authorization: `Bearer ${token.trim()}` };
    return name === undefined ? {} : { "X-Fedbandit-Name": name };
  }
}

export interface Socket {
  send(frame: Uint8Array): void;
  close(): void;
}

export interface Handlers {
  opened(): void;
  received(data: Uint8Array | string): void;
  /** There is no connection, and this is why. */
  refused(why: Refused): void;
  /** The connection is over, or never came to be. */
  ended(reason: string): void;
}

export interface Platform {
  readonly address: Address;
  /** The invitation of the coordinator that is asked now as JSON, or a refusal thrown. */
  invitation(): Promise<unknown>;
  /** Give the place back that an invitation has taken. */
  decline(): Promise<unknown>;
  connect(handlers: Handlers): Socket;
}

const ROUNDS = 3; // how often each coordinator is asked for the invitation

/** The invitation of whichever coordinator has it: owners that are named are followed. */
export async function invited(platform: Platform): Promise<unknown> {
  const { address } = platform;
  for (let tries = ROUNDS * address.urls.length; ; tries--) {
    try {
      return await platform.invitation();
    } catch (error) {
      const elsewhere = error instanceof Refused && error.kind === "elsewhere";
      const other = elsewhere || (!(error instanceof Refused) && address.urls.length > 1);
      if (!other || tries <= 1) throw error;
      if (!elsewhere || !address.follow(error.owner)) {
        address.turn();
        await new Promise((done) => setTimeout(done, 100));
      }
    }
  }
}

export function entropy(): bigint {
  return crypto.getRandomValues(new BigUint64Array(1))[0];
}
