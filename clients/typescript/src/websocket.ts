/** A WebSocket client on Node's own sockets (RFC 6455): Node 20 has none that takes headers, and we have no dependencies. */
import { createHash, randomBytes } from "node:crypto";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Duplex } from "node:stream";

import { refusalOf } from "./durable.js";
import type { Handlers, Socket } from "./platform.js";

const MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const [CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG] = [0, 1, 2, 8, 9, 10];
const LARGEST = 64 * 2 ** 20;

export interface SocketOptions {
  headers: Record<string, string>;
  protocols: string[];
  ca?: string | Buffer;
}

export function connectSocket(url: string, options: SocketOptions, handlers: Handlers): Socket {
  const key = randomBytes(16).toString("base64");
  const secure = url.startsWith("wss:");
  const ask = secure ? httpsRequest : httpRequest;
  let stream: Duplex | null = null;
  let over = false;
  const end = (reason: string) => {
    if (over) return;
    over = true;
    stream?.destroy();
    handlers.ended(reason);
  };
  const asked = ask(url.replace(/^ws/, "http"), {
    ...(secure && options.ca !== undefined ? { ca: options.ca } : {}),
    headers: {
      ...options.headers,
      Connection: "Upgrade",
      Upgrade: "websocket",
      "Sec-WebSocket-Version": "13",
      "Sec-WebSocket-Key": key,
      "Sec-WebSocket-Protocol": options.protocols.join(", "),
    },
  });
  asked.setTimeout(30_000, () => asked.destroy(new Error("no answer")));
  asked.on("error", (error) => end(error.message));
  asked.on("response", (answer) => {
    const parts: Buffer[] = [];
    answer.on("data", (part: Buffer) => parts.push(part));
    answer.on("end", () => {
      const text = Buffer.concat(parts).toString();
      if (text.startsWith("{")) handlers.refused(refusalOf(text));
      end(`HTTP ${answer.statusCode}`);
    });
  });
  asked.on("upgrade", (answer, socket, head) => {
    const expected = createHash("sha1").update(key + MAGIC).digest("base64");
    if (answer.headers["sec-websocket-accept"] !== expected) return end("not a WebSocket");
    stream = socket;
    if (over) return void socket.destroy();
    asked.setTimeout(0);
    (socket as unknown as { setNoDelay?: (on: boolean) => void }).setNoDelay?.(true);
    const reader = new Reader(handlers, (kind, data) => socket.write(frameOf(kind, data)), end);
    socket.on("data", (data: Buffer) => reader.feed(data));
    socket.on("close", () => end("closed"));
    socket.on("error", (error: Error) => end(error.message));
    handlers.opened();
    if (head.length) reader.feed(head);
  });
  asked.end();
  return {
    send: (frame) => {
      if (!over) stream?.write(frameOf(BINARY, Buffer.from(frame)));
    },
    close: () => {
      if (stream && !over) stream.end(frameOf(CLOSE, Buffer.from([3, 232]))); // 1000
      else asked.destroy();
      end("closed here");
    },
  };
}

/** A masked frame, as clients send them. */
function frameOf(kind: number, data: Buffer): Buffer {
  const length = data.length < 126 ? 0 : data.length < 65536 ? 2 : 8;
  const head = Buffer.alloc(2 + length + 4);
  head[0] = 0x80 | kind;
  head[1] = 0x80 | (length === 0 ? data.length : length === 2 ? 126 : 127);
  if (length === 2) head.writeUInt16BE(data.length, 2);
  if (length === 8) head.writeBigUInt64BE(BigInt(data.length), 2);
  const mask = randomBytes(4);
  mask.copy(head, 2 + length);
  const masked = Buffer.from(data);
  for (let i = 0; i < masked.length; i++) masked[i] ^= mask[i & 3];
  return Buffer.concat([head, masked]);
}

/** Takes frames apart, and puts messages in several frames together. */
class Reader {
  private buffered: Buffer = Buffer.alloc(0);
  private parts: Buffer[] = [];
  private kind = 0;

  constructor(
    private readonly handlers: Handlers,
    private readonly answer: (kind: number, data: Buffer) => void,
    private readonly end: (reason: string) => void,
  ) {}

  feed(data: Buffer): void {
    this.buffered = Buffer.concat([this.buffered, data]);
    for (;;) {
      const frame = this.take();
      if (frame === null) return;
      this.handle(frame.final, frame.kind, frame.data);
    }
  }

  private take(): { final: boolean; kind: number; data: Buffer } | null {
    const { buffered } = this;
    if (buffered.length < 2) return null;
    let length = buffered[1] & 0x7f;
    let at = 2;
    if (length === 126) {
      if (buffered.length < 4) return null;
      [length, at] = [buffered.readUInt16BE(2), 4];
    } else if (length === 127) {
      if (buffered.length < 10) return null;
      [length, at] = [Number(buffered.readBigUInt64BE(2)), 10];
    }
    if (length > LARGEST || buffered[1] & 0x80) {
      this.end("a frame that no coordinator sends");
      return null;
    }
    if (buffered.length < at + length) return null;
    this.buffered = buffered.subarray(at + length);
    return { final: Boolean(buffered[0] & 0x80), kind: buffered[0] & 0x0f, data: buffered.subarray(at, at + length) };
  }

  private handle(final: boolean, kind: number, data: Buffer): void {
    if (kind === PING) return this.answer(PONG, data);
    if (kind === PONG) return;
    if (kind === CLOSE) return this.end("closed by the coordinator");
    if (kind !== CONTINUATION) [this.kind, this.parts] = [kind, []];
    this.parts.push(data);
    if (!final) return;
    const whole = Buffer.concat(this.parts);
    this.parts = [];
    if (this.kind === TEXT) this.handlers.received(whole.toString("utf8"));
    else if (this.kind === BINARY) this.handlers.received(new Uint8Array(whole));
  }
}
