/**
 * A client that does what it is told, one command after the other: {"arms": …, "actions"?, "explore"?}, {"reward": …} or {}.
 * It answers with its status, or with the sentence of an error.
 */
import type { Client } from "../src/client.js";
import { FedbanditError } from "../src/errors.js";
import type { Choice } from "../src/machine.js";

export function driven(client: Client): (command: any) => Promise<Record<string, unknown>> {
  let choice: Choice | null = null;
  return async (command) => {
    try {
      const { actions, explore } = command;
      if (command.arms !== undefined) choice = client.select(command.arms, { actions, explore });
      if (command.reward !== undefined) await client.observe(command.reward, choice!);
    } catch (error) {
      if (!(error instanceof FedbanditError)) throw error;
      return { error: error.message };
    }
    return { arm: choice?.arm, propensity: choice?.propensity, estimated: choice?.estimated, theta: client.theta, ...client.status() };
  };
}
