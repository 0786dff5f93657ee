/** The client for browsers: IndexedDB, WebSocket, fetch. */
import { Client } from "./client.js";
import { refusalOf } from "./durable.js";
import { FedbanditError, Refused } from "./errors.js";
import { Address, type Handlers, type Options as Common, type Platform, type Socket } from "./platform.js";
import { MemoryStore, type Store } from "./store.js";

export interface Options extends Common {
  /** The name of the database that keeps the state; without one it is gone with the page. */
  state?: string;
}

export async function open(options: Options): Promise<Client> {
  const store = options.state === undefined ? new MemoryStore() : await IndexedDBStore.open(options.state);
  try {
    return await Client.start(new Browser(options), store);
  } catch (error) {
    await store.close();
    throw error;
  }
}

class Browser implements Platform {
  readonly address: Address;

  constructor(private readonly options: Options) {
    this.address = new Address(options);
  }

  invitation(): Promise<unknown> {
    return this.ask("GET");
  }

  decline(): Promise<unknown> {
    return this.ask("DELETE");
  }

  private async ask(method: string): Promise<unknown> {
    let answer: Response;
    try {
      answer = await fetch(this.address.invitation, { method, headers: this.address.headers });
    } catch {
      throw new FedbanditError(`There is no answer from ${this.address.url}; the very first start needs the coordinator.`);
    }
    const text = await answer.text();
    if (!answer.ok) throw refusalOf(text);
    return JSON.parse(text);
  }

  connect(handlers: Handlers): Socket {
    const { token, name } = this.options;
    const who = token !== undefined ? `fedbandit.token.${token.trim()}` : `fedbandit.name.${base64url(name ?? "")}`;
    const socket = new WebSocket(this.address.stream, ["fedbandit.v1", who]);
    socket.binaryType = "arraybuffer";
    let answered = false;
    socket.onopen = () => {
      answered = true;
      handlers.opened();
    };
    socket.onmessage = ({ data }) => handlers.received(typeof data === "string" ? data : new Uint8Array(data as ArrayBuffer));
    socket.onclose = async ({ reason }) => {
      // A page is not told why a handshake failed; a request is. The owner of the federation may be another coordinator.
      if (!answered) await this.invitation().catch((error) => error instanceof Refused && handlers.refused(error));
      handlers.ended(reason);
    };
    return {
      send: (frame) => socket.readyState === WebSocket.OPEN && socket.send(frame as Uint8Array<ArrayBuffer>),
      close: () => socket.close(),
    };
  }
}

function base64url(text: string): string {
  const bytes = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(bytes).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

/**
 * A state in IndexedDB: the snapshot under key 0, lines after it. One page at a time holds it: a second one with the
 * same state waits until the first is closed, as two copies of one client would be refused.
 */
export class IndexedDBStore implements Store {
  private constructor(
    private readonly database: IDBDatabase,
    private readonly release: () => void,
  ) {}

  static async open(name: string): Promise<IndexedDBStore> {
    const release = await hold(`fedbandit ${name}`);
    const database = await new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open(`fedbandit ${name}`, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("journal", { autoIncrement: true });
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(new FedbanditError(`The state ${name} cannot be opened: ${request.error?.message}.`));
    });
    return new IndexedDBStore(database, release);
  }

  async read(): Promise<{ snapshot: string | null; lines: string[] }> {
    const journal = this.database.transaction("journal").objectStore("journal");
    const all = await answered(journal.getAll() as IDBRequest<string[]>);
    return { snapshot: all[0] ?? null, lines: all.slice(1) };
  }

  async append(line: string, durable: boolean): Promise<void> {
    const change = this.database.transaction("journal", "readwrite", { durability: durable ? "strict" : "default" });
    change.objectStore("journal").add(line);
    await finished(change);
  }

  async replace(snapshot: string): Promise<void> {
    const change = this.database.transaction("journal", "readwrite", { durability: "strict" });
    const journal = change.objectStore("journal");
    journal.clear();
    journal.put(snapshot, 0);
    await finished(change);
  }

  async close(): Promise<void> {
    this.database.close();
    this.release();
  }
}

/** Hold a lock of this origin until the function that is returned is called; the browser releases it with the page. */
function hold(name: string): Promise<() => void> {
  if (!navigator.locks) return Promise.resolve(() => {});
  return new Promise((held) => {
    void navigator.locks.request(name, () => new Promise<void>((release) => held(() => release())));
  });
}

function answered<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(new FedbanditError(`The state cannot be read: ${request.error?.message}.`));
  });
}

function finished(change: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    change.oncomplete = () => resolve();
    change.onabort = change.onerror = () => reject(new FedbanditError(`The state cannot be written: ${change.error?.message}.`));
  });
}

export { Client } from "./client.js";
export { FedbanditError, Refused } from "./errors.js";
export { Features } from "./features.js";
export type { Choice } from "./machine.js";
export type { Status } from "./client.js";
