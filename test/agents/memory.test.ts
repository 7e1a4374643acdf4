import { queryObjects } from 'node:v8';
import { expect, test } from 'vitest';
import { LiveInstance } from '../../src/instances/live-instance.ts';
import { Channel } from '../../src/runtime/channel.ts';
import { Harness, TENANT } from './harness.ts';

/** Returns the number of reachable objects of a class. */
const count = (type: new (...parameters: never[]) => object) => queryObjects(type, { format: 'count' });

test('memory does not grow with the number of creates, calls and deletes', async () => {
  await using harness = await Harness.open();
  const run = async (times: number) => {
    for (let n = 0; n < times; n++) {
      const id = await harness.create('a', { handler: n % 2 === 0 ? 'echo' : 'nowhere' });
      await harness.invoke(id);
      await harness.agents.delete(TENANT, id, null);
    }
  };
  await run(5);
  const before = count(AbortController);
  await run(60);
  expect(count(AbortController)).toBeLessThan(before + 30);
  expect(count(AbortSignal as never)).toBeLessThan(before + 30);
  expect(count(Channel as never)).toBeLessThan(5);
  expect(count(LiveInstance)).toBeLessThan(5);
}, 180_000);
