import { expect, test } from 'vitest';
import { functionDefinition, InvokerHarness, running, URN } from '../../test/functions/harness.ts';

const SCHEMA = { type: 'object', properties: { a: { type: 'array', items: { type: 'integer' } } } };

test('an event that does not fit the schema of its function is refused before an instance starts', async () => {
  const harness = new InvokerHarness();
  harness.catalog.functions.set(URN, functionDefinition({ inputSchema: SCHEMA }));
  const call = (text: string) => ({
    call: { header: { traceId: 't', traceparent: '', requestId: 'r' }, body: Buffer.from(text) },
  });
  await expect(harness.invoke(call('{"a":[1,"2"]}'))).rejects.toMatchObject({
    code: 'invalid_request',
    number: 200400,
    message: 'the event does not fit the inputSchema of the function: event.a[1]: must be an integer, got "2"',
  });
  expect(harness.launcher.launched).toEqual([]);
  const fitting = await running(harness);
  fitting.instance.calls[0]?.finish();
  await fitting.result;
});
