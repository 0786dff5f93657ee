/** The client for Node: a file, node:http, a WebSocket on Node's sockets. */
import { type FileHandle, open as openFile, readFile, rename, rm, writeFile } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { dirname, resolve as absolute } from "node:path";

import { Client } from "./client.js";
import { refusalOf } from "./durable.js";
import { FedbanditError } from "./errors.js";
import { Address, type Handlers, type Options as Common, type Platform, type Socket } from "./platform.js";
import { MemoryStore, type Store } from "./store.js";
import { connectSocket } from "./websocket.js";

export interface Options extends Common {
  /** The file that keeps the state; without one it is gone with the process. */
  state?: string;
  /** The authority's certificate (PEM), for coordinators with keys of `fedbandit keys`. */
  ca?: string | Buffer;
}

export async function open(options: Options): Promise<Client> {
  const store = options.state === undefined ? new MemoryStore() : await FileStore.open(options.state);
  try {
    return await Client.start(new Node(options), store);
  } catch (error) {
    await store.close();
    throw error;
  }
}

class Node implements Platform {
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

  private ask(method: string): Promise<unknown> {
    const { url: host, invitation: url, headers } = this.address;
    const ask = url.startsWith("https:") ? httpsRequest : httpRequest;
    const { ca } = this.options;
    return new Promise((resolve, reject) => {
      const lost = (error: Error) =>
        reject(new FedbanditError(`There is no answer from ${host} (${error.message}); the very first start needs the coordinator.`));
      const asked = ask(url, { method, headers, ...(ca === undefined ? {} : { ca }) }, (answer) => {
        const parts: Buffer[] = [];
        answer.on("data", (part: Buffer) => parts.push(part));
        answer.on("error", lost);
        answer.on("end", () => {
          const text = Buffer.concat(parts).toString();
          if (answer.statusCode !== 200) return reject(refusalOf(text));
          try {
            resolve(JSON.parse(text));
          } catch {
            reject(new FedbanditError(`${host} did not answer with an invitation.`));
          }
        });
      });
      asked.setTimeout(30_000, () => asked.destroy(new Error("no answer in 30 s")));
      asked.on("error", lost);
      asked.end();
    });
  }

  connect(handlers: Handlers): Socket {
    const { ca } = this.options;
    const { headers, stream } = this.address;
    return connectSocket(stream, { headers, protocols: ["fedbandit.v1"], ca }, handlers);
  }
}

/** A state in a file: the first line is the snapshot; a new one replaces the file whole. */
export class FileStore implements Store {
  private whole = 0; // bytes of the file since the snapshot was written that are whole lines, and known to be written
  private torn = false;

  private constructor(
    private readonly path: string,
    private file: FileHandle,
    private readonly lock: string,
  ) {}

  static async open(path: string): Promise<FileStore> {
    const lock = `${absolute(path)}.lock`;
    await claim(lock);
    try {
      return new FileStore(path, await openFile(path, "a"), lock);
    } catch (error) {
      await release(lock);
      throw new FedbanditError(`${path} cannot be opened: ${(error as Error).message}.`);
    }
  }

  async read(): Promise<{ snapshot: string | null; lines: string[] }> {
    const text = await readFile(this.path, "utf8");
    const all = text.split("\n");
    if (all[all.length - 1] === "") all.pop();
    return { snapshot: all[0] ?? null, lines: all.slice(1) };
  }

  async append(line: string, durable: boolean): Promise<void> {
    const data = Buffer.from(`${line}\n`);
    try {
      // After a write that failed: half a line, or one that is written again, must not stay before the next.
      if (this.torn) await this.file.truncate(this.whole);
      this.torn = true;
      await this.file.appendFile(data);
      if (durable) await this.file.sync();
    } catch (error) {
      throw new FedbanditError(`${this.path} cannot be written: ${(error as Error).message}.`);
    }
    this.torn = false;
    this.whole += data.length;
  }

  async replace(snapshot: string): Promise<void> {
    const partial = `${this.path}.partial`;
    const file = await openFile(partial, "w");
    const data = Buffer.from(`${snapshot}\n`);
    try {
      await file.writeFile(data);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(partial, this.path);
    await syncFolder(dirname(this.path));
    await this.file.close();
    this.file = await openFile(this.path, "a");
    [this.whole, this.torn] = [data.length, false];
  }

  async close(): Promise<void> {
    await this.file.close();
    await release(this.lock);
  }
}

const held = new Set<string>();

/** One process at a time: two clients on one file would be one client that says different things. */
async function claim(lock: string): Promise<void> {
  for (;;) {
    try {
      await writeFile(lock, String(process.pid), { flag: "wx" });
      held.add(lock);
      return;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code !== "EEXIST") throw new FedbanditError(`${lock} cannot be written: ${message}.`);
    }
    const holder = Number(await readFile(lock, "utf8").catch(() => "0"));
    if (holder === process.pid ? held.has(lock) : holder > 0 && isAlive(holder)) {
      throw new FedbanditError(`The state is in use by process ${holder}; every client needs a file of its own.`);
    }
    await rm(lock, { force: true }); // of a process that is no more, or had our number before us
  }
}

async function release(lock: string): Promise<void> {
  held.delete(lock);
  await rm(lock, { force: true });
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await openFile(folder, "r").catch(() => null);
  await handle?.sync().catch(() => {});
  await handle?.close();
}

export { Client } from "./client.js";
export { FedbanditError, Refused } from "./errors.js";
export { Features } from "./features.js";
export type { Choice } from "./machine.js";
export type { Status } from "./client.js";
