/** A client under Node that is driven by lines of JSON: node obey.js '{"url": …, "federation": …, "name": …}'. */
import { createInterface } from "node:readline";

import { open } from "../src/node.js";
import { driven } from "./driven.js";

const client = await open(JSON.parse(process.argv[2]));
const obey = driven(client);
for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(await obey(JSON.parse(line))));
await client.close();
