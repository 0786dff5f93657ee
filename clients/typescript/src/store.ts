/** Where a client's state lives: a snapshot, and lines that came after it. */
export interface Store {
  /** What is there; null before the first snapshot. */
  read(): Promise<{ snapshot: string | null; lines: string[] }>;
  /** Add a line. With `durable` it survives a power cut when the promise is fulfilled. */
  append(line: string, durable: boolean): Promise<void>;
  /** Put a snapshot in the place of everything, whole or not at all. */
  replace(snapshot: string): Promise<void>;
  close(): Promise<void>;
}

/** A state that is gone with the page or the process. */
export class MemoryStore implements Store {
  private snapshot: string | null = null;
  private lines: string[] = [];

  async read(): Promise<{ snapshot: string | null; lines: string[] }> {
    return { snapshot: this.snapshot, lines: [...this.lines] };
  }

  async append(line: string): Promise<void> {
    this.lines.push(line);
  }

  async replace(snapshot: string): Promise<void> {
    [this.snapshot, this.lines] = [snapshot, []];
  }

  async close(): Promise<void> {}
}
