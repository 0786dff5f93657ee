/** What the tests ask of a browser page: the corpus, and a client that visits, closes and goes on. */
import { open } from "../src/browser.js";
import { run, skipped } from "./corpus.js";
import { driven } from "./driven.js";

async function corpus(vectors: any[]): Promise<string[]> {
  const told: string[] = [];
  for (const vector of vectors) {
    const why = skipped(vector);
    if (why === null) await run(vector);
    told.push(`${vector.name}: ${why === null ? "passed" : `skipped, ${why}`}`);
  }
  return told;
}

/** Open a state, serve some users, close: twice, as a page that is closed and opened again. */
async function visits(options: any, times: number): Promise<unknown[]> {
  const reports: unknown[] = [];
  for (let k = 0; k < times; k++) {
    const client = await open(options);
    for (let t = 0; t < options.visits; t++) {
      const arms = Array.from({ length: 5 }, () => Array.from({ length: client.terms.length }, () => (Math.random() - 0.5) / 2));
      const choice = client.select(arms);
      await client.observe(arms[choice.arm][0], choice);
    }
    const delivered = await client.flush(20_000);
    reports.push({ delivered, ...client.status() });
    await client.close();
  }
  return reports;
}

/** Open a client, and do what the page's server says until it says nothing more. */
async function obey(options: any): Promise<void> {
  const answer = driven(await open(options));
  for (;;) {
    const command = await (await fetch("/next")).json();
    if (command === null) return;
    await fetch("/told", { method: "POST", body: JSON.stringify(await answer(command)) });
  }
}

Object.assign(globalThis, { corpus, visits, obey });
