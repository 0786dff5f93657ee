/** Types that browsers and Node have in common; `open` is that of the platform. */
export { Client, type Status } from "./client.js";
export { FedbanditError, Refused } from "./errors.js";
export { Features, type Encoding, type Values } from "./features.js";
export type { Choice } from "./machine.js";
export type { Store } from "./store.js";
export declare function open(options: {
  url: string | string[];
  federation: string;
  token?: string;
  name?: string;
  state?: string;
}): Promise<import("./client.js").Client>;
