import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Bed } from './agents.ts';

const CODE = `
def first(event, context):
    return {"by": "first", "env": context.env("GREETING"), "own": context.env("OWN"), "version": context.version}

def second(event, context):
    return {"by": "second", "env": context.env("GREETING"), "own": context.env("OWN"), "version": context.version}
`;
const MAIN = join(import.meta.dirname, '../../dist/main.js');

let bed: Bed;
beforeAll(async () => {
  bed = await Bed.start({ 'app.py': CODE });
});
afterAll(() => bed[Symbol.asyncDispose]());

/** Returns the output of the built program. */
async function cli(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [MAIN, ...args], {
    env: { ...process.env, ROOKERY_ADDRESS: bed.server.frontendUrl, ROOKERY_META_ADDRESS: bed.server.metaUrl },
  });
  return stdout.trim();
}

async function answerOf(name: string, urn: string): Promise<unknown> {
  const created = await bed.ask('POST', '/api/agent', { namespace: 'default', name, urn, env_vars: { OWN: name } });
  expect(created).toMatchObject({ status: 200 });
  const id = String(created.body.instance_id);
  const invoked = await bed.ask('POST', `/api/agent/${id}/invoke`, {});
  expect(await bed.ask('DELETE', `/api/agent/${id}`)).toMatchObject({ status: 200 });
  return invoked.body.data;
}

test('agents of each version published by the CLI run their own handler and environment', async () => {
  const latest = await cli(
    ...['function', 'register', 'walk', '--code', bed.codeDir, '--runtime', bed.runtime],
    ...['--handler', 'app.first', '--env', 'GREETING=hello', '--env', 'OWN=static'],
  );
  const v1 = await cli('function', 'publish', 'walk', '--as', 'v1');
  await cli('function', 'update', 'walk', '--handler', 'app.second', '--env', 'GREETING=bye');
  const v2 = await cli('function', 'publish', 'walk', '--as', 'v2');

  expect(await answerOf('one', v1)).toEqual({ by: 'first', env: 'hello', own: 'one', version: 'v1' });
  expect(await answerOf('two', v2)).toEqual({ by: 'second', env: 'bye', own: 'two', version: 'v2' });
  expect(await answerOf('three', latest)).toMatchObject({ by: 'second', version: '$latest' });
});

test('a create with the URN of an unregistered function answers 500 with the reason', async () => {
  const urn = 'sn:cn:yrk:default:function:0@default@never:$latest';
  expect(await bed.ask('POST', '/api/agent', { namespace: 'default', name: 'never', urn })).toEqual({
    status: 500,
    body: {
      code: 500,
      message:
        'failed to create agent: invalid function: function [0@default@never] is not found. check input parameters',
    },
  });
});

test('every acknowledged registration exists after kill -9 of the server', async () => {
  const acknowledged: string[] = [];
  let isOver = false;
  const worker = async (name: string) => {
    for (let n = 0; !isOver && n < 10_000; n++) {
      const body = { name: `0@crash@${name}-${n}`, kind: 'agent', runtime: 'python3.11', cpu: 1, memory: 16 };
      const answer = await bed.ask('POST', '/serverless/v1/functions', body, { meta: true }).catch(() => null);
      if (answer?.body.code === 0) acknowledged.push(String(answer.body.functionVersionUrn));
      if (acknowledged.length >= 200 && !isOver) {
        isOver = true;
        await bed.server.end('SIGKILL');
      }
    }
  };
  await Promise.all(['a', 'b', 'c', 'd'].map(worker));
  await bed.killAndRestart();
  for (const urn of acknowledged) {
    const answer = await bed.ask('GET', `/serverless/v1/functions/${urn}?versionNumber=latest`, undefined, {
      meta: true,
    });
    expect(answer.body).toMatchObject({ code: 0, function: { functionVersionUrn: urn } });
  }
});
