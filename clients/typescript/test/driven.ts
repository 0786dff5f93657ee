/** A client that does what it is told, one command after the other: {"arms": …}, {"reward": …} or {}; it answers with its status. */
import type { Client } from "../src/client.js";
import type { Choice } from "../src/machine.js";

export function driven(client: Client): (command: any) => Promise<Record<string, unknown>> {
  let choice: Choice | null = null;
  return async (command) => {
    if (command.arms) choice = client.select(command.arms);
    if (command.reward !== undefined) await client.observe(command.reward, choice!);
    return { arm: choice?.arm, theta: client.theta, ...client.status() };
  };
}
