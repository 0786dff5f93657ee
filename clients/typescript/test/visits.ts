/** A client that serves simulated users: node visits.js '{"url": …, "federation": …, "name": …, "state": …, "visits": 100}'. */
import { open } from "../src/node.js";

const options = JSON.parse(process.argv[2]);
const client = await open(options);
let seed = options.seed ?? 1;
const random = () => ((seed = (seed * 1103515245 + 12345) % 2 ** 31), seed / 2 ** 31);
console.log(JSON.stringify({ begun: client.status() }));
let sum = 0;
for (let t = 0; t < options.visits; t++) {
  const arms = Array.from({ length: 5 }, () => Array.from({ length: client.terms.length }, () => (random() - 0.5) / 2));
  const choice = client.select(arms);
  const reward = arms[choice.arm][0] + 0.1 * (random() - 0.5);
  sum += reward;
  await client.observe(reward, choice);
  if (options.pace) await new Promise((done) => setTimeout(done, options.pace));
}
const delivered = await client.flush(20_000);
console.log(JSON.stringify({ delivered, reward: sum, ...client.status(), theta: client.theta }));
await client.close();
