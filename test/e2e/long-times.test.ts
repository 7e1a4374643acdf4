import { afterAll, beforeAll, expect, test } from 'vitest';
import { Bed } from './agents.ts';

let bed: Bed;

beforeAll(async () => {
  bed = await Bed.start({
    'long.py':
      'def start(context):\n    context.state["n"] = 7\ndef handler(event, context):\n    return context.state["n"]\n',
  });
});

afterAll(async () => {
  await bed?.[Symbol.asyncDispose]();
});

const LONGEST_SECONDS = 8_640_000;

test.each([2_147_483, 2_147_484, 4_294_968, LONGEST_SECONDS])(
  'a function with a timeout of %d s for its initializer and its calls starts and answers',
  async seconds => {
    const name = `long-${seconds}`;
    const registered = await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        name: `0@long@${name}`,
        ...{ runtime: bed.runtime, kind: 'faas', cpu: 500, memory: 500, handler: 'long.handler', timeout: seconds },
        extendedHandler: { initializer: 'long.start', pre_stop: '' },
        extendedTimeout: { initializer: seconds, pre_stop: 1 },
        autoScaleConfig: { slaQuota: 0, scaleDownTime: 86_400_000, burstScaleNum: 10 },
        ...{ storageType: 'local', codePath: bed.codeDir },
      },
      { meta: true },
    );
    expect(registered.body).toMatchObject({ code: 0 });
    const urn = String(registered.body.functionVersionUrn);
    const headers = {
      'x-instance-session': JSON.stringify({
        sessionID: 'one',
        sessionTTL: Math.min(seconds, 2_592_000),
        concurrency: 1,
      }),
    };
    const path = `/serverless/v1/functions/${encodeURIComponent(urn)}/invocations`;
    const first = await bed.ask('POST', path, {}, { headers });
    expect(first).toMatchObject({ status: 200, body: 7 });
    // The instance and the session have not ended at once.
    const instances = async () =>
      (await bed.ask('GET', `/serverless/v1/functions/${encodeURIComponent(urn)}/instances`)).body.instances;
    const before = await instances();
    expect(before).toHaveLength(1);
    expect(await bed.ask('POST', path, {}, { headers })).toMatchObject({ status: 200, body: 7 });
    expect(await instances()).toEqual(before);
  },
);
