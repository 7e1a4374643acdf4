import { expect, test, vi } from 'vitest';
import { encodeFrame } from '../../src/runtime/frames.ts';
import { FRAME } from '../../src/runtime/protocol.ts';
import { Harness, TENANT } from './harness.ts';

const NEVER = () => new Promise(() => undefined);
const FORGED = encodeFrame(FRAME.ERROR, 77, JSON.stringify({ code: 'constructor', message: 'a\nb' }));
const BROKEN = 'the runtime broke the protocol: ERROR for a call that is not open';

test('a runtime that breaks the protocol fails its calls, is connected again, and affects no other instance', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('stay', NEVER);
  const [hostile, other] = [await harness.create('a', { handler: 'stay' }), await harness.create('b')];
  const call = harness.invoke(hostile);
  const failed = expect(call).rejects.toMatchObject({ code: 'unavailable', message: BROKEN });
  harness.driver.say(hostile, FORGED);
  await failed;
  expect(await harness.value(other, 5)).toBe(5);
  await vi.waitFor(() =>
    expect(harness.logs).toContainEqual(
      expect.objectContaining({
        level: 'warn',
        fields: expect.objectContaining({ instanceId: hostile, reason: BROKEN }),
      }),
    ),
  );
  expect(await harness.agents.get(TENANT, hostile)).toMatchObject({ status: 'RUNNING' });
});

test('a runtime that keeps breaking the protocol is ended, and its record has the reason', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  const ended = vi.waitFor(
    async () => {
      if (harness.driver.runningIds.includes(id)) harness.driver.say(id, FORGED);
      expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'FAILED', statusReason: BROKEN });
    },
    { timeout: 20_000, interval: 50 },
  );
  await ended;
  expect(harness.driver.runningIds).not.toContain(id);
});
